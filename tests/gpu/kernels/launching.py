"""Runs kernels on host memory: chunks at odd addresses, their tables, and results laid out in every way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from gzarr.gpu.codecs import checksums
from gzarr.gpu.codecs.batch import BatchContext
from gzarr.gpu.device import hostbuild
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.kernels import BIT_SHUFFLED, BYTE_SHUFFLED, PLAIN, box_threads, prefix_sums
from tests.gpu.kernels.reference import Shuffle

DEVICE = hostbuild.HostKernels()

#: Why tests that launch kernels are skipped where nothing compiles them.
NO_COMPILER = "no C++ compiler (g++ or $CXX) on this machine"
HAS_COMPILER = hostbuild.find_compiler() is not None


def at_offset(data: np.ndarray, offset: int) -> np.ndarray:
    """A copy of bytes that begins so far into memory of its own, and ends where that memory ends."""
    memory = np.empty(offset + data.size, np.uint8)
    memory[offset:] = data
    return memory[offset:]


@dataclass
class Sources:
    """The tables that describe decoded chunks; None is a missing one."""

    address: np.ndarray
    mode: np.ndarray
    typesize: np.ndarray
    blocksize: np.ndarray
    nbytes: np.ndarray
    kept: list[np.ndarray | None] = field(repr=False)

    @property
    def how(self) -> tuple[np.ndarray, ...]:
        """The last four arguments of several kernels."""
        return self.mode, self.typesize, self.blocksize, self.nbytes


def make_sources(chunks: Sequence[np.ndarray | None], shuffles: Sequence[Shuffle] | None = None) -> Sources:
    """Chunks with their shuffles; None if they are plain."""
    shuffles = [Shuffle()] * len(chunks) if shuffles is None else shuffles
    return Sources(
        np.array([0 if c is None else c.ctypes.data for c in chunks], np.uint64),
        np.array([s.mode for s in shuffles], np.uint8),
        np.array([s.typesize for s in shuffles], np.int32),
        np.array([s.blocksize for s in shuffles], np.int64),
        np.array([0 if c is None else c.size for c in chunks], np.int64),
        list(chunks),
    )


@dataclass
class BoxColumns:
    """place_box's columns of the parts of a `BoxPlan`, made from its axes: (ndim, n), sides "in" and "out"."""

    count: np.ndarray
    start: tuple[np.ndarray, np.ndarray]
    step: tuple[np.ndarray, np.ndarray]
    list: tuple[np.ndarray, np.ndarray]
    lists: np.ndarray
    elem_start: np.ndarray

    @property
    def n(self) -> int:
        """Number of parts."""
        return self.count.shape[1]


def box_columns(axes: Sequence[Sequence[tuple]]) -> BoxColumns:
    """axes: for every axis its spans. Parts are their product, the last axis running fastest."""
    pool: list[int] = []

    def side(index: slice | np.ndarray) -> tuple[int, int, int, int]:
        """(count, start, step, place of the list)."""
        if isinstance(index, slice):
            numbers = range(index.start, index.stop, index.step or 1)
            return len(numbers), numbers.start, numbers.step, -1
        pool.extend(index.tolist())
        return index.size, 0, 1, len(pool) - index.size

    rows = [[(*side(span.inside), *side(span.out)) for span in spans] for spans in axes]
    parts = list(itertools.product(*rows))
    table = np.array(parts, np.int64).reshape(len(parts), len(axes), 8).transpose(2, 1, 0).copy()
    assert (table[0] == table[4]).all()
    return BoxColumns(
        table[0],
        (table[1], table[5]),
        (table[2], table[6]),
        (table[3], table[7]),
        np.array(pool, np.int64),
        prefix_sums(table[0].prod(axis=0, dtype=np.int64)),
    )


