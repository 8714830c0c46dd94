"""Makes the descriptors of the fast copies: which parts of a batch can take them, cut into which units.

A part is a box of elements, each axis of which goes through the source and through the target with strides of its own.
Axes that follow each other in both memories are joined, first into one run of bytes, then into levels, of which there
may be three. Units are as wide as the addresses, runs and strides of a part allow, at most 16 bytes; of a shuffled
chunk, they are a power of two of items. Everything is arithmetic on whole columns, one entry for each part.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.gpu.kernels import BIT_SHUFFLED, BYTE_SHUFFLED, PLAIN
from gzarr.gpu.kernels.sources import UNIT_NBYTES

#: Levels of a descriptor, and its 32-bit words; see parts.cuh.
MAX_LEVELS, PART_WORDS = 3, 44
#: Units that a block of threads copies, four for each thread; see rows.cuh.
BLOCK_UNITS = 1024
#: Elements along each side of a tile of copy_tiles, and fewest along the axes of a part that is worth tiles.
TILE_SIDE, _LEAST_SIDE = 32, 8
#: Parts of a chunk that are smaller are not worth unshuffling all of it.
_UNSHUFFLED_SHARE = 8
#: Numbers of units are below this.
_LIMIT = 1 << 31

Column = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """Parts to copy.

    Attributes
    ----------
    source : Column
        int64 (n,), address of each part's chunk, or of whatever ``start`` counts from; 0 if the chunk is missing.
    start : Column
        int64 (n,), bytes from there to the first element.
    target : Column
        int64 (n,), address of the first element in the target.
    counts : Column
        int64 (axes, n), elements along each axis; the last axis is the innermost one of the target.
    source_strides, target_strides : Column
        int64 (axes, n), bytes from one element to the next.
    nbytes : int
        Bytes of an element.
    source_lists, target_lists : Column or None
        int64 (axes, n), where the index list of an axis begins, whose indices the strides are of; -1, or None, for
        none. Fast kernels do not take parts with lists.
    """

    source: Column
    start: Column
    target: Column
    counts: Column
    source_strides: Column
    target_strides: Column
    nbytes: int
    source_lists: Column | None = None
    target_lists: Column | None = None

    @property
    def listed(self) -> NDArray[np.bool_]:
        """Which parts have an index list."""
        listed = np.zeros(self.source.size, np.bool_)
        for lists in (self.source_lists, self.target_lists):
            if lists is not None:
                listed |= (lists >= 0).any(axis=0)
        return listed

    def take(self, which: NDArray[np.intp]) -> Boxes:
        """Some of the parts."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return Boxes(**{name: value if np.ndim(value) == 0 else value[..., which] for name, value in columns.items()})


class Shuffles(NamedTuple):
    """How the chunks of parts are shuffled, as in `gzarr.gpu.codecs.batch.Shuffle`, and their bytes."""

    mode: NDArray[np.uint8]
    typesize: NDArray[np.int32]
    blocksize: Column
    nbytes: Column

    def take(self, which: NDArray[np.intp]) -> Shuffles:
        """Those of some parts."""
        return Shuffles(self.mode[which], self.typesize[which], self.blocksize[which], self.nbytes[which])


@dataclass(slots=True, eq=False)
class Levels:
    """The axes of parts after joining: bytes of a run, and (levels, n) counts and strides; `n` of them are used."""

    run: Column
    n: Column
    counts: Column
    source: Column
    target: Column


class Descriptors(NamedTuple):
    """Parts that a fast kernel copies.

    Attributes
    ----------
    table : NDArray[np.uint32]
        uint32 (n, PART_WORDS), one descriptor for each part.
    mode : NDArray[np.int64]
        int64 (n,), PLAIN, BYTE_SHUFFLED or BIT_SHUFFLED; -1 for parts that no fast kernel can copy.
    """

    table: NDArray[np.uint32]
    mode: NDArray[np.int64]


