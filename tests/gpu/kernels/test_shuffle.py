"""shuffle does what Blosc's filters do: against the reference, for sizes that unshuffle is tested with, and in place of
nothing else: no byte beside the result is written.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.kernels import BIT_SHUFFLED, BYTE_SHUFFLED, PLAIN, unit_starts
from tests.gpu.kernels.launching import DEVICE, HAS_COMPILER, NO_COMPILER, at_offset, make_sources, shuffles
from tests.gpu.kernels.reference import Shuffle, shuffled

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)


def shuffle(chunks: list[np.ndarray], how: list[Shuffle], offset: int = 0) -> list[np.ndarray]:
    results = [at_offset(np.full(c.size, 0xA5, np.uint8), offset) for c in chunks]
    sources = make_sources(chunks, how)
    starts = unit_starts(sources.nbytes)
    targets = np.array([r.ctypes.data for r in results], np.uint64)
    DEVICE.launch("shuffle", int(starts[-1]), (len(chunks), sources.address, targets, starts, *sources.how))
    return results


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, n, np.uint8)


@given(st.data())
def test_any_sizes(data: st.DataObject) -> None:
    plain, how = [], []
    for _ in range(data.draw(st.integers(0, 5))):
        n = data.draw(st.one_of(st.integers(0, 40), st.integers(0, 3000)))
        plain.append(at_offset(noise(n, data.draw(st.integers(0, 99))), data.draw(st.sampled_from([0, 0, 1, 8]))))
        how.append(data.draw(shuffles(n, data.draw(st.sampled_from([1, 2, 3, 4, 8, 16])))))
    found = shuffle(plain, how, data.draw(st.sampled_from([0, 0, 2, 3])))
    assert [f.tobytes() for f in found] == [shuffled(p, h).tobytes() for p, h in zip(plain, how, strict=True)]


@pytest.mark.parametrize("typesize", [1, 2, 3, 4, 6, 7, 8, 12, 16, 17, 18, 255])
@pytest.mark.parametrize("mode", [PLAIN, BYTE_SHUFFLED, BIT_SHUFFLED])
def test_each_item_size_in_one_launch(mode: int, typesize: int) -> None:
    """Whole blocks, short last blocks, tails, blocks whose items are no multiple of eight, blocks below one item."""
    lengths = [typesize * items + tail for items in (0, 1, 7, 8, 16, 40, 129) for tail in (0, typesize // 2)]
    plain = [noise(n, n) for n in lengths for _ in range(3)]
    how = [Shuffle(mode, typesize, size) for n in lengths for size in (max(n, 1), 16 * typesize, 24 * typesize + 1)]
    found = shuffle(plain, how)
    assert [f.tobytes() for f in found] == [shuffled(p, h).tobytes() for p, h in zip(plain, how, strict=True)]
