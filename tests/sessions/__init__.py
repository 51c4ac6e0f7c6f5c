"""Tests of sessions, as a sceptic writes them."""
