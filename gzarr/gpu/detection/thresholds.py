"""The size below which the host decodes a read and uploads the result, or encodes a write.

Work on the device has fixed costs: tables that are made and uploaded, a call of nvCOMP for each codec, a few launches,
and a wait for the statuses. On the host, time is proportional to the number of chunks. The numbers are in
`gzarr.gpu.detection.measured`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gzarr.gpu.detection.measured import gpu_name, value_for
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
    basis : str
        Where the numbers come from, as a phrase.
    """

    nchunks: int
    nbytes: int
    basis: str = ""

    def prefers_host(self, nchunks: int, decoded_nbytes: int, result_nbytes: int) -> bool:
        """Whether the host should do the work. If no chunk is stored, there is nothing to decode."""
        return 0 < nchunks <= self.nchunks and max(decoded_nbytes, result_nbytes) <= self.nbytes

    def __str__(self) -> str:
        basis = f" ({self.basis})" if self.basis else ""
        return f"reads of at most {self.nchunks} chunks and {self.nbytes} bytes are decoded on the host{basis}"


#: Everything runs on the device.
NEVER = Crossover(nchunks=0, nbytes=0)


def crossover_for(device: Device, part: str) -> Crossover:
    """The limits for a device; an emulated device does everything itself.

    part: `SMALL_READS` or `SMALL_WRITES` of `gzarr.gpu.detection.measured`.
    """
    return NEVER if device.xp in (np, emulated_cupy) else crossover_of(part, gpu_name(device))


def crossover_of(part: str, gpu: str) -> Crossover:
    """The limits for a GPU by name; "" for a GPU without measurements."""
    limits, basis = value_for(part, gpu)
    return Crossover(int(limits["nchunks"]), int(limits["nbytes"]), basis)
