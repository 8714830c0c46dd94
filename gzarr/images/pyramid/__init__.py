"""Levels of lower resolution, all of them in one pass over level 0."""
