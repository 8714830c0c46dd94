"""The CPU backend: NumPy for memory, numcodecs for codecs, threads where they pay."""
