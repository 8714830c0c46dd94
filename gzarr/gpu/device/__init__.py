"""The seam to hardware: CUDA, or an emulated device."""
