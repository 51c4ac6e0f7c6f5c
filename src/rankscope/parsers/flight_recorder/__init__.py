"""One dump of PyTorch's flight recorder, from its bytes to arrays. Imports no polars: it runs in worker processes."""
