"""Decides whether the device does a read or a write in pieces, and says why the reference path has to if it does not.

Conditions on the array alone (its chain, layout and store) are checked at the first read or write and then remembered.
Conditions on the selection, the values and the settings are checked every time.
"""

from __future__ import annotations

from typing import NamedTuple

from gzarr.backend import Array, Fields, PieceJob, Placement
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.indexing.plan import Plan
from gzarr.layout.chunk_layout import Layout
from gzarr.storage.base import Store

#: Why no read, or write, is done in pieces.
_NOT_YET = "chunks are handled one by one"


class Chunked(NamedTuple):
    """An array: where its chunks are, and how the device decodes and encodes them.

    Attributes
    ----------
    store, layout
        Where the chunks are.
    plan : DevicePlan or None
        Of all chunks; None if they differ in shape.
    cached : bool
        Whether decoded chunks are cached, so that reads go to the cache.
    """

    store: Store
    layout: Layout
    plan: DevicePlan | None
    cached: bool


class DeviceJobs:
    """Decides which reads and writes of one array the device does in pieces.

    Parameters
    ----------
    device : str
        Name of the device.
    array : Chunked
        The array.
    """

    __slots__ = ("_array", "_device")

    def __init__(self, device: str, array: Chunked) -> None:
        self._device, self._array = device, array

    def take_read(self, plan: Plan, nparts: int, out: Array, fields: Fields) -> PieceJob | str:
        """Return a read in pieces, or the reason why the reference path has to do it. nparts: of the plan."""
        return self._read_obstacle()

    def take_write(self, plan: Plan, nparts: int, value: Array, fields: Fields, *, keep_empty: bool) -> PieceJob | str:
        """Return a write in pieces, or the reason why the reference path has to do it.

        nparts: of the plan. keep_empty: as in `Backend.merge_and_encode`.
        """
        return self._write_obstacle()

    def placement(self) -> tuple[Placement, ...]:
        """Say what reads and writes many chunks, and why."""
        return tuple(
            Placement(step, self._device, f"by the reference path: {why}" if why else "in pieces, by tables")
            for step, why in (("bulk reads", self._read_obstacle()), ("bulk writes", self._write_obstacle()))
        )

    def _read_obstacle(self) -> str:
        return _NOT_YET

    def _write_obstacle(self) -> str:
        return _NOT_YET
