"""Places copies of chunks in slots: every chunk of a wave is decoded once, and each of its copies has a descriptor.

Columns of a `CopyPlan` become columns of the tables of the copy kernels. A chunk that is copied once and as a whole is
decoded straight into its slot, if it is contiguous there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gzarr.backend import Array
from gzarr.gpu.codecs.batch import Wave
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.pipeline.launching import Copies, Decoded, launch_copies, without_placed
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.indexing.copies import CopyPlan
from gzarr.indexing.plan import Part

#: Device memory for the descriptor of a copy, and what is taken to make it.
_COPY_NBYTES = 256


class Blocks(NamedTuple):
    """The memory of the slots of a `CopyPlan`.

    Attributes
    ----------
    addresses : Table
        int64 (blocks,).
    strides : Table
        int64 (blocks, 1 + ndim), in bytes.
    dtype : np.dtype
        Of all blocks.
    """

    addresses: Table
    strides: Table
    dtype: np.dtype[np.generic]


class CopyTarget:
    """Where the copies of a plan go.

    Parameters
    ----------
    device : Device
        Where the blocks are.
    decoding : DevicePlan
        How chunks are decoded.
    plan : CopyPlan
        The copies.
    blocks : sequence of Array
        The memory of the slots.
    """

    def __init__(self, device: Device, decoding: DevicePlan, plan: CopyPlan, blocks: Sequence[Array]) -> None:
        self._plan = plan
        addresses, strides = [device.address(block) for block in blocks], [block.strides for block in blocks]
        self._blocks = Blocks(np.array(addresses, np.int64), np.array(strides, np.int64), blocks[0].dtype)
        self._direct = self._find_direct(decoding)

    def direct(self, numbers: Table, spans: object) -> Table | None:
        """The addresses to which some chunks are to be decoded, 0 for none; None if there are none."""
        return None if self._direct is None else self._direct[numbers]

    def later_nbytes(self, numbers: Table) -> int:
        """Device memory that the tables of the copies of some chunks take."""
        firsts = self._plan.firsts
        return _COPY_NBYTES * int((firsts[numbers + 1] - firsts[numbers]).sum())

    def place(self, wave: Wave, decoding: DevicePlan, decoded: Decoded, numbers: Table, spans: object) -> int:
        """Launch the copies of what decoders did not put into slots. Returns: bytes of all copies."""
        decoded, left, nbytes = without_placed(decoded, numbers.size)
        numbers = numbers[left]
        if not numbers.size:
            return nbytes
        copies = self._copies(numbers)
        launch_copies(wave, decoding, decoded, copies, self._blocks.dtype)
        return nbytes + int(np.prod(copies.counts, axis=0).sum()) * self._blocks.dtype.itemsize

    def parts(self, numbers: Table, spans: object) -> Iterator[Part]:
        """Some chunks with their copies, as the reference path has them."""
        return map(self._plan.part, numbers.tolist())

    def _copies(self, numbers: Table) -> Copies:
        """All copies of some chunks."""
        plan, blocks = self._plan, self._blocks
        first = plan.firsts[numbers]
        n = plan.firsts[numbers + 1] - first
        owner = np.repeat(np.arange(numbers.size), n)
        rows = np.arange(owner.size) + np.repeat(first - (np.cumsum(n) - n), n)
        block, row = np.divmod(plan.slots[rows], plan.rows)
        strides, place = blocks.strides[block].T, plan.place[rows].T
        target = blocks.addresses[block] + row * strides[0] + (place * strides[1:]).sum(axis=0)
        return Copies(owner, plan.inside[rows].T, plan.counts[rows].T, target, strides[1:])

    def _find_direct(self, decoding: DevicePlan) -> Table | None:
        """The slot of each chunk that is copied once, as a whole, to memory that is like its own."""
        plan, blocks = self._plan, self._blocks
        if not decoding.ends_in_streams or blocks.dtype != decoding.stored:
            return None
        shape, itemsize = np.array(decoding.chunk.shape, np.int64), decoding.stored.itemsize
        own = np.array(decoding.strides, np.int64) * itemsize
        fits = ((blocks.strides[:, 1:] == own) | (shape == 1)).all(axis=1)
        first = plan.firsts[:-1]
        whole = (np.diff(plan.firsts) == 1) & (plan.counts[first] == shape).all(axis=1)
        whole &= fits[plan.slots[first] // plan.rows]
        if not whole.any():
            return None
        direct = np.zeros(len(whole), np.int64)
        numbers = np.flatnonzero(whole)
        direct[numbers] = self._copies(numbers).target
        return direct


def plan_of(parts: Sequence[Part], block: Sequence[int]) -> CopyPlan:
    """The copies of chunks that the reference path has as parts (`CopyPlan.part`). block: shape of the blocks."""
    rows, *size = block
    copies = [copy for part in parts for copy in part.out]
    inside = np.array([[(axis.start, axis.stop) for axis in copy.inside] for copy in copies], np.int64)
    place = np.array([[axis.start for axis in copy.at[1:]] for copy in copies], np.int64)
    slots = np.array([copy.block * rows + copy.at[0] for copy in copies], np.int64)
    firsts = np.cumsum([0, *(len(part.out) for part in parts)])
    coords = np.array([part.coords for part in parts], np.int64)
    counts = inside[..., 1] - inside[..., 0]
    return CopyPlan(coords, firsts, inside[..., 0], counts, place, slots, (0, *size), rows, ())
