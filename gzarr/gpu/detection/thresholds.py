"""The size below which the host decodes a read and uploads the result, or encodes a write.

Work on the device has fixed costs: tables that are made and uploaded, a call of nvCOMP for each codec, a few launches,
and a wait for the statuses. On the host, time is proportional to the number of chunks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gzarr.gpu.device import emulated_cupy
from gzarr.gpu.device.protocol import Device


@dataclass(frozen=True, slots=True)
class Crossover:
    """The limits up to which the host is faster.

    Attributes
    ----------
    nchunks : int
        Most stored chunks of a read that the host decodes, or of a write that it encodes.
    nbytes : int
        Most decoded bytes of these chunks, and of the result.
    """

    nchunks: int
    nbytes: int

    def prefers_host(self, nchunks: int, decoded_nbytes: int, result_nbytes: int) -> bool:
        """Whether the host should do the work. If no chunk is stored, there is nothing to decode."""
        return 0 < nchunks <= self.nchunks and max(decoded_nbytes, result_nbytes) <= self.nbytes

    def __str__(self) -> str:
        return f"reads of at most {self.nchunks} chunks and {self.nbytes} bytes are decoded on the host"


#: Everything runs on the device.
NEVER = Crossover(nchunks=0, nbytes=0)
#: Reasoned, not measured. A read on the device costs about 300 microseconds for tables and calls from Python, and some
#: tens each for the decoder's latency on short streams, for launches and for the wait; a host decodes a chunk in about
#: 25 microseconds (docs/benchmarks.md) at 1 GB/s or better. That makes 500 microseconds for 8 chunks of 32 KiB on
#: either side. Writes are assumed to be alike. In doubt the device is preferred.
SMALL = Crossover(nchunks=8, nbytes=1 << 18)


def crossover_for(device: Device) -> Crossover:
    """The limits for a device; an emulated device does everything itself."""
    return NEVER if device.xp in (np, emulated_cupy) else SMALL
