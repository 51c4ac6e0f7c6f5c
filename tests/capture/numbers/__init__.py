"""Tests of the recording of numbers."""
