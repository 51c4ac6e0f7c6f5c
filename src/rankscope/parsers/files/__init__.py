"""Finding files, and reading them without trusting them: pipes, links, archives, compression, bombs."""
