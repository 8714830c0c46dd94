"""copy_streams copies ranges of any length between any addresses, and writes no byte beside them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.kernels import unit_starts
from tests.gpu.kernels.launching import DEVICE, at_offset


def copy(sources: list[np.ndarray], targets: list[np.ndarray], n_threads: int | None = None) -> None:
    nbytes = np.array([s.size for s in sources], np.int64)
    starts = unit_starts(nbytes)
    addresses = [np.array([a.ctypes.data for a in arrays], np.uint64) for arrays in (sources, targets)]
    threads = int(starts[-1]) if n_threads is None else n_threads
    DEVICE.launch("copy_streams", threads, (len(sources), *addresses, nbytes, starts))


@given(
    st.lists(st.tuples(st.one_of(st.integers(0, 70), st.integers(0, 2000)), st.integers(0, 17), st.integers(0, 17))),
    st.sampled_from([None, None, 1, 300]),
)
def test_streams_of_any_length_and_alignment(streams: list[tuple[int, int, int]], n_threads: int | None) -> None:
    rng = np.random.default_rng(3)
    sources = [at_offset(rng.integers(0, 256, n, np.uint8), offset) for n, offset, _ in streams]
    targets = [at_offset(np.zeros(n, np.uint8), offset) for n, _, offset in streams]
    copy(sources, targets, n_threads)
    assert [t.tobytes() for t in targets] == [s.tobytes() for s in sources]


def test_every_pair_of_alignments() -> None:
    data = np.arange(100, dtype=np.uint8)
    pairs = [(a, b) for a in range(16) for b in range(16)]
    sources = [at_offset(data, a) for a, _ in pairs]
    targets = [at_offset(np.zeros(100, np.uint8), b) for _, b in pairs]
    copy(sources, targets)
    assert all(np.array_equal(t, data) for t in targets)


def test_bytes_beside_a_stream_stay() -> None:
    staging_buffer = np.full(64, 0xA5, np.uint8)
    copy([np.zeros(9, np.uint8), np.zeros(17, np.uint8)], [staging_buffer[3:12], staging_buffer[20:37]])
    assert np.flatnonzero(staging_buffer == 0).tolist() == [*range(3, 12), *range(20, 37)]


def test_no_streams() -> None:
    copy([], [], n_threads=5)
