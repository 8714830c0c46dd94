"""How `gzarr.images` does beside its peers: `python -m benchmarks.images`, or `make bench-images`."""
