"""Trains a small network on pictures that a `gzarr.Loader` shuffles: in PyTorch (`with_torch`) and JAX (`with_jax`)."""
