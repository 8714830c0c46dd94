"""Numbers objects that lie in several blocks: links between neighbours, and consecutive numbers in scan order.

Theory of operation. Blocks are labelled one by one, in any order and by several threads; their labels count from 1 in
each. A finished block leaves its *faces* for the neighbours that are not finished yet; whichever of two neighbours
comes later compares the faces and notes which labels are one object. When all blocks are finished, the objects are
ordered by their first voxel in scan order, as `scipy.ndimage.label` numbers those of a whole array.

Rules: nothing here reads or writes arrays. What is held counts against a limit, and one error says what it would take.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from math import lcm, prod
from typing import Any, TypeAlias

import numpy as np
from numcodecs import Blosc
from numpy.typing import NDArray

from gzarr.concurrency import new_lock
from gzarr.images.blocks import BlockGrid
from gzarr.indexing.keys import Coords
from gzarr.indexing.regions import Region
from gzarr.storage.extras import require

#: An axis, and its end: -1 for the low one, 1 for the high one.
Side: TypeAlias = tuple[int, int]
#: Pairs of labels, (n, 2) int64: those of one block, and those of its neighbour.
Pairs: TypeAlias = NDArray[np.int64]
#: (step to the neighbour, face of the block, face of the neighbour) -> pairs of labels that are one object.
Link: TypeAlias = Callable[[Coords, NDArray[Any], NDArray[Any]], Pairs]

#: The first voxel of a label without any in the result.
NOWHERE = np.iinfo(np.int64).max
#: More voxels make faces smaller by little, and use the caches worse.
MAX_VOXELS = 1 << 24
#: Voxels that are searched or renumbered at a time, so that intermediate results stay in cache.
RUN_VOXELS = 1 << 16
#: Bytes that a label takes until it has its number: its first voxel, the order of these, the number.
_LABEL_NBYTES = 40
#: Bytes that a pair takes until the objects are found.
_PAIR_NBYTES = 96
#: Bytes that a block takes: its place, the number of its labels, its packed faces beside their contents.
_BLOCK_NBYTES = 2048
#: So many pairs are not worth being reduced.
_MANY_PAIRS = 1 << 18


def choose_block(shape: Coords, cell: Coords, chunks: Coords, max_voxels: int) -> Coords:
    """Choose a block: a multiple of the cells that are written whole and, if they fit, of the chunks that are read.

    It is about as long as wide, which keeps faces small. At least a cell, however large. Returns: a shape.
    """
    both = tuple(max(min(lcm(*pair), extent), 1) for *pair, extent in zip(cell, chunks, shape, strict=True))
    base = both if prod(both) <= max_voxels else tuple(max(min(pair), 1) for pair in zip(cell, shape, strict=True))
    block = list(base)
    while growing := [axis for axis, extent in enumerate(shape) if block[axis] < extent]:
        axis = min(growing, key=lambda axis: (block[axis], -axis))
        # Whole multiples of the cell: twice as many, or all that there is.
        wider = min(2 * block[axis], shape[axis])
        if prod(block) // block[axis] * wider > min(max_voxels, MAX_VOXELS):
            break
        block[axis] = wider
    return tuple(block)


def shifts_by_step(structure: NDArray[np.bool_]) -> dict[Coords, tuple[Coords, ...]]:
    """For each step to a neighbouring block, the shifts from a voxel to a connected one that lead there.

    structure: (3, ..., 3), which neighbours of its centre are connected to it.
    """
    found: dict[Coords, list[Coords]] = {}
    for index in np.argwhere(structure):
        shift = tuple(int(i) - 1 for i in index)
        for step in itertools.product(*[(0, move) if move else (0,) for move in shift]):
            if any(step):
                found.setdefault(step, []).append(shift)
    return {step: tuple(shifts) for step, shifts in found.items()}


def touching(step: Coords, shifts: Iterable[Coords], mine: NDArray[Any], other: NDArray[Any]) -> Pairs:
    """Return pairs of labels that touch across the border of two blocks. mine, other: their faces, one voxel thick."""
    found = [np.empty((0, 2), np.int64)]
    for shift in shifts:
        here, there = zip(*itertools.starmap(_opposite, zip(step, shift, strict=True)), strict=True)
        pairs, _ = count_pairs(mine[here], other[there])
        found.append(pairs)
    return np.unique(np.concatenate(found), axis=0) if len(found) > 2 else found[-1]


def _opposite(step: int, shift: int) -> tuple[slice, slice]:
    """Which part of an axis of one face lies at which part of the other one."""
    ends = slice(0, 1), slice(-1, None)
    if step:
        return (ends[1], ends[0]) if step > 0 else ends
    if not shift:
        return slice(None), slice(None)
    most = slice(None, -1), slice(1, None)
    return most if shift > 0 else most[::-1]


def runs_of(*arrays: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where runs of equal elements begin in flat arrays of one size, and their lengths."""
    differs = reduce(np.logical_or, [array[1:] != array[:-1] for array in arrays])
    starts = np.flatnonzero(np.concatenate(([True], differs)))[: arrays[0].size]
    return starts, np.diff(np.append(starts, arrays[0].size))


