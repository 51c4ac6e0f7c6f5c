"""The detail pane below the lanes, and the screens that open from it.

`pane.DetailPane(options)` shows a selection with `show(dataset, analysis, selection)`. The screens of `screens` are
pushed with the dataset, and dismiss with a Selection to jump to, the index of a finding, or None.
"""
