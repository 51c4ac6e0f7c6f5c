"""Following of a running job: notices changed files, reads only these, and reports the state of the job each time."""
