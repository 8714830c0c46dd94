"""What launches of the placement kernels cost, measured on warps from their middles, and what they may cost."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from numcodecs import Blosc, Zstd

from tests.gpu.ptx import cases
from tests.gpu.ptx.capture import Launch, Sample, all_warps, middle
from tests.gpu.ptx.cases import Case
from tests.gpu.ptx.cost import Cost

PLAIN, BYTES, BITS = Zstd(1), Blosc("zstd", 5, Blosc.SHUFFLE), Blosc("zstd", 5, Blosc.BITSHUFFLE)
#: Each byte is loaded once and stored once: half a sector of 32 bytes for each 16.
IDEAL_SECTORS = 0.5
MAX_SECTORS = 2 * IDEAL_SECTORS
#: Of a multiprocessor's threads: fewer cannot hide the latency of memory. More where it was reached.
MIN_OCCUPANCY, OCCUPANCY = 0.5, {"copy_plain": 0.625, "copy_bytes": 0.625, "copy_streams": 0.625}


class Goal(NamedTuple):
    """A read or write, and the most instructions and sectors for each 16 bytes of it, of all kernels or of some."""

    case: Case
    instructions: int = 0
    sectors: float = MAX_SECTORS
    verb: str = "read"
    kernels: tuple[str, ...] = ()
    sample: Sample = middle


def _case(shape: tuple[int, ...], chunks: tuple[int, ...], compressor: Any, dtype: str = "f4", **options: Any) -> Case:
    return Case({"compressor": compressor, **options}, shape, chunks, dtype)


FLAT = (1 << 19,), (1 << 14,)
SQUARE = (512, 512), (128, 128)
CUBE = (96, 64, 64), (32, 32, 32)
ODD = (509, 507), (256, 256)
F = {"order": "F", "zarr_format": 2}
#: What was reached; 40 for plain and 90 for shuffled chunks are what a copy at 0.7 of the memory's rate allows. With a
#: step, half of each sector is not wanted.
GOALS = {
    "1-D f4": Goal(_case(*FLAT, PLAIN), 27),
    "2-D f4": Goal(_case(*SQUARE, PLAIN), 27),
    "3-D f4": Goal(_case(*CUBE, PLAIN), 33),
    "2-D u1": Goal(_case(*SQUARE, PLAIN, "u1"), 27),
    "2-D big-endian f8": Goal(_case(*SQUARE, PLAIN, ">f8", zarr_format=2), 35),
    "2-D u2, byte shuffle": Goal(_case(*SQUARE, BYTES, "u2"), 44),
    "2-D f4, byte shuffle": Goal(_case(*SQUARE, BYTES), 53),
    "2-D f8, byte shuffle": Goal(_case(*SQUARE, BYTES, "f8"), 67),
    "2-D u1, bit shuffle": Goal(_case(*SQUARE, BITS, "u1"), 78),
    "2-D u2, bit shuffle": Goal(_case(*SQUARE, BITS, "u2"), 67),
    "2-D f4, bit shuffle": Goal(_case(*SQUARE, BITS), 66),
    "2-D f8, bit shuffle": Goal(_case(*SQUARE, BITS, "f8"), 78),
    "2-D u1, order F": Goal(_case(*SQUARE, PLAIN, "u1", **F), 85),
    "2-D f4, order F": Goal(_case(*SQUARE, PLAIN, **F), 39),
    "2-D f8, order F": Goal(_case(*SQUARE, PLAIN, "f8", **F), 29),
    "2-D f4, order F, bit shuffle": Goal(_case(*SQUARE, BITS, **F), 66),
    "2-D c16, bit shuffle": Goal(_case(*SQUARE, BITS, "c16"), 107),
    "2-D f4, bit shuffle, odd chunks": Goal(_case((602, 606), (301, 303), BITS), 75, 1.4),
    "2-D f4, steps": Goal(
        _case(*SQUARE, PLAIN)._replace(select=lambda array: array[::2, ::2]), 57, 2.5 * IDEAL_SECTORS
    ),
    "odd rows of u1": Goal(_case(*ODD, PLAIN, "u1"), 64, 1.1, sample=all_warps),
    "odd rows of u2": Goal(_case(*ODD, PLAIN, "u2"), 58, 1.1, sample=all_warps),
    "odd rows of f4": Goal(_case(*ODD, PLAIN), 52, 0.7, sample=all_warps),
    "short rows of u1": Goal(_case((4096, 63), (2048, 21), PLAIN, "u1"), 200, 1.8, sample=all_warps),
    "short rows of u2": Goal(_case((4096, 33), (2048, 11), PLAIN, "u2"), 110, 1.5, sample=all_warps),
    "short rows of f4": Goal(_case((8192, 9), (4096, 3), PLAIN), 65, 1.7, sample=all_warps),
    "short rows of f4, byte shuffle": Goal(_case((8192, 9), (4096, 3), BYTES), 145, 1.7, sample=all_warps),
    "odd rows of u2, byte shuffle": Goal(_case(*ODD, BYTES, "u2"), 78, 1.5, sample=all_warps),
    "odd rows of f4, byte shuffle": Goal(_case(*ODD, BYTES), 84, 1.6, sample=all_warps),
    "odd rows of f8, byte shuffle": Goal(_case(*ODD, BYTES, "f8"), 110, 0.9, sample=all_warps),
    "odd rows of u1, order F": Goal(_case(*ODD, PLAIN, "u1", **F), 108, 1.5, sample=all_warps),
    "odd rows of f4, order F": Goal(_case(*ODD, PLAIN, **F), 66, 1.2, sample=all_warps),
    "write odd rows of u1": Goal(_case(*ODD, None, "u1"), 57, 1.2, "write", ("copy_plain",), all_warps),
    "write 2-D f4": Goal(_case(*SQUARE, None), 27, verb="write", kernels=("copy_plain",)),
    "write 2-D u2, byte shuffle": Goal(_case(*SQUARE, BYTES, "u2"), 45, 0.6, "write", ("shuffle",)),
    "write 2-D f4, byte shuffle": Goal(_case(*SQUARE, BYTES), 47, 0.7, "write", ("shuffle",)),
    "write 2-D c16, byte shuffle": Goal(_case(*SQUARE, BYTES, "c16"), 88, verb="write", kernels=("shuffle",)),
    "write 2-D u1, bit shuffle": Goal(_case(*SQUARE, BITS, "u1"), 100, verb="write", kernels=("shuffle",)),
    "write 2-D f4, bit shuffle": Goal(_case(*SQUARE, BITS), 71, verb="write", kernels=("shuffle",)),
    "write 2-D c16, bit shuffle": Goal(_case(*SQUARE, BITS, "c16"), 111, verb="write", kernels=("shuffle",)),
}


@cache
def launches(name: str) -> tuple[Launch, ...]:
    """The launches of a goal's case."""
    goal = GOALS[name]
    with TemporaryDirectory() as folder:
        device = (cases.read if goal.verb == "read" else cases.write)(goal.case, Path(folder), goal.sample)
    return tuple(device.runs)


def costs(name: str) -> dict[str, Cost]:
    """The cost of the first launch of each kernel."""
    first: dict[str, Cost] = {}
    for run in launches(name):
        if run.cost:
            first.setdefault(run.kernel, run.cost)
    return first
