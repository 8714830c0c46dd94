"""From a TIFF to a pyramid, a filtered pyramid, labels, and a picture of them: the land of the Earth."""
