"""The main screen of a job that is watched: it keeps its place over updates, follows, pauses, and says what is new."""
