"""Overlapping blocks of an array, for which no chunk is decoded twice."""
