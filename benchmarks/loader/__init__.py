"""How fast `gzarr.Loader` is beside its peers: `python -m benchmarks.loader`, or `make bench-loader`."""
