"""Below which size a read is decoded on the host and uploaded once, and a write encoded there after one download.

Work on the device has costs that do not depend on its size: tables made and uploaded, a call of nvCOMP for each codec,
a few launches, and one wait for the statuses. A host works chunk by chunk, in a time that grows from nothing. The
numbers, and whether they were measured, stand in `gzarr.gpu.detection.measured`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gzarr.gpu.detection.measured import gpu_name, value_for
from gzarr.gpu.device.protocol import Device


@dataclass(frozen=True, slots=True)
class Crossover:
    """Where the host stops being faster.

    Attributes:
        nchunks: most stored chunks of a read that the host decodes, or of a write that it encodes.
        nbytes: most decoded bytes of these chunks, and of the result.
        basis: where the numbers come from, as a phrase.
    """

    nchunks: int
    nbytes: int
    basis: str = ""

    def prefers_host(self, nchunks: int, decoded_nbytes: int, result_nbytes: int) -> bool:
        """Whether the host should do it. Where no chunk is stored, there is nothing to do."""
        return 0 < nchunks <= self.nchunks and max(decoded_nbytes, result_nbytes) <= self.nbytes

    def __str__(self) -> str:
        basis = f" ({self.basis})" if self.basis else ""
        return f"reads of at most {self.nchunks} chunks and {self.nbytes} bytes are decoded on the host{basis}"


#: Everything runs on the device.
NEVER = Crossover(nchunks=0, nbytes=0)


def crossover_for(device: Device, part: str) -> Crossover:
    """That of a device. An emulated one is there to run what a GPU runs, so it does everything.

    part: `SMALL_READS` or `SMALL_WRITES` of `gzarr.gpu.detection.measured`.
    """
    return NEVER if device.xp is np else crossover_of(part, gpu_name(device))


def crossover_of(part: str, gpu: str) -> Crossover:
    """That of a GPU by name; "" for one that nothing was measured on."""
    limits, basis = value_for(part, gpu)
    return Crossover(int(limits["nchunks"]), int(limits["nbytes"]), basis)