def count_pairs(mine: NDArray[Any], other: NDArray[Any]) -> tuple[Pairs, NDArray[np.int64]]:
    """Return the pairs of labels that lie at the same places of two arrays, and how often; 0 is no label."""
    a, b = mine.reshape(-1), other.reshape(-1)
    both = np.flatnonzero((a != 0) & (b != 0))
    a, b = a[both].astype(np.int64), b[both].astype(np.int64)
    if not a.size:
        return np.empty((0, 2), np.int64), np.empty(0, np.int64)
    # Pairs come in runs: sorting these takes a small part of the time.
    starts, lengths = runs_of(a, b)
    codes, where = np.unique(a[starts] * (int(b.max()) + 1) + b[starts], return_inverse=True)
    counts = np.bincount(where, lengths, len(codes)).astype(np.int64)
    return np.stack(np.divmod(codes, int(b.max()) + 1), axis=1), counts


def first_places(labels: NDArray[np.int32], n: int) -> NDArray[np.int64]:
    """As `first_of_each` on the host, for labels that count in scan order."""
    flat, found = labels.reshape(-1), np.full(n + 1, NOWHERE)
    seen = 0
    for start in range(0, flat.size, RUN_VOXELS):
        if seen == n:
            break
        run = flat[start : start + RUN_VOXELS]
        later = np.flatnonzero(run > seen)
        if later.size:
            highest = np.maximum.accumulate(run[later])
            wanted = np.arange(seen + 1, highest[-1] + 1, dtype=run.dtype)
            seen = int(highest[-1])
            found[wanted] = start + later[np.searchsorted(highest, wanted)]
    return found


def first_of_each(xp: Any, labels: Any, n: int) -> Any:
    """Return where each of the labels 0 to n occurs first: indices of the flat array, `NOWHERE` for 0 and those absent.

    labels: on the host or a device, as is what is returned: int64, or uint64, whose atomics all CuPys have.
    """
    flat = labels.reshape(-1)
    if xp is np:  # labels come in runs: sorting these takes a small part of the time
        found, (starts, _) = np.full(n + 1, NOWHERE), runs_of(flat)
        values, first = np.unique(flat[starts], return_index=True)
        found[values] = starts[first]
    else:
        found = xp.full(n + 1, NOWHERE, np.uint64)
        xp.minimum.at(found, flat, xp.arange(flat.size, dtype=np.uint64))
    found[0] = NOWHERE
    return found


