"""Benchmarks: validate, then time, side by side with the peers that are installed."""
