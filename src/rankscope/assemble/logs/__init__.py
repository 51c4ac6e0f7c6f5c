"""What logs tell, brought into the frame: whose lines they are, and of which groups and operations they speak."""