def places_in(shape: Coords, region: Region, places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return indices of the flat array for indices of a flat region of it, or `NOWHERE`. shape: of the array."""
    extents = [part.stop - part.start for part in region]
    there = places != NOWHERE
    found, rest = np.zeros(places.shape, np.int64), places.astype(np.int64)
    for axis in reversed(range(len(shape))):
        rest, at = np.divmod(rest, extents[axis])
        found += (at + region[axis].start) * prod(shape[axis + 1 :])
    return np.where(there, found, NOWHERE)


def merge(n: int, firsts: NDArray[np.int64], pairs: Pairs) -> tuple[NDArray[np.int64], int]:
    """Number objects by their first voxels.

    n: of labels. firsts: int64 (n,), the first voxel of each label, or `NOWHERE`; changed. pairs: of labels, from 0,
    that are one object. Returns: the number of each label, from 1 (0 for objects without voxels), and of objects.
    """
    if len(pairs):
        labels, groups = _grouped(pairs)
        lowest = np.full(int(groups.max()) + 1, NOWHERE)
        np.minimum.at(lowest, groups, firsts[labels])
        firsts[labels] = lowest[groups]
    order = np.argsort(firsts)
    sorted_firsts = firsts[order]
    new = np.concatenate(([True], sorted_firsts[1:] != sorted_firsts[:-1])) & (sorted_firsts != NOWHERE)
    counted = np.cumsum(new[:n])
    count = int(counted[-1]) if n else 0
    counted[sorted_firsts == NOWHERE] = 0
    numbers = np.empty(n, np.int64)
    numbers[order] = counted
    return numbers, count


def _grouped(pairs: Pairs) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the labels that occur in pairs, and the group that each belongs to."""
    csgraph = require("scipy.sparse.csgraph", "ome", "the merging of labels")
    sparse = require("scipy.sparse", "ome", "the merging of labels")
    labels, ends = np.unique(pairs, return_inverse=True)
    ends = ends.reshape(-1, 2)
    graph = sparse.coo_array((np.ones(len(ends), bool), (ends[:, 0], ends[:, 1])), shape=(len(labels),) * 2)
    groups: NDArray[np.int32] = csgraph.connected_components(graph, directed=False)[1]
    return labels, groups


def _reduced(pairs: Pairs) -> Pairs:
    """Return fewer pairs that make the same groups: each label with the first one of its group."""
    labels, groups = _grouped(pairs)
    heads = np.full(int(groups.max()) + 1, NOWHERE)
    np.minimum.at(heads, groups, labels)
    others = labels != heads[groups]
    return np.stack((labels[others], heads[groups][others]), axis=1)


#: Labels come in runs of whole elements: without a shuffle they are half as large, and packed three times as fast.
_blosc = Blosc(cname="lz4", clevel=5, shuffle=Blosc.NOSHUFFLE)


def pack(labels: NDArray[Any]) -> tuple[bytes, Coords, np.dtype[Any]]:
    """Compress labels."""
    return _blosc.encode(np.ascontiguousarray(labels)), labels.shape, labels.dtype


def unpack(packed: tuple[bytes, Coords, np.dtype[Any]]) -> NDArray[Any]:
    """Return the labels that were compressed."""
    encoded, shape, dtype = packed
    return np.frombuffer(_blosc.decode(encoded), dtype).reshape(shape)


def look_up(xp: Any, table: NDArray[Any], labels: Any) -> Any:
    """Return the entries of a table, run by run on the host: indices are converted to 64 bits there."""
    if not isinstance(labels, np.ndarray):
        return xp.asarray(table)[labels]
    found = np.empty(labels.shape, table.dtype)
    indices, flat = labels.reshape(-1), found.reshape(-1)
    for start in range(0, flat.size, RUN_VOXELS):
        part = slice(start, start + RUN_VOXELS)
        np.take(table, indices[part], out=flat[part], mode="clip")
    return found


def side_of(step: Coords) -> Side:
    """The face in which the voxels lie that a step leads across."""
    return next((axis, move) for axis, move in enumerate(step) if move)


def face_of(labels: Any, side: Side, depth: int = 1) -> Any:
    """Return so many planes of a block at one of its ends."""
    axis, end = side
    return labels[(slice(None),) * axis + (slice(-depth, None) if end > 0 else slice(depth),)]


class BlockObjects:
    """What is known of the objects of an array while its blocks are labelled. Blocks may be added by several threads.

    Parameters
    ----------
    blocks : Blocks
        The grid.
    steps : sequence of tuple
        Steps to the neighbours that are compared, each with its opposite.
    link : callable
        Compares the faces of two neighbours.
    limit_nbytes : int
        Bytes that all of this may take.

    Attributes
    ----------
    nbytes : int
        Bytes taken so far, and by numbering what is known.
    """

    def __init__(self, blocks: BlockGrid, steps: Sequence[Coords], link: Link, limit_nbytes: int) -> None:
        self._blocks, self._steps, self._link, self._limit = blocks, steps, link, limit_nbytes
        self._lock = new_lock()
        self._done: dict[Coords, tuple[int, int]] = {}  # first label, number of labels
        self._firsts: list[NDArray[np.int64]] = []
        self._pairs: list[Pairs] = []
        self._faces: dict[tuple[Coords, Side], list[Any]] = {}  # [packed, how many neighbours need it]
        self._kept: dict[Coords, Any] = {}
        self._n = self._npairs = self._reduced_to = 0
        self.nbytes = 0

    def add(self, coords: Coords, firsts: NDArray[np.int64], faces: Mapping[Side, NDArray[Any]]) -> None:
        """Take a block that was labelled.

        firsts: first voxel of each label from 0, an index of the whole flat array or `NOWHERE`. faces: labels, on the
        host. Raises: ValueError if the limit is too low.
        """
        packed = {side: pack(face) for side, face in faces.items()}
        with self._lock:
            offset = self._n
            self._n += len(firsts)
            self.nbytes += _LABEL_NBYTES * len(firsts) + _BLOCK_NBYTES
            self._firsts.append(firsts)
            self._done[coords] = offset, len(firsts)
            waiting = [*self._meet(coords, packed)]
        for step, other_offset, other in waiting:
            pairs = self._link(step, faces[side_of(step)], unpack(other))
            if len(pairs):
                self._note(pairs + np.array([offset, other_offset]))
        self._check()

    def _meet(self, coords: Coords, packed: Mapping[Side, Any]) -> Iterator[tuple[Coords, int, Any]]:
        """Yield faces of finished neighbours; leave the block's own for those that are not."""
        for step in self._steps:
            other = self._blocks.neighbour(coords, step)
            if other is None:
                continue
            if other not in self._done:
                held = self._faces.setdefault((coords, side_of(step)), [packed[side_of(step)], 0])
                held[1] += 1
                self.nbytes += len(held[0][0]) * (held[1] == 1)
                continue
            key = other, side_of(tuple(-move for move in step))
            held = self._faces[key]
            held[1] -= 1
            if not held[1]:
                del self._faces[key]
                self.nbytes -= len(held[0][0])
            yield step, self._done[other][0], held[0]

    def _note(self, pairs: Pairs) -> None:
        with self._lock:
            self._pairs.append(pairs)
            self._npairs += len(pairs)
            if self._npairs > 2 * self._reduced_to + _MANY_PAIRS:
                self._pairs = [_reduced(np.concatenate(self._pairs))]
                self.nbytes -= _PAIR_NBYTES * (self._npairs - len(pairs) - len(self._pairs[0]))
                self._npairs = self._reduced_to = len(self._pairs[0])
            else:
                self.nbytes += _PAIR_NBYTES * len(pairs)

    def _check(self) -> None:
        with self._lock:
            while self._kept and self.nbytes > self._limit:
                self.nbytes -= len(self._kept.popitem()[1][0])
        if self.nbytes > self._limit:
            done, n = len(self._done), len(self._blocks)
            raise ValueError(
                f"max_nbytes is too low: after {done} of {n} blocks, tables of {self._n} labels take {self.nbytes} "
                f"bytes of the {self._limit} that they may; give about {4 * self.nbytes * n // done}"
            )

    def keep(self, coords: Coords, labels: NDArray[Any]) -> None:
        """Keep the labels of a block, compressed, if there is room: it need not be labelled again."""
        packed = pack(labels)
        with self._lock:
            if self.nbytes + len(packed[0]) <= self._limit // 2:
                self._kept[coords] = packed
                self.nbytes += len(packed[0])

    def kept(self, coords: Coords) -> NDArray[Any] | None:
        """The labels of a block that was kept, once; None for others."""
        with self._lock:
            packed = self._kept.pop(coords, None)
            self.nbytes -= 0 if packed is None else len(packed[0])
        return None if packed is None else unpack(packed)

    def number(self) -> tuple[NDArray[np.int64], int]:
        """Number the objects, when all blocks were added. Returns: the `span` of each block, and how many there are."""
        firsts = np.concatenate([np.empty(0, np.int64), *self._firsts])
        self._firsts.clear()
        pairs = np.concatenate([np.empty((0, 2), np.int64), *self._pairs])
        self._pairs.clear()
        return merge(self._n, firsts, pairs)

    def span(self, coords: Coords) -> slice:
        """Where the numbers of the labels of a block lie, from that of label 0, the background."""
        offset, n = self._done[coords]
        return slice(offset, offset + n)
