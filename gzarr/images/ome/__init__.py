"""The metadata of OME-Zarr: documents, axes, channels, labels, plates, collections."""
