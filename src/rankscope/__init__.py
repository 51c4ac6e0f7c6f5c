"""Names the rank that broke a distributed PyTorch job, from what the job left behind."""

__version__ = "0.2.0"
