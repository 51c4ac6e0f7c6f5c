"""Tests of what-if questions."""
