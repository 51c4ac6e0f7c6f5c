"""The screen of a comparison of runs: the answer first, then lanes, series and maps of both."""
