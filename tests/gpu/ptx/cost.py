"""What a warp costs: machine instructions and memory sectors for each 16 bytes, and how many warps fit a processor.

PTX is not what runs: ptxas makes one machine instruction of a product and the sum that it goes into, and several of an
operation on 64 bits. `weights` gives the machine instructions (SASS, sm_90) that ptxas 13.5 makes of each PTX
instruction of its kind, on average over all kernels. They were counted with `nvdisasm -gp`, which names the PTX line
behind each one. The sums for whole launches of fast kernels are then within some 10 % of those of the real code.
"""

import re
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from tests.gpu.ptx.machine import Run
from tests.gpu.ptx.memory import Accesses
from tests.gpu.ptx.nvrtc import Resources
from tests.gpu.ptx.program import Entry, Instruction

#: Bytes that memory moves at once.
SECTOR_NBYTES = 32
#: Machine instructions of one PTX instruction on up to 32 bits, and on 64; 1 for all others.
_WEIGHTS: dict[str, tuple[float, float]] = {
    "add": (1, 1.9),
    "sub": (1.4, 2.9),
    "mul": (0.7, 3.5),
    "mad": (1, 4),
    "not": (0, 2),
    "neg": (1, 1),
    "and": (0.4, 0.45),
    "or": (1, 1.2),
    "xor": (1, 1.8),
    "shl": (1, 0.8),
    "shr": (0.95, 1.15),
    "bfi": (2, 3.7),
    "bfe": (1.5, 3),
    "setp": (1.2, 2),
    "selp": (0.85, 2),
    "min": (1, 4),
    "max": (1, 4),
    "mov": (0.15, 0.5),
    "cvt": (0.3, 0),
    "bra": (0.6, 0.6),
    "ret": (0, 0),
    "div": (18.5, 72),
    "rem": (19, 75),
    "popc": (1, 2),
    "clz": (2, 4),
    "brev": (1, 2),
}
_FREE = {"param", "pred", "cvta"}
#: Halves of 64 bits are registers of their own.
_HALVES = {("shr", "32"), ("and", "4294967295")}


def weights(entry: Entry) -> np.ndarray:
    """Machine instructions of each PTX instruction of a kernel."""
    uses: defaultdict[str, list[str]] = defaultdict(list)
    for one in entry.instructions:
        taken = one.operands if one.parts[0] in ("st", "bra") else one.operands[1:]
        for register in re.findall(r"%\w+", " ".join(taken)):
            uses[register].append(one.parts[0])
    return np.array([0 if _joins(one, uses) else _weight(one) for one in entry.instructions])


def _joins(one: Instruction, uses: dict[str, list[str]]) -> bool:
    """Whether an instruction becomes a part of the one that uses its result."""
    if one.parts[0] not in ("mul", "shl") or "hi" in one.parts:
        return False
    return uses[one.operands[0]] in (["add"], ["sub"])


def _weight(one: Instruction) -> float:
    parts = one.parts
    if _FREE & set(parts) or ("64" in parts[-1] and (parts[0], one.operands[-1]) in _HALVES):
        return 0
    if parts[0] == "mul" and parts[1] in ("wide", "hi"):
        return 1
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
    stores, loads = (_outside(tables, accesses) for accesses in (done.memory.stores, done.memory.loads))
    units = sum(one.addresses.size * one.nbytes for one in stores or loads) / 16
    if not units:
        return None
    issued = float(weights(entry) @ done.issues.sum(axis=1)) * 32
    return Cost(issued / units, _sectors(loads) / units, _sectors(stores) / units)


def _outside(ranges: np.ndarray, accesses: list[Accesses]) -> list[Accesses]:
    """Accesses without those to tables."""
    rest = []
    for one in accesses:
        row = np.maximum(np.searchsorted(ranges[:, 0], one.addresses, "right") - 1, 0)
        outside = (one.addresses < ranges[row, 0]) | (one.addresses >= ranges[row, 1])
        rest.append(Accesses(one.addresses[outside], one.nbytes, one.threads[outside]))
    return rest


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
