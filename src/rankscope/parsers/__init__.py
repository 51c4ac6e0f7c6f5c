"""Bytes on disk to the frame of ``rankscope.schema``: ``load`` is the way in. Judges nothing."""
