"""The controllers of the main screen, one class for each job; the screen owns them and binds keys to them."""
