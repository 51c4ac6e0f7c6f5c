"""The main screen of a watched job: it keeps its place over updates, follows, pauses, and reports news."""
