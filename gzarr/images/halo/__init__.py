"""Walks over an array in overlapping blocks that decode no chunk again for each neighbour."""
