"""Assembly of files to one Dataset: the writer and run of each file, and groups over all ranks."""
