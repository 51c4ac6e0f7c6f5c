"""What the lines of logs, settings, communicators and RAS say of a job, and how it joins what the dumps say."""
