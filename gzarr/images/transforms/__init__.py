"""Functions that make new images of whole ones: projections, cuts, turns, interpolation, and what combines several."""
