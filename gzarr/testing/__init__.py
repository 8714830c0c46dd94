"""Tests of your own code for GPUs, which need none: what crosses between host and device, faults, a pytest fixture.

The fixture `gzarr_device` comes with gzarr, as a plug-in of pytest (`gzarr.testing.plugin`).
"""

from gzarr.errors import OutOfMemoryError
from gzarr.testing.faults import damaged_chunk, out_of_memory
from gzarr.testing.transfers import Crossed, Transfers, transfers

__all__ = ["Crossed", "OutOfMemoryError", "Transfers", "damaged_chunk", "out_of_memory", "transfers"]
