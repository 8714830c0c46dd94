"""Runs the blocks of long operations: on threads, other processes, Dask, Ray, or as one task of a job array."""
