"""The relief of the Earth: written as Zarr, read back by windows, checked, timed and drawn."""
