"""What a warp costs: machine instructions and memory sectors for each 16 bytes, and how many warps fit a processor.

PTX is not what runs: ptxas folds shifts, masks and additions into one machine instruction and makes several of one on
64 bits. `weight` gives the machine instructions (SASS, sm_90) that ptxas 13.5 makes of a PTX instruction, on average
over all kernels. They were counted with `nvdisasm -gp`, which names the PTX line behind each one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.gpu.ptx.machine import Run
from tests.gpu.ptx.memory import Accesses
from tests.gpu.ptx.nvrtc import Resources
from tests.gpu.ptx.program import Entry

#: Bytes that memory moves at once.
SECTOR_NBYTES = 32
#: Machine instructions of one PTX instruction on up to 32 bits, and on 64.
_WEIGHTS: dict[str, tuple[float, float]] = {
    "add": (1, 2.2),
    "sub": (1.3, 2.9),
    "neg": (1, 1),
    "mul": (0.6, 1.5),
    "mad": (1, 4),
    "not": (0, 2),
    "and": (0.45, 0.4),
    "or": (1, 1.25),
    "xor": (1, 1.9),
    "shl": (0.85, 0.7),
    "shr": (0.95, 0.9),
    "shf": (1, 1),
    "bfi": (2, 3.7),
    "bfe": (1.5, 3),
    "prmt": (1, 1),
    "lop3": (1, 1),
    "setp": (1.2, 2),
    "selp": (0.9, 2),
    "min": (1, 4),
    "max": (1, 4),
    "mov": (0.2, 0.5),
    "cvt": (0.1, 0.4),
    "bra": (0.9, 0.9),
    "div": (18.5, 72),
    "rem": (19, 75),
    "popc": (1, 2),
    "clz": (2, 4),
    "brev": (1, 2),
}
_FREE = {"param", "pred", "cvta"}


def weight(parts: tuple[str, ...]) -> float:
    """Machine instructions of a PTX instruction on average."""
    if _FREE & set(parts):
        return 0
    if parts[0] in ("mul", "mad") and parts[1] in ("wide", "hi"):
        return 0.7 if parts[1] == "wide" else 1
    narrow, wide = _WEIGHTS.get(parts[0], (1, 1))
    return wide if parts[-1].endswith("64") else narrow


class Cost(NamedTuple):
    """What the warps of a run cost for each 16 bytes that they store, or that they load if they store only tables.

    Attributes:
        instructions: machine instructions of a thread.
        load_sectors, store_sectors: 32-byte sectors that the requests touch, of which 0.5 are ideal. Tables do not
            count: a warp reads the same few rows, which stay in cache.
    """

    instructions: float
    load_sectors: float
    store_sectors: float


def cost_of(entry: Entry, done: Run, tables: np.ndarray) -> Cost | None:
    """tables: int64 (n, 2), the ranges of addresses that hold tables, sorted. None if nothing was to do."""
    stores = [one for one in done.memory.stores if not _are_in(tables, one).any()]
    loads = [one for one in done.memory.loads if not _are_in(tables, one).any()]
    units = sum(one.addresses.size * one.nbytes for one in stores or loads) / 16
    if not units:
        return None
    weights = np.array([weight(one.parts) for one in entry.instructions])
    issued = float(weights @ done.issues.sum(axis=1)) * 32
    return Cost(issued / units, _sectors(loads) / units, _sectors(stores) / units)


def _are_in(ranges: np.ndarray, one: Accesses) -> np.ndarray:
    row = np.maximum(np.searchsorted(ranges[:, 0], one.addresses, "right") - 1, 0)
    inside: np.ndarray = (ranges[row, 0] <= one.addresses) & (one.addresses < ranges[row, 1])
    return inside


def _sectors(accesses: list[Accesses]) -> int:
    return sum(
        np.unique(np.stack([one.threads // 32, one.addresses // SECTOR_NBYTES]), axis=1).shape[1] for one in accesses
    )


class Processor(NamedTuple):
    """A multiprocessor. Source: CUDA C++ Programming Guide, "Compute Capabilities"."""

    threads: int
    blocks: int
    shared: int
    registers: int = 65536


PROCESSORS = {
    75: Processor(1024, 16, 64 << 10),
    80: Processor(2048, 32, 164 << 10),
    90: Processor(2048, 32, 228 << 10),
    100: Processor(2048, 32, 228 << 10),
}
#: The driver keeps this much shared memory of each block, from sm_80 on.
_RESERVED_SHARED = 1024


def occupancy(arch: int, resources: Resources, block_threads: int) -> float:
    """The share of a multiprocessor's threads that blocks of a kernel can fill."""
    processor = PROCESSORS[arch]
    warps = -(-block_threads // 32)
    # Registers are handed out to warps, 256 at a time.
    registers = -(-resources.registers * 32 // 256) * 256 * warps
    shared = resources.shared + (_RESERVED_SHARED if arch >= 80 else 0)
    fitting = min(
        processor.threads // block_threads,
        processor.blocks,
        processor.registers // registers,
        processor.shared // shared if shared else processor.blocks,
    )
    return fitting * block_threads / processor.threads
