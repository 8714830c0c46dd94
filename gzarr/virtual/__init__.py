"""Files of other formats read in place: where their chunks are, and the Zarr documents that describe them."""
