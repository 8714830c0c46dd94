"""An image that grows along its first axis: where frames lie, and all levels, written from rows of them.

Theory of operation. A *row* is as many frames as stored objects and windows of level 0 hold along the first axis. A
`Cascade` takes rows and writes all levels. Chunks come first, then the shapes of the arrays, so that readers
see whole frames only. Levels that join frames are behind level 0 until the end, so the metadata name them then:
if the program is killed, the image has fewer levels, and all that it has is there.
"""

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend
from gzarr.concurrency import new_lock
from gzarr.errors import SelectionError
from gzarr.hierarchy.array import Array
from gzarr.images.image import Image
from gzarr.images.ome.documents import write_multiscale
from gzarr.images.pyramid.building import naming, plan
from gzarr.images.pyramid.cascade import Cascade
from gzarr.images.pyramid.level_arrays import create_level, level_array
from gzarr.images.pyramid.levels import PyramidLevel
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.shown import show_values
from gzarr.images.tasks import run_tasks
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region
from gzarr.metadata.documents import write_shape

#: Extent of the first axis while its end is unknown.
_ENDLESS = 1 << 30
#: A row is cut into so many blocks, which threads share.
_BLOCKS = 16


class GrowingImage:
    """An image of which the frames come one after the other.

    Attributes
    ----------
    image : Image
        The image as others see it: of the frames that are shown.
    row : int
        How many frames are written together.
    count : int
        How many frames are complete.
    """

    def __init__(self, image: Image, recipe: Recipe, expected: int) -> None:
        """Create the levels of an image that has one, without frames. expected: how many frames to plan levels for."""
        self.image = image
        base = image.levels[0]
        self._method, missing, self._planned = plan(_resized(base, max(expected, 1)), image.metadata, recipe)
        arrays = [base, *(level_array(image.group, base, _without_frames(level)) for level in self._planned)]
        for array in arrays[1:]:
            create_level(array, overwrite=False)
        steps = [level.factors for level in self._planned]
        self._levels = arrays
        endless = [_resized(array, _ENDLESS) for array in arrays]
        self._cascade = Cascade(endless, steps, self._method, backend=self.backend, missing=missing)
        self.row = self._cascade.unit[0]
        # Levels without an end in common with level 0 are shown at the end of all.
        together = itertools.accumulate((step[0] for step in steps), lambda a, b: a * b)
        in_step = [
            f == 1 and self.row % cells[0] == 0 for f, cells in zip(together, self._cascade.cells[1:], strict=True)
        ]
        self._n_live = 1 + len(list(itertools.takewhile(bool, in_step)))
        self._lock = new_lock()
        self._done: set[int] = set()
        self.count = self._shown = 0
        self._name_levels(self._n_live)

    @property
    def backend(self) -> Backend:
        """The backend of the frames' device."""
        return self.image.levels[0].backend

    @property
    def frame_shape(self) -> Coords:
        """Shape of a frame."""
        return self.image.levels[0].shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the frames."""
        return self.image.levels[0].dtype

    @property
    def row_nbytes(self) -> int:
        """Bytes of a row."""
        return self.row * math.prod(self.frame_shape) * self.dtype.itemsize

    @property
    def pending_nbytes(self) -> int:
        """Bytes of upper levels that wait for more rows."""
        return self._cascade.pending_nbytes

    def write(self, number: int, frames: AnyArray) -> None:
        """Write a row, in any order. On a device, the current stream waits for it. Raises: StoreError."""

        def put(region: Region) -> None:
            start = (number * self.row, *(part.start for part in region))
            self._cascade.put(start, frames[(slice(None), *region)])

        regions = _cut(self.frame_shape, self._cascade.unit[1:])
        if len(regions) == 1:  # whose chunks threads share
            put(regions[0])
        else:
            run_tasks(self.backend, put, regions, n_items=len(regions), cost_nbytes=0, max_nbytes=1)
        with self._lock:
            self._done.add(number)
            while self.count // self.row in self._done:
                self._done.discard(self.count // self.row)
                self.count += self.row

    def show(self) -> None:
        """Let others see the frames that are complete."""
        with self._lock:
            count = min(self.count, self._cascade.levels[0].shape[0])
            if self._shown < count:
                for level in self._levels[: self._n_live]:
                    _show(level, count)
                self._shown = count

    def end(self, count: int, last: AnyArray) -> None:
        """Write the frames that are no whole row, and show all frames in all levels."""
        factors = (level.factors[0] for level in self._planned)
        ends = list(itertools.accumulate(factors, lambda n, f: -(-n // f), initial=count))
        self._cascade.levels = tuple(map(_resized, self._levels, ends))
        if len(last):
            self.write(count // self.row, last)
        self._cascade.finish()
        for level, end in zip(self._levels, ends, strict=True):
            _show(level, end)
        self.count = self._shown = count
        self._name_levels(len(self._levels))
        self.image = show_values(self.image)

    def _name_levels(self, count: int) -> None:
        """Write the metadata of the first levels."""
        added = self._planned[: count - 1]
        named = naming(self.image.metadata, self._method, added)
        if named != self.image.metadata:
            write_multiscale(self.image.group, named)
        self.image = replace(self.image, metadata=named, levels=tuple(self._levels[: len(added) + 1]))


def _resized(array: Array, count: int) -> Array:
    """An array of another number of frames, which is not stored."""
    meta = array.metadata.resized((count, *array.shape[1:]))
    return array._with(meta, read_only=False, is_view=True)  # noqa: SLF001 - of the same package


def _show(array: Array, count: int) -> None:
    """Let others see so many frames."""
    before = array.metadata
    if before.shape[0] != count:  # `Array.resize` would clear what is written already
        write_shape(array.store, array.path, before.resized((count, *before.shape[1:])), before)
        array.refresh()


def _without_frames(level: PyramidLevel) -> PyramidLevel:
    return level._replace(shape=(0, *level.shape[1:]))


def _cut(shape: Coords, unit: Coords) -> Sequence[Region]:
    """Cut a frame along one axis into some blocks of whole units."""
    counts = [-(-n // u) for n, u in zip(shape, unit, strict=True)]
    axis = counts.index(max(counts))
    step = unit[axis] * -(-counts[axis] // _BLOCKS)
    return [
        tuple(slice(low, min(low + step, n)) if a == axis else slice(0, n) for a, n in enumerate(shape))
        for low in range(0, shape[axis], step)
    ]


# -- frames ------------------------------------------------------------------------------------------------------------


class FrameRow:
    """Frames that are written together, and which of their planes have come."""

    def __init__(self, buffer: AnyArray, planes: Coords) -> None:
        self.buffer = buffer
        self.present = np.zeros(planes, bool)
        self.marks: list[object] = []


class WriterPosition:
    """One of the images that are written."""

    def __init__(self, image: GrowingImage) -> None:
        self.image = image
        self.rows: dict[int, FrameRow] = {}
        self.handed: set[int] = set()
        #: How many frames have come of each plane.
        self.counts = np.zeros(image.frame_shape[:-2], np.int64)
        self.shown_s = time.monotonic()


def place_of(where: WriterPosition, shape: Coords, index: dict[str, int | str]) -> tuple[int, Coords]:
    """Where a frame lies: its number, and its indices on the axes that it lacks. Raises SelectionError, ValueError."""
    image = where.image
    frame, axes = image.frame_shape, image.image.axes
    n_inner = len(frame) - len(shape)
    if not 0 <= n_inner <= len(frame) - 2 or tuple(shape) != frame[n_inner:]:
        raise ValueError(f"a frame of shape {tuple(shape)}: expected {frame}, or its last axes, two or more")
    names = axes[: n_inner + 1]
    unknown = [name for name in index if name not in names]
    if unknown:
        raise SelectionError(f"axis {unknown[0]!r}: expected one of those that the frame lacks, {names}")
    counts = where.counts.reshape(*frame[:n_inner], -1).max(axis=-1, initial=0) if n_inner else where.counts.max()
    chosen = {name: _number(image, name, value) for name, value in index.items()}
    if n_inner and not any(name in chosen for name in names[1:]):
        inner = tuple(int(n) for n in np.unravel_index(int(np.argmin(counts)), counts.shape))
    else:
        lacking = [name for name in names[1:] if name not in chosen]
        if lacking:
            raise SelectionError(f"axis {lacking[0]!r}: say where the frame lies on it, too")
        inner = tuple(chosen[name] for name in names[1:])
    return chosen.get(names[0], int(counts[inner])), inner


def _number(image: GrowingImage, name: str, value: int | str) -> int:
    """An index on an axis, as it was given. Raises SelectionError."""
    axis = image.image.axes.index(name)
    if isinstance(value, str):
        labels = [channel.label for channel in image.image.channels]
        if image.image.metadata.axes[axis].type != "channel" or value not in labels:
            raise SelectionError(f"{name}={value!r}: the channels are {labels}")
        return labels.index(value)
    if value < 0 or (axis and value >= image.frame_shape[axis - 1]):
        raise SelectionError(f"{name}={value}: expected 0 to {image.frame_shape[axis - 1] - 1 if axis else '...'}")
    return int(value)
