"""Values in words, and text of files made fit to be shown: the same in every report and on the screen.

The package loads nothing heavy, so that every layer and every process may use it.
"""
