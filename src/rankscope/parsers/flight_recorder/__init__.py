"""Reader of PyTorch's flight recorder: bytes of one dump to arrays. Imports no polars: worker processes load it."""
