"""What a selection wants of an array, cut along its chunks. No input or output."""
