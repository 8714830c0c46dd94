"""shuffle_items does what Blosc's filters do, for the chunks that it takes; shuffle does it for the others."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.codecs.batch import BatchContext, Chunks
from gzarr.gpu.codecs.transfers import shuffled
from gzarr.gpu.kernels import BIT_SHUFFLED, BYTE_SHUFFLED
from tests.gpu.kernels import reference
from tests.gpu.kernels.boxes import BOXES
from tests.gpu.kernels.launching import HAS_COMPILER, NO_COMPILER
from tests.gpu.kernels.reference import Shuffle

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)


class Case(NamedTuple):
    """Chunks of one size at multiples of ``pitch`` bytes, from ``offset`` on."""

    how: Shuffle
    n_chunks: int
    nbytes: int
    offset: int = 0
    gap: int = 0


def check(case: Case) -> list[str]:
    """Compare with NumPy. Returns: the kernels that were launched."""
    device, pitch = BOXES.make(), case.nbytes + case.gap
    data = np.random.default_rng(0).integers(0, 256, case.offset + case.n_chunks * pitch, np.uint8)
    memory = device.upload(data)
    starts = case.offset + np.arange(case.n_chunks, dtype=np.int64) * pitch
    chunks = Chunks(memory, device.address(memory) + starts, case.nbytes)
    context = BatchContext(device)
    found = shuffled(context, chunks, *case.how)
    wanted = [reference.shuffled(data[start : start + case.nbytes], case.how) for start in starts.tolist()]
    assert np.array_equal(device.download(found.rows), wanted)
    return device.launches


@st.composite
def cases(draw: st.DrawFn) -> Case:
    mode = draw(st.sampled_from([BYTE_SHUFFLED, BIT_SHUFFLED]))
    typesize = draw(st.sampled_from([1, 2, 4, 8, 16, 3]))
    items = draw(st.sampled_from([8, 16, 24, 200, 520, 1024, draw(st.integers(1, 300))]))
    nbytes = items * typesize + draw(st.sampled_from([0, 0, 0, 1]))
    block = typesize * draw(st.sampled_from([8, 16, 40, 64, 1, 5, 2000])) + draw(st.sampled_from([0, 0, 0, 1]))
    offset, gap = (draw(st.sampled_from([0, 0, 16, 8, 4, 2, 1])) for _ in range(2))
    return Case(Shuffle(mode, typesize, block), draw(st.integers(1, 4)), nbytes, offset, gap)


ON_DEVICE = ("test_any_chunks", "test_what_is_common_is_fast")


@given(cases())
def test_any_chunks(case: Case) -> None:
    check(case)


COMMON = [
    *((BYTE_SHUFFLED, size, nbytes, at) for size in (2, 4, 8, 16) for nbytes in (2048, 2064, 2000) for at in (0, size)),
    *((BIT_SHUFFLED, size, nbytes, at) for size in (1, 2, 4, 8) for nbytes in (2048, 1984) for at in (0, 16)),
    (BIT_SHUFFLED, 1, 2008, 8),
    (BYTE_SHUFFLED, 4, 2052, 0),
]
REST = [
    (Shuffle(BYTE_SHUFFLED, 3, 768), 1536, 0),  # items of odd sizes
    (Shuffle(BYTE_SHUFFLED, 32, 768), 1536, 0),
    (Shuffle(BIT_SHUFFLED, 16, 768), 1536, 0),
    (Shuffle(BYTE_SHUFFLED, 4, 770), 1540, 0),  # blocks with a tail
    (Shuffle(BYTE_SHUFFLED, 4, 768), 1538, 0),  # a chunk with a tail
    (Shuffle(BIT_SHUFFLED, 4, 768), 1552, 0),  # a last block whose bits are not shuffled
    (Shuffle(BYTE_SHUFFLED, 4, 768), 1536, 2),  # addresses that are not aligned
    (Shuffle(BIT_SHUFFLED, 2, 768), 1536, 8),
]


@pytest.mark.parametrize(("mode", "typesize", "nbytes", "offset"), COMMON)
def test_what_is_common_is_fast(mode: int, typesize: int, nbytes: int, offset: int) -> None:
    """Whole and short last blocks, and addresses that allow units of fewer bytes."""
    for blocksize in (nbytes, 4 * nbytes, 40 * max(typesize, 2), 128 * typesize):
        how = Shuffle(mode, typesize, blocksize)
        assert check(Case(how, 3, nbytes, offset, offset)) == ["shuffle_items"], how


@pytest.mark.parametrize(("how", "nbytes", "offset"), REST)
def test_the_rest_is_left_to_shuffle(how: Shuffle, nbytes: int, offset: int) -> None:
    assert check(Case(how, 3, nbytes, offset)) == ["shuffle"]
