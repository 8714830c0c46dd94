"""Compiled code that takes frames apart refuses tables that do not fit; `tests/gpu/codecs` looks at what it finds."""

from typing import Any

import numpy as np
import pytest
from numcodecs.blosc import Blosc

from gzarr.cpu.compiled import library
from gzarr.gpu.codecs.blosc.parsing import FRAME

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

N, NBYTES = 3, 4000


def arguments() -> list[Any]:
    frame = np.frombuffer(Blosc("lz4", 5, 1).encode(np.arange(NBYTES // 4, dtype="i4")), np.uint8)
    staging_buffer, places = np.concatenate([frame] * N), np.arange(N, dtype=np.int64) * frame.size
    sizes = np.full(N, frame.size, np.int64)
    frames = np.empty(N, FRAME).view(np.uint8)
    return [staging_buffer, places, sizes, NBYTES, frames, np.zeros(6, np.int64), np.empty((5, 0), np.int64)]


def test_frames_are_counted_and_then_noted() -> None:
    args = arguments()
    loop = library.loop()
    assert loop.parse_blosc(*args)
    bounds = args[-2]
    assert bounds[-1] >= N
    args[-1] = np.full((5, int(bounds[-1])), -1, np.int64)
    assert loop.parse_blosc(*args)
    assert args[-1][4].sum() == N * NBYTES
    assert (args[-1] >= 0).all()


@pytest.mark.parametrize("position", [2, 4, 5])
def test_tables_that_do_not_fit_each_other_are_refused(position: int) -> None:
    args = arguments()
    args[position] = args[position][:-1].copy()
    with pytest.raises(ValueError, match="tables"):
        library.loop().parse_blosc(*args)


def test_counts_that_lie_are_noticed() -> None:
    args = arguments()
    library.loop().parse_blosc(*args)
    args[-1] = np.empty((5, 1), np.int64)
    with pytest.raises(ValueError, match="tables"):
        library.loop().parse_blosc(*args)
    args[-2][:] = 0
    assert not library.loop().parse_blosc(*args)


def test_tables_of_zstandard_that_do_not_fit_are_refused() -> None:
    staging_buffer, places, sizes, *_ = arguments()
    for nbytes, plain in ((N - 1, N), (N, N - 1)):
        with pytest.raises(ValueError, match="tables"):
            library.extension().plain_zstd(
                staging_buffer, places, sizes, np.zeros(nbytes, np.int64), np.zeros(plain, np.uint8)
            )
