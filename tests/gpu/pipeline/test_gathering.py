"""Which elements of chunks get a value: each once, whatever the order of threads."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gzarr.codecs import BytesCodec, TransposeCodec
from gzarr.codecs.chain import prepare
from gzarr.codecs.spec import ArrayRepr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.pipeline.gathering import target_of
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.plan import make_plan
from gzarr.indexing.selection import normalize_coordinates, normalize_orthogonal

SHAPE, CHUNK = (9, 8), (4, 3)


def plan_of(order: tuple[int, ...]):
    chunk = ArrayRepr(np.dtype("i4"), CHUNK, 0)
    chain = GpuBackend(EmulatedDevice()).prepare(prepare((TransposeCodec(order), BytesCodec()), chunk), chunk)
    return chain.prepared.plan


@given(st.data())
def test_no_element_is_written_twice(data: st.DataObject) -> None:
    plan = plan_of(data.draw(st.sampled_from([(0, 1), (1, 0)])))
    grid = tuple(RegularAxis(n, c) for n, c in zip(SHAPE, CHUNK, strict=True))
    n = data.draw(st.integers(1, 30))
    indices = [data.draw(st.lists(st.integers(0, extent - 1), min_size=n, max_size=n)) for extent in SHAPE]
    as_points = data.draw(st.booleans())
    selection = (
        normalize_coordinates(tuple(indices), SHAPE) if as_points else normalize_orthogonal(tuple(indices), SHAPE)
    )
    parts = list(make_plan(selection, grid).parts())
    chunks = np.zeros(SHAPE, bool)
    chunks[tuple(indices) if as_points else np.ix_(*indices)] = True
    for part, count in zip(parts, target_of(plan, parts, "value").counts.tolist(), strict=True):
        low = [c * n for c, n in zip(part.coords, CHUNK, strict=True)]
        assert count == chunks[low[0] : low[0] + 4, low[1] : low[1] + 3].sum()
