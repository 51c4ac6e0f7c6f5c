"""Two runs side by side: schedules, settings, training series, tensors and times."""
