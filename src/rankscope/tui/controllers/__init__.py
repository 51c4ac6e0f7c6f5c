"""The jobs of the main screen, one class for each; the screen owns them and says which key belongs to which."""
