"""Connected components, and segmentations of blocks merged into one."""
