"""Where the frames of a growing image lie, and the rows that they are gathered in."""

from __future__ import annotations

import time

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.errors import SelectionError
from gzarr.images.acquisition.growing import GrowingImage
from gzarr.indexing.keys import Coords


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
