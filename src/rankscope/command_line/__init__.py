"""Names, arguments and help of all commands; what they do stands in `rankscope.commands`."""
