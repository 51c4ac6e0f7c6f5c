"""Two runs of one job compared: schedules, settings, training series and times, with the earliest difference first."""
