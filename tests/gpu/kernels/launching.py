"""Runs kernels on host memory: chunks at odd addresses, their tables, and results laid out in every way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from gzarr.gpu.codecs import checksums
from gzarr.gpu.codecs.batch import BatchContext
from gzarr.gpu.device import hostbuild
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.kernels import BIT_SHUFFLED, BYTE_SHUFFLED, PLAIN
from tests.gpu.kernels.reference import Shuffle


class HostKernels:
    """Launches kernels on the host, until a suite gives an object of it another ``launch``."""

    launch = staticmethod(hostbuild.launch)


DEVICE = HostKernels()


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
