"""Compares what a contestant wrote, element by element, with what is right; TensorStore reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.images.contestants import Job
from benchmarks.images.data import filtered, level
from benchmarks.images.operations import WHOLE, right

BLOCK = 64 << 20  # bytes that are compared at once


def compared(job: Job, paths: list[str]) -> dict[str, Any]:
    """What the values are: "equal", "equal to each from level 0" for a pyramid, or how far off they are.

    Raises: AssertionError if level 0, a shape or a type is wrong.
    """
    source = job.case.source
    stored = [opened(job.out / path) for path in paths]
    if job.case.work == "gaussian":
        return {"values": verdict(difference(stored[0], filtered(job.cache, source)))}
    if job.case.work in WHOLE:
        expected = right(job.cache, job.case)
        plane = stored[0][(0,) * (stored[0].rank - expected.ndim)]  # some write images with axes of time and channels
        return {"values": verdict_of(plane, expected)}
    assert len(stored) == source.levels + 1, f"{len(stored)} levels, not {source.levels + 1}"
    first = difference(stored[0], level(job.cache, source, 0, 0))
    assert first["different"] == 0, f"level 0 differs from the image in {first['different']} elements"
    above = range(1, source.levels + 1)
    steps = [difference(stored[number], level(job.cache, source, number, number - 1)) for number in above]
    if all(each["different"] == 0 for each in steps):
        return {"values": "equal"}
    if all(difference(stored[number], level(job.cache, source, number, 0))["different"] == 0 for number in above):
        return {"values": "equal to each from level 0"}
    return {"values": f"level 1: {verdict(steps[0])}; level {source.levels}: {verdict(steps[-1])}"}


def verdict_of(stored: Any, expected: Any) -> str:
    """A difference in words; objects may have other numbers, one for one."""
    found = verdict(difference(stored, expected))
    if found != "equal" and expected.dtype.kind == "i":
        pairs = np.unique(stored.read().result().astype("i8") << 32 | expected)
        if len(np.unique(pairs >> 32)) == len(np.unique(pairs & 0xFFFFFFFF)) == len(pairs):
            return "equal but for the order of numbers"
    return found


def verdict(found: dict[str, Any]) -> str:
    """A difference in words."""
    if not found["different"]:
        return "equal"
    return f"off by {found['mean']:+.2f} on average, at most {found['most']:.0f}"


def difference(stored: Any, right: Any) -> dict[str, Any]:
    """How many elements differ, the mean difference, and the greatest. Raises: AssertionError for shape and type."""
    assert stored.shape == right.shape, f"a shape is {stored.shape}, not {right.shape}"
    assert stored.dtype.numpy_dtype == right.dtype, f"a type is {stored.dtype.numpy_dtype}, not {right.dtype}"
    step = max(1, BLOCK * len(right) // right.nbytes // 64 * 64)
    different, total, most = 0, 0.0, 0.0
    for low in range(0, len(right), step):
        want = right[low : low + step]
        mine = stored[low : low + len(want)].read().result()
        if not np.array_equal(mine, want):
            off = mine.astype("f4") - want
            different += int(np.count_nonzero(off))
            total, most = total + float(off.sum(dtype="f8")), max(most, float(np.abs(off).max()))
    return {"different": different, "mean": total / right.size, "most": most}


def opened(path: Path) -> Any:
    """An array of either format."""
    import tensorstore as ts

    driver = "zarr3" if (path / "zarr.json").exists() else "zarr"
    return ts.open({"driver": driver, "kvstore": f"file://{path}/"}, read=True).result()