def place_boxes(
    boxes: BoxColumns,
    source: tuple[int, Sources, int | np.ndarray, np.ndarray],
    target: tuple[int, np.ndarray, np.ndarray],
    values: tuple[int, int, np.ndarray],
    n_threads: int | None = None,
) -> None:
    """Launch place_box.

    source: side, chunks, bytes of the first element, and strides. target: side, addresses, and strides. Strides are in
    bytes, by axis; they and the bytes of the first element may be given for every part. values: bytes of an element, of
    what is swapped, and the fill value.
    """
    (side, sources, first, inside), (other, addresses, outside), (nbytes, unit, fill) = source, target, values
    strides = [given if given.ndim == 2 else given[:, None] for given in (inside, outside)]
    starts = [(boxes.start[at] * given).sum(axis=0) for at, given in zip((side, other), strides, strict=True)]
    steps = [np.ascontiguousarray(boxes.step[at] * given) for at, given in zip((side, other), strides, strict=True)]
    columns = (sources.address, starts[0] + first, (starts[1] + addresses).astype(np.uint64), boxes.count, *steps)
    columns += (boxes.list[side], boxes.list[other], boxes.lists, boxes.elem_start)
    threads = box_threads(int(boxes.elem_start[-1]), nbytes) if n_threads is None else n_threads
    args = (boxes.n, len(boxes.count), *columns, nbytes, unit, fill, sources.nbytes)
    DEVICE.launch("place_box", threads, args)


@dataclass(frozen=True)
class Layout:
    """How a result lies in memory: order of the axes, and for each axis how far apart elements are, and which way."""

    order: tuple[int, ...]
    steps: tuple[int, ...]
    offset: int

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
        """(the array, all bytes of the memory that it is a view of)."""
        spread = [shape[axis] * abs(self.steps[axis]) for axis in self.order]
        nbytes = math.prod(spread) * dtype.itemsize
        memory = np.full(self.offset + nbytes, 0xA5, np.uint8)
        wide = memory[self.offset :].view(dtype).reshape(spread) if nbytes else np.empty(spread, dtype)
        back = [self.order.index(axis) for axis in range(len(shape))]
        return wide.transpose(back)[(*(slice(None, None, step) for step in self.steps), ...)], memory


@st.composite
def layouts(draw: st.DrawFn, ndim: int) -> Layout:
    plain = draw(st.booleans())
    order = tuple(range(ndim)) if plain else tuple(draw(st.permutations(range(ndim))))
    steps = tuple(draw(st.sampled_from([1] if plain else [1, 1, 2, -1, -3])) for _ in range(ndim))
    return Layout(order, steps, draw(st.sampled_from([0, 0, 0, 16, 8, 4, 2, 1, 3])))


@st.composite
def shuffles(draw: st.DrawFn, nbytes: int, itemsize: int) -> Shuffle:
    """Any mode; items mostly as large as the elements; blocks that cut them, divide the chunk, or are larger."""
    mode = draw(st.sampled_from([PLAIN, BYTE_SHUFFLED, BIT_SHUFFLED]))
    typesize = draw(st.sampled_from([itemsize, itemsize, itemsize, 1, 2, 3, 4, 7, 8, 16, 17, 255]))
    items = draw(st.sampled_from([1, 8, 16, 64, 128]))
    blocksize = draw(st.sampled_from([max(nbytes, 1), items * typesize, items * typesize, 4 * nbytes + 1, 40, 101]))
    return Shuffle(mode, typesize, blocksize)


class Sums:
    """Checksums on an emulated device; tests on hardware put another method in the place of `of`."""

    def __init__(self, make: Callable[[], EmulatedDevice] = EmulatedDevice) -> None:
        self._make = make

    def of(self, kind: str, streams: list[np.ndarray]) -> list[int]:
        """Those of streams where they are."""
        context = BatchContext(self._make())
        addresses = np.array([context.device.address(s) for s in streams], np.int64)
        pending = checksums.queue(context, kind, addresses, np.array([s.size for s in streams], np.int64))
        return pending.values(context.device.download(pending.raw)).tolist()


SUMS = Sums()


def checksums_of(kind: str, streams: list[np.ndarray]) -> list[int]:
    """Checksums of byte streams as the device computes them."""
    return SUMS.of(kind, streams)


#: (length, offset of the first byte, what bytes) of some streams, around the pieces that the kernels work in.
STREAMS = st.lists(
    st.tuples(
        st.one_of(st.integers(1, 40), st.integers(1000, 1050), st.integers(2040, 2060), st.integers(1, 9000)),
        st.integers(0, 17),
        st.sampled_from(["random", "zero", "ff"]),
    ),
    min_size=1,
)


def streams_of(drawn: list[tuple[int, int, str]]) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    make = {"random": lambda n: rng.integers(0, 256, n), "zero": np.zeros, "ff": lambda n: np.full(n, 255)}
    return [at_offset(make[what](n).astype(np.uint8), offset) for n, offset, what in drawn]
