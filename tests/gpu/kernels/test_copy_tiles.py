"""copy_tiles copies boxes whose axes lie in another order in the source, and only plain ones of enough elements."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gzarr.gpu.kernels import BYTE_SHUFFLED
from gzarr.gpu.kernels.parts import Boxes, Shuffles, describe_tiles
from tests.gpu.kernels.boxes import Case, check
from tests.gpu.kernels.launching import HAS_COMPILER, NO_COMPILER, at_offset
from tests.gpu.kernels.reference import Shuffle

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason=NO_COMPILER)


def strides_of(lengths: tuple[int, ...], order: tuple[int, ...], nbytes: int) -> tuple[int, ...]:
    """Strides of an array whose axes are in such an order in memory, the last one running fastest."""
    strides, size = [0] * len(lengths), nbytes
    for axis in reversed(order):
        strides[axis] = size
        size *= lengths[axis]
    return tuple(strides)


@st.composite
def transposed(draw: st.DrawFn) -> Case:
    ndim = draw(st.integers(2, 5))
    shape = tuple(
        draw(st.sampled_from([1, 2, 3, 8, 9, 31, 32, 33, 40, 65] if ndim < 4 else [1, 2, 3, 8, 33]))
        for _ in range(ndim)
    )
    while math.prod(shape) > 20_000:
        shape = (*(max(n // 2, 1) for n in shape),)
    chunk = tuple(n + draw(st.sampled_from([0, 0, 1, 7])) for n in shape)
    target = tuple(n + draw(st.sampled_from([0, 0, 1, 3])) for n in shape)
    nbytes = draw(st.sampled_from([1, 2, 4, 8, 16]))
    order = tuple(draw(st.permutations(range(ndim))))
    strides = strides_of(chunk, order, nbytes)
    outer = strides_of(target, tuple(range(ndim)), nbytes)
    n = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    how = Shuffle(draw(st.sampled_from([0, 0, 0, BYTE_SHUFFLED])), nbytes, 64 * nbytes)
    size, offset = nbytes * math.prod(target), draw(st.sampled_from([0, 0, nbytes, 1]))
    return Case(
        shape,
        [None if rng.random() < 0.1 else rng.integers(0, 256, nbytes * math.prod(chunk), np.uint8) for _ in range(n)],
        [how] * n,
        [sum(draw(st.integers(0, c - s)) * step for c, s, step in zip(chunk, shape, strides, strict=True))] * n,
        strides,
        at_offset(np.full(n * size, 0xA5, np.uint8), offset),
        [i * size for i in range(n)],
        outer,
        nbytes,
        draw(st.sampled_from([u for u in (0, 0, 2, 4, 8) if nbytes % max(u, 1) == 0])),
        rng.integers(0, 256, nbytes, np.uint8),
    )


@given(transposed())
def test_boxes(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("nbytes", [1, 2, 4, 8, 16])
def test_fortran_order_takes_tiles(nbytes: int) -> None:
    shape, fill = (9, 10, 40), np.zeros(nbytes, np.uint8)
    chunks: list[np.ndarray | None] = [
        np.random.default_rng(i).integers(0, 256, 3600 * nbytes, np.uint8) for i in range(3)
    ]
    inner, outer = strides_of(shape, (2, 1, 0), nbytes), strides_of(shape, (0, 1, 2), nbytes)
    target, starts = np.zeros(3 * 3600 * nbytes, np.uint8), [i * 3600 * nbytes for i in range(3)]
    case = Case(shape, chunks, [Shuffle()] * 3, [0] * 3, inner, target, starts, outer, nbytes, 0, fill)
    assert check(case) == ["copy_tiles"]


@pytest.mark.parametrize(
    ("nbytes", "swap_unit"), [(1, 0), (2, 0), (2, 2), (4, 0), (4, 2), (4, 4), (8, 0), (8, 4), (8, 8)]
)
def test_sixteen_bytes_at_once(nbytes: int, swap_unit: int) -> None:
    """Tiles at the edges are cut, and other axes have strides of their own."""
    shape = 3, 13 * 16, 9 * 16
    inner, outer = strides_of(shape, (2, 0, 1), nbytes), strides_of((3, 13 * 16, 10 * 16), (0, 1, 2), nbytes)
    rng, size = np.random.default_rng(nbytes), nbytes * math.prod(shape)
    target = at_offset(np.full(nbytes * 3 * 13 * 16 * 10 * 16, 0xA5, np.uint8), 0)
    chunk, fill = at_offset(rng.integers(0, 256, size, np.uint8), 0), np.zeros(nbytes, np.uint8)
    case = Case(shape, [chunk], [Shuffle()], [0], inner, target, [0], outer, nbytes, swap_unit, fill)
    assert check(case) == ["copy_tiles"]
    columns = [np.array(values, np.int64) for values in ([1 << 20], [0], [1 << 20])]
    axes = [np.array(values, np.int64)[:, None] for values in (shape, inner, outer)]
    plain = Shuffles(np.zeros(1, np.uint8), np.ones(1, np.int32), np.ones(1, np.int64), np.full(1, size))
    tiles = describe_tiles(
        Boxes(*columns, *axes, nbytes, *(np.full((3, 1), -1),) * 2, columns[0][:0]), plain, swap_unit
    )
    assert tiles is not None
    assert tiles.table[0, 4] == 8 + nbytes.bit_length() - 1
