"""Search for files, and safe reading of them: pipes, links, archives, compression, bombs."""
