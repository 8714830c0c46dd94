"""Below which size a read is decoded on the host and uploaded once: the one place for these numbers.

Writes of values on the host have the same limits, for chunks that are encoded.

A read on the device has costs that do not depend on its size: tables made and uploaded, a call of nvCOMP for each
codec, a few launches, and one wait for the statuses. A host decodes chunk by chunk, in a time that grows from nothing.

**These numbers are not measured.** They are reasoned from parts: about 300 microseconds for tables and calls from
Python, some tens each for the decoder's latency on short streams, launches and the wait, against about 25 microseconds
a chunk on the host (docs/benchmarks.md) and 1 GB/s or better. That makes 500 microseconds for 8 chunks of 32 KiB on
either side. Where in doubt the device is chosen, as its costs per chunk are nearly nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gzarr.gpu.device import Device


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where the host stops being faster.

    Attributes:
        nchunks: most stored chunks of a read that the host decodes.
        nbytes: most decoded bytes of these chunks, and of the result.
    """

    nchunks: int
    nbytes: int

    def prefers_host(self, nchunks: int, decoded_nbytes: int, result_nbytes: int) -> bool:
        """Whether the host should decode a read. Where no chunk is stored, there is nothing to decode."""
        return 0 < nchunks <= self.nchunks and max(decoded_nbytes, result_nbytes) <= self.nbytes

    def __str__(self) -> str:
        return f"reads of at most {self.nchunks} chunks and {self.nbytes} bytes are decoded on the host"


#: Unmeasured, see above.
CUDA = Crossover(nchunks=8, nbytes=256 << 10)
#: Everything runs on the device.
NEVER = Crossover(nchunks=0, nbytes=0)


def crossover_for(device: Device) -> Crossover:
    """That of a device. An emulated one is there to run what a GPU runs, so it decodes everything."""
    return NEVER if device.xp is np else CUDA
