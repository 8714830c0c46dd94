"""Zarr arrays straight into GPU memory, and the same code, files and answers on a machine with no GPU."""
