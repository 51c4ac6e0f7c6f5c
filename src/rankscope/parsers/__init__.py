"""Readers of files: bytes on disk to the content of one file, without any judgement."""
