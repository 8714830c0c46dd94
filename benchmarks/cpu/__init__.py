"""How fast gzarr is on the CPU, beside its peers: `python -m benchmarks.cpu`, or `make bench`."""
