"""The command ``gzarr demo``: a short tour on real data."""