class Shuffling(NamedTuple):
    """How all chunks of a batch are to be shuffled; see `Shuffles`."""

    mode: int
    typesize: int
    blocksize: int


class Items(NamedTuple):
    """The last arguments of shuffle_items."""

    kind: int
    per_chunk: int
    chunk_magic: int
    chunk_shift: int
    per_block: int
    block_magic: int
    block_shift: int


def divisors(numbers: Column) -> tuple[Column, Column]:
    """Magic numbers and shifts of divisions by numbers >= 1; see parts.cuh."""
    shift = np.frexp(numbers.astype(np.float64))[1].astype(np.int64) - 1
    return ((np.int64(1) << (32 + shift)) - 1) // numbers, shift


def describe(boxes: Boxes, shuffles: Shuffles, swap_unit: int) -> Descriptors:
    """Make the descriptors of parts. swap_unit: bytes of the numbers whose order is reversed, or 0."""
    missing = boxes.source == 0  # may be read in any order
    levels = _joined(replace(boxes, source_strides=np.where(missing, boxes.target_strides, boxes.source_strides)))
    levels.source[:, missing] = 0
    mode, items = _shuffling(shuffles, missing)
    width, log_items = _units(boxes, levels, shuffles, (mode, items))
    fits = (width >= max(swap_unit, 1)) & (levels.n <= MAX_LEVELS)
    fits &= ~missing | ((width >= boxes.nbytes) & (UNIT_NBYTES % boxes.nbytes == 0))
    width = np.maximum(width, 1)
    total = levels.run // width * np.prod(levels.counts, axis=0)
    extents = [_extent(levels, strides) // width < _LIMIT for strides in (levels.source, levels.target)]
    repeats = (levels.counts > 1) & (levels.target == 0)
    fits &= (total < _LIMIT) & extents[0] & extents[1] & ~repeats.any(axis=0)
    # Where each item of a large part would be loaded alone, the chunk is unshuffled first.
    across = ((boxes.counts > 1) & (np.abs(boxes.source_strides) == boxes.nbytes)).any(axis=0)
    alone = (mode != PLAIN) & across & (levels.run == boxes.nbytes)
    alone |= (mode == BIT_SHUFFLED) & (log_items < 3) & (levels.run < shuffles.nbytes)
    fits &= ~alone | (_UNSHUFFLED_SHARE * total * width < shuffles.nbytes)
    kind = np.where(mode == PLAIN, log_items, 8 * _log2(shuffles.typesize) + log_items)
    table = _table(boxes, levels, (mode, kind, width, total, missing))
    _add_blocks(table, boxes, shuffles, items)
    return Descriptors(table, np.where(fits, mode, -1))


def describe_tiles(boxes: Boxes, shuffles: Shuffles, swap_unit: int) -> Descriptors | None:
    """Make the descriptors of copy_tiles: of parts of plain elements that lie across in the source; None for none.

    Where an axis is contiguous in both memories, or few elements are next to each other in one, `describe` is better.
    """
    size = boxes.nbytes
    # The strides of the axes are about the same for all parts, so the first one tells which axes to look at.
    inner = np.flatnonzero(np.all(np.abs(boxes.source_strides[:, :1]) == size, axis=1))
    outer = np.flatnonzero(np.all(np.abs(boxes.target_strides[:, :1]) == size, axis=1))
    if size not in (1, 2, 4, 8, 16) or swap_unit > size or not (inner.size and outer.size):
        return None
    across, down = int(inner[0]), int(outer[0])
    if across == down:
        return None
    fits = (boxes.counts[across] >= _LEAST_SIDE) & (boxes.counts[down] >= _LEAST_SIDE)
    fits &= (boxes.source_strides[across] == size) & (boxes.target_strides[down] == size)
    fits &= (boxes.source != 0) & (_shuffling(shuffles, boxes.source == 0)[0] == PLAIN)
    if not fits.any():
        return None
    others = [axis for axis in range(len(boxes.counts)) if axis not in (across, down)]
    strides = boxes.source_strides[others], boxes.target_strides[others]
    levels = _joined(replace(boxes, counts=boxes.counts[others], source_strides=strides[0], target_strides=strides[1]))
    width, height = boxes.counts[across], boxes.counts[down]
    steps = boxes.source_strides[down], boxes.target_strides[across]
    every = boxes.source + boxes.start | boxes.target | steps[0] | steps[1]
    every |= np.bitwise_or.reduce(np.concatenate((levels.source, levels.target)))
    wide, tiles = _tiles(every, (width, height), size)
    total = tiles[0] * tiles[1] * np.prod(levels.counts, axis=0)
    spans = [
        _extent(levels, levels.source) + np.abs(steps[0]) * height + size * width,
        _extent(levels, levels.target) + np.abs(steps[1]) * width + size * height,
    ]
    fits &= (every % size == 0) & (levels.n <= MAX_LEVELS) & (total < _LIMIT) & (steps[0] > 0) & (steps[1] > 0)
    fits &= (spans[0] // size < _LIMIT) & (spans[1] // size < _LIMIT) & (levels.run == size)
    fits &= ~((levels.counts > 1) & (levels.target == 0)).any(axis=0)
    levels.n = np.minimum(levels.n, MAX_LEVELS)
    mode, kind = np.full(boxes.source.size, PLAIN, np.int64), 8 * wide + _log2(np.array([size]))[0]
    table = _table(boxes, levels, (mode, kind, np.full_like(total, size), total, boxes.source == 0))
    cut = [column for count in tiles for column in (count, *divisors(np.maximum(count, 1)))]
    table[:, 7:17] = np.stack((*cut, width, height, *(step // size for step in steps)), axis=1).astype(np.uint32)
    return Descriptors(table, np.where(fits, PLAIN, -1))


def _tiles(every: Column, extents: tuple[Column, Column], size: int) -> tuple[NDArray[np.bool_], list[Column]]:
    """Which parts have tiles that are copied by 16 bytes at once, and the tiles along the width and the height.

    every: has the bits of all addresses and strides. extents: the width and the height. size: of an element.
    """
    sides = 8 * UNIT_NBYTES // size, TILE_SIDE * max(4 // size, 2)
    wide = np.full(every.size, size < UNIT_NBYTES)
    for extent, side in zip(extents, sides, strict=True):  # at least half of a tile is filled
        wide &= ((every | extent * size) % UNIT_NBYTES == 0) & (2 * extent >= side)
    return wide, [-(-n // np.where(wide, side, TILE_SIDE)) for n, side in zip(extents, sides, strict=True)]


def shuffled_items(source: Column, target: Column, nbytes: int, how: Shuffling) -> Items | None:
    """Cut chunks of one size into units for shuffle_items; None if it cannot shuffle them.

    source, target: their addresses. nbytes: of each.
    """
    bits, size = how.mode == BIT_SHUFFLED, how.typesize
    if not source.size or not nbytes or size not in ((1, 2, 4, 8) if bits else (2, 4, 8, 16)):
        return None
    block = min(how.blocksize, nbytes)
    inside, outside = (int(np.bitwise_or.reduce(column)) | UNIT_NBYTES for column in (source, target))
    if bits:
        items = 16 if size == 1 and (inside | outside | block | nbytes) % UNIT_NBYTES == 0 else 8
        fits = (block | nbytes) % (items * size) == 0 and inside % min(items * size, UNIT_NBYTES) == 0
    else:
        items = min(int(_low_bit(np.array(inside | block | nbytes))) // size, int(_low_bit(np.array(outside))))
        fits = items > 0
    if not fits or nbytes // (items * size) * source.size >= _LIMIT:
        return None
    counts = np.array([nbytes, block]) // (items * size)
    cut = zip(*(column.tolist() for column in (counts, *divisors(counts))), strict=True)
    log_size = size.bit_length() - 1
    kind = 64 * bits + 8 * log_size + items.bit_length() - 1
    return Items(kind, *(number for row in cut for number in row))


def _joined(boxes: Boxes) -> Levels:
    """Join the axes of parts, from the innermost one on."""
    n = boxes.source.size
    some = np.arange(n)
    levels = Levels(
        np.full(n, boxes.nbytes, np.int64),
        np.zeros(n, np.int64),
        np.ones((MAX_LEVELS + 1, n), np.int64),
        np.zeros((MAX_LEVELS + 1, n), np.int64),
        np.zeros((MAX_LEVELS + 1, n), np.int64),
    )
    for count, source, target in zip(
        boxes.counts[::-1], boxes.source_strides[::-1], boxes.target_strides[::-1], strict=True
    ):
        many = count != 1
        in_run = many & (levels.n == 0) & (source == levels.run) & (target == levels.run)
        levels.run *= np.where(in_run, count, 1)
        many &= ~in_run
        if not many.any():
            continue
        top = np.minimum(np.maximum(levels.n, 1) - 1, MAX_LEVELS)
        reach = levels.counts[top, some]
        joins = many & (levels.n > 0) & (source == reach * levels.source[top, some])
        joins &= target == reach * levels.target[top, some]
        levels.counts[top, some] *= np.where(joins, count, 1)
        new = np.flatnonzero(many & ~joins)
        at = np.minimum(levels.n[new], MAX_LEVELS)
        levels.counts[at, new], levels.source[at, new], levels.target[at, new] = count[new], source[new], target[new]
        levels.n[new] += 1
    return levels


def _shuffling(shuffles: Shuffles, missing: NDArray[np.bool_]) -> tuple[NDArray[np.int64], tuple[Column, ...]]:
    """The mode that counts, and (bytes of a block, number of the last one, bytes of it) of each part's chunk."""
    mode = np.where(missing, PLAIN, shuffles.mode).astype(np.int64)
    size = np.maximum(shuffles.nbytes, 1)
    block = np.minimum(np.maximum(shuffles.blocksize, 1), size)
    last = (size - 1) // block
    rest = size - last * block
    typesize = np.maximum(shuffles.typesize, 1)
    # The byte shuffle of single bytes changes nothing, nor does the bit shuffle of one block without whole groups.
    mode[(mode == BYTE_SHUFFLED) & (typesize == 1)] = PLAIN
    mode[(mode == BIT_SHUFFLED) & (last == 0) & (size // typesize % 8 != 0)] = PLAIN
    return mode, (block, last, rest)


def _units(
    boxes: Boxes, levels: Levels, shuffles: Shuffles, shuffling: tuple[NDArray[np.int64], tuple[Column, ...]]
) -> tuple[Column, Column]:
    """Bytes of a part's units, 0 if it has none, and the logarithm of their number of items (of plain parts: bytes)."""
    mode, (block, _, rest) = shuffling
    inside = np.where(boxes.source == 0, 0, boxes.start) | levels.run | np.bitwise_or.reduce(levels.source)
    outside = boxes.target | levels.run | np.bitwise_or.reduce(levels.target) | UNIT_NBYTES
    width = _low_bit(outside | inside | boxes.source)
    if not mode.any():
        return width, _log2(width)
    typesize = shuffles.typesize.astype(np.int64)
    known = (typesize & (typesize - 1) == 0) & (typesize <= 16)
    typesize = np.maximum(typesize, 1)
    within = _low_bit(inside | block | rest | 256) // typesize
    room = _low_bit(outside)
    by_bytes = np.minimum(within, np.minimum(room // typesize, _low_bit(boxes.source | UNIT_NBYTES)))
    by_bytes = np.minimum(by_bytes, UNIT_NBYTES // np.minimum(typesize, UNIT_NBYTES))
    by_bits = np.zeros_like(within)
    # Units of several stores need no more alignment than one, but offsets are counted in units.
    steps = _low_bit(np.bitwise_or.reduce(levels.target) | 256)
    for items in (1, 8, 16, 32):
        unit = items * typesize
        fits = (within >= items) & (room >= np.minimum(unit, UNIT_NBYTES)) & (steps >= unit)
        if items > 8:  # of words of the bit rows
            fits &= (boxes.source % (items // 8) == 0) & (typesize == 8 if items == 16 else typesize < 8)
        by_bits[fits] = items
    by_bits[(block // typesize % 8 != 0) | (rest // typesize % 8 != 0)] = 0
    items = np.where(mode == BYTE_SHUFFLED, by_bytes, by_bits) * known
    width = np.where(mode == PLAIN, width, items * typesize)
    return width, _log2(np.maximum(np.where(mode == PLAIN, width, items), 1))


def _table(boxes: Boxes, levels: Levels, units: tuple[NDArray[np.int64], ...]) -> NDArray[np.uint32]:
    """The descriptors without their blocks."""
    mode, kind, width, total, missing = units
    n = boxes.source.size
    table = np.zeros((n, PART_WORDS), np.uint32)
    addresses = table.view(np.uint64)
    addresses[:, 0] = np.where((mode == PLAIN) & ~missing, boxes.source + boxes.start, boxes.source).view(np.uint64)
    addresses[:, 1] = boxes.target.view(np.uint64)
    per_run = levels.run // width
    columns = (kind, total, levels.n, per_run, *divisors(np.maximum(per_run, 1)), ~missing)
    table[:, 4:11] = np.stack(columns, axis=1).astype(np.uint32)
    sources, targets = levels.source // width, levels.target // width
    reach = levels.counts - 1
    # Offsets are counted from the lowest address, so that they are not negative.
    for base, column, strides in ((0, 18, sources), (1, 19, targets)):
        below = -(np.minimum(strides, 0) * reach).sum(axis=0)
        moved = np.where(mode == PLAIN, below, 0) if base == 0 else below
        addresses[:, base] -= (moved * width).view(np.uint64)
        table[:, column] = (below if base == 1 else moved).astype(np.uint32)
    for k in range(int(min(levels.n.max(initial=0), MAX_LEVELS))):
        at, counts = 20 + 8 * k, levels.counts[k]
        steps = np.stack((sources[k], targets[k], counts), axis=1)
        table[:, at : at + 3] = (steps & 0xFFFFFFFF).astype(np.uint32)
        table[:, at + 4 : at + 6] = np.stack(divisors(np.maximum(counts, 1)), axis=1).astype(np.uint32)
    return table


def _add_blocks(table: NDArray[np.uint32], boxes: Boxes, shuffles: Shuffles, items: tuple[Column, ...]) -> None:
    """Add to descriptors how their chunks are shuffled."""
    if not shuffles.mode.any():
        return
    block, last, rest = items
    typesize = np.maximum(shuffles.typesize, 1)
    columns = (boxes.start, block, *divisors(block), block // typesize, last, rest // typesize)
    table[:, 11:18] = (np.stack(columns, axis=1) & 0xFFFFFFFF).astype(np.uint32)


def _extent(levels: Levels, strides: Column) -> Column:
    """Bytes that a part spans in the source or in the target."""
    spanned: Column = (np.abs(strides) * (levels.counts - 1)).sum(axis=0) + levels.run
    return spanned


def _low_bit(numbers: Column) -> Column:
    """The largest power of two that divides each number; 0 for 0."""
    return np.asarray(numbers & -numbers)


def _log2(powers: NDArray[np.integer]) -> Column:
    """Logarithms of powers of two."""
    logarithms: Column = np.frexp(np.maximum(powers, 1).astype(np.float64))[1].astype(np.int64) - 1
    return logarithms
