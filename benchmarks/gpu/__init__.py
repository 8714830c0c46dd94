"""How fast gzarr is on a GPU, beside bare nvCOMP, raw copies and peers: `python -m benchmarks.gpu`."""
