"""Batches as rows and chunks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gzarr.gpu.codecs.batch import BatchContext, Chunks
from gzarr.gpu.codecs.transfers import as_rows, copy_boxes
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.kernels.parts import Boxes, Shuffles
from tests.gpu.codecs.encoding import bytes_of, chunks_of, chunks_on

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


def test_chunks_that_lie_apart_become_rows() -> None:
    device = EmulatedDevice()
    chunks = chunks_on(device, chunks_of(99))
    apart = Chunks(chunks.owner, chunks.addresses[::2], 99)
    rows = as_rows(BatchContext(device), apart)
    assert np.array_equal(rows, chunks_of(99)[::2])
    assert bytes_of(BatchContext(device), chunks) == [row.tobytes() for row in chunks_of(99)]


@pytest.mark.parametrize("excluded", [(True,) * 3, (False, True, False), (False,) * 3])
@pytest.mark.parametrize("axes", [((64, 4, 4),), ((8, 4, 32), (8, 32, 4))])
def test_parts_with_lists_are_not_copied_but_left(
    axes: tuple[tuple[int, int, int], ...], excluded: tuple[bool, ...]
) -> None:
    """So parts with lists of indices go to another kernel, also if every part of a batch has one."""
    device = EmulatedDevice()
    source, target = np.arange(1, 193, dtype=np.uint32), np.zeros(192, np.uint32)
    starts = np.arange(3, dtype=np.int64) * 256
    counts, strides, steps = (
        np.repeat(np.array(column, np.int64)[:, None], 3, axis=1) for column in zip(*axes, strict=True)
    )
    boxes = Boxes(
        device.address(source) + starts, starts * 0, device.address(target) + starts, counts, strides, steps, 4
    )
    nbytes = np.full(3, 256, np.int64)
    shuffles = Shuffles(np.zeros(3, np.uint8), np.ones(3, np.int32), nbytes, nbytes)
    lists = np.where(excluded, 0, -1) * np.ones((len(axes), 1), np.int64)
    boxes = replace(boxes, source_lists=lists)
    left = copy_boxes(BatchContext(device), boxes, shuffles, (0, np.zeros(4, np.uint8)))
    assert left.tolist() == np.flatnonzero(excluded).tolist()
    assert [bool(part.all()) for part in target.reshape(3, 64)] == [not one for one in excluded]
    assert len(device.launches) == (not all(excluded))
