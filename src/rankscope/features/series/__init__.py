"""Training series: metrics over steps, and the options of a run, from logs and the files of trackers."""
