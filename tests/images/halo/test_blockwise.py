"""Walks with halos give what scipy.ndimage gives for the whole array, whatever the chunks, bars and layers."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.images.halo.blockwise import BlockwiseJob, run_blockwise
from gzarr.images.halo.boundary import MODES, Depth
from gzarr.images.halo.choosing import make_plan
from gzarr.images.halo.planning import Costs, Geometry

#: Numbers of numpy.pad's modes that stand for those of scipy.ndimage.
PADDED = {"reflect": "symmetric", "mirror": "reflect", "nearest": "edge", "wrap": "wrap", "constant": "constant"}


def padded(data: np.ndarray, geometry: Geometry, cval: int) -> np.ndarray:
    """All of an array with its pads: what the blocks of every walk are parts of."""
    for axis, (depth, mode) in enumerate(zip(geometry.depth, geometry.modes, strict=True)):
        width = [(0, 0)] * data.ndim
        width[axis] = tuple(depth)
        options = {"constant_values": cval} if mode == "constant" else {}
        data = np.pad(data, width, PADDED[mode], **options)
    return data


def walked(
    sources: list[gzarr.Array], geometry: Geometry, cval: int, max_nbytes: int, *, ahead: bool, block: Any = None
) -> list[tuple[tuple[int, ...], np.ndarray]]:
    """Walk, check every block with its halo, and collect the groups. A budget that is too small becomes the least."""
    geometry = replace(geometry, cval=cval)
    whole = [padded(source[...], geometry, cval) for source in sources]
    itemsizes = tuple(source.itemsize for source in sources)
    grids = [source.metadata.chunk_grid for source in sources]
    costs = Costs(itemsizes, 8, 8, 2, 1 + ahead, max_nbytes)
    try:
        plan = make_plan(geometry, grids, costs, block)
    except ValueError as error:
        least = int(str(error).partition("take ")[2].split()[0])
        plan = make_plan(geometry, grids, costs._replace(max_nbytes=least), block)
    groups = []

    def compute(bounds: Any, views: list[Any]) -> Any:
        wide, core = [], []
        for axis, (start, stop) in enumerate(bounds):
            low, high = geometry.core(axis, start, stop)
            before, after = geometry.depth[axis]
            wide.append(slice(low, high + before + after))
            core.append(slice(before, before + high - low, geometry.factors[axis]))
        for view, expected in zip(views, whole, strict=True):
            np.testing.assert_array_equal(view, expected[tuple(wide)])
        return views[0][tuple(core)].astype("i8")

    def put(start: tuple[int, ...], values: Any) -> None:
        groups.append((start, values.copy()))

    run_blockwise(
        BlockwiseJob(
            sources=sources,
            compute=compute,
            put=put,
            geometry=geometry,
            costs=costs,
            plan=plan,
            dtype=np.dtype("i8"),
            max_nbytes=max_nbytes,
        )
    )
    return groups


@st.composite
def walks(draw: st.DrawFn) -> tuple[Geometry, list[tuple[int, ...]]]:
    shape = tuple(draw(st.lists(st.integers(1, 13), min_size=1, max_size=3)))
    depths = []
    for n in shape:
        before, after = draw(st.integers(0, min(n - 1, 4))), draw(st.integers(0, min(n - 1, 4)))
        depths.append(Depth(before, after))
    geometry = Geometry(
        shape=shape,
        depth=tuple(depths),
        modes=tuple(draw(st.sampled_from(MODES)) for _ in shape),
        factors=tuple(draw(st.sampled_from((1, 1, 2, 3))) for _ in shape),
        unit=tuple(draw(st.integers(1, 6)) for _ in shape),
    )
    chunks = [tuple(draw(st.integers(1, 6)) for _ in shape) for _ in range(draw(st.integers(1, 2)))]
    return geometry, chunks


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@settings(max_examples=50)
@given(case=walks(), max_nbytes=st.sampled_from([1, 1000, 3000, 10**6]), ahead=st.booleans())
def test_blocks_are_those_of_the_padded_array(
    device: str, case: tuple[Geometry, list[Any]], max_nbytes: int, ahead: bool
) -> None:
    geometry, chunks = case
    data = np.arange(1, prod(geometry.shape) + 1).reshape(geometry.shape)
    sources = [gzarr.array(data.astype(t), chunks=c).to(device) for c, t in zip(chunks, ("i4", "u2"), strict=False)]
    groups = walked(sources, geometry, 7, max_nbytes, ahead=ahead)
    result = np.zeros(geometry.out_shape, "i8")
    for start, values in groups:
        for axis, (low, n) in enumerate(zip(start, values.shape, strict=True)):
            unit, stop = geometry.unit[axis], low + n
            assert low % unit == 0
            assert stop % unit == 0 or stop == geometry.out_shape[axis]
        place = tuple(slice(a, a + n) for a, n in zip(start, values.shape, strict=True))
        assert not result[place].any(), "put twice"
        result[place] = values
    np.testing.assert_array_equal(result, data[tuple(slice(None, None, f) for f in geometry.factors)])
