"""Makes the descriptors of the kernels that copy: which parts of a batch they can take, cut into which units.

A part is a box of elements, each axis of which goes through the source and through the target with strides, or index
lists, of its own. Axes that follow each other in both memories are joined, first into one run of bytes, then into
levels, of which there may be three. Units are as wide as the addresses, runs and strides of a part allow, at most 16
bytes; of a shuffled chunk, they are a power of two of items. Everything is arithmetic on whole columns, one entry for
each part. Parts that no kernel can take are made simpler first: `cut` along an axis, or taken apart `in_bytes`.
"""

from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.gpu.kernels import BIT_SHUFFLED, BYTE_SHUFFLED, PLAIN
from gzarr.gpu.kernels.sources import BLOCK_THREADS, UNIT_NBYTES

#: Levels of a descriptor, its 32-bit words, and which of them are the number of its blocks and about its rows; see
#: parts.cuh.
MAX_LEVELS, PART_WORDS, N_BLOCKS, _ROWS = 3, 56, 22, 48
#: Instead of a mode, why no kernel takes a part: its chunk must be unshuffled first; it is too large, or has too many
#: axes; units would be smaller than the numbers that are swapped, or than an element of a missing chunk.
SHUFFLED, TOO_LARGE, TOO_NARROW = -1, -2, -3
#: Bytes that a thread copies, but no fewer and no more units than these; one of the largest, see copy_bits.cu.
_EACH_NBYTES, _EACH, _LARGEST = 64, (4, 16), 128
#: Bytes that threads next to each other copy together, if there are so many, so that memory is used well.
_TOGETHER = 128
#: Rows of at least so many narrow units are copied in windows, so many by a thread; see windows.cuh. Threads of a warp.
_WINDOWS_FROM, _ROWS_EACH, _WARP = 32, 8, 32
#: Rows of items that lie apart are copied in pieces where units would have at most so many bytes.
_NARROW = 4
#: Parts of a chunk that are smaller are not worth unshuffling all of it.
_UNSHUFFLED_SHARE = 8
#: Added to the number of levels of a part if one has an index list; see parts.cuh.
_LISTED = 4
#: Added to the kind of parts that are copied in windows, or in pieces of rows of so many bytes; see parts.cuh.
_IN_WINDOWS, _IN_PIECES, _PIECE_NBYTES = 64, 128, 64
#: Numbers of units are below this.
_LIMIT = 1 << 31

#: Descriptors depend on addresses modulo 16, and have them added. Batches of more kinds of parts are described anew.
_WITHIN, _MOST_ALIKE, _MOST_KNOWN = UNIT_NBYTES - 1, 64, 1 << 12
#: Odd numbers, by which kinds of parts are told apart, and then compared.
_MIXED = np.random.default_rng(0).integers(1 << 62, size=256) | 1

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
    source_lists, target_lists : Column
        int64 (axes, n), where the index list of an axis begins, whose indices the strides are of; -1 for none.
    lists : Column
        The index lists.
    """

    source: Column
    start: Column
    target: Column
    counts: Column
    source_strides: Column
    target_strides: Column
    nbytes: int
    source_lists: Column
    target_lists: Column
    lists: Column

    def take(self, which: NDArray[np.intp]) -> "Boxes":
        """Some of the parts."""
        columns = {name: getattr(self, name)[..., which] for name in _PER_PART}
        return Boxes(**columns, nbytes=self.nbytes, lists=self.lists)


def runs(source: Column, target: Column, n: int | Column, nbytes: int) -> Boxes:
    """Parts that are n elements next to each other in both memories."""
    none = np.zeros(source.size, np.int64)
    along, lists = none[None] + nbytes, none[None] - 1
    return Boxes(source, none, target, none[None] + n, along, along, nbytes, lists, lists, none[:0])


#: By kind of parts, descriptors without addresses, and modes.
_KNOWN: dict[tuple[int, int, bytes], tuple[NDArray[np.uint32], int]] = {}
_PER_PART = tuple(field.name for field in fields(Boxes) if field.name not in ("nbytes", "lists"))


class Shuffles(NamedTuple):
    """How the bytes of each chunk are still shuffled, Blosc block by Blosc block.

    Attributes
    ----------
    mode : NDArray[np.uint8]
        PLAIN, BYTE_SHUFFLED or BIT_SHUFFLED.
    typesize : NDArray[np.int32]
        Bytes of the elements that were shuffled.
    blocksize, nbytes : Column
        Bytes of a block, and of a chunk.
    """

    mode: NDArray[np.uint8]
    typesize: NDArray[np.int32]
    blocksize: Column
    nbytes: Column

    def take(self, which: NDArray[np.intp]) -> "Shuffles":
        """Those of some parts."""
        return Shuffles(self.mode[which], self.typesize[which], self.blocksize[which], self.nbytes[which])


@dataclass(slots=True, eq=False)
class Levels:
    """The axes of parts after joining: bytes of a run, and (levels, n) counts and strides; `n` of them are used.

    lists: (2, levels, n), 1 + where the index lists of the source and of the target begin; 0 for none. reach: the same,
    their largest indices.
    """

    run: Column
    n: Column
    counts: Column
    source: Column
    target: Column
    lists: Column
    reach: Column


class Descriptors(NamedTuple):
    """Parts that a kernel copies.

    Attributes
    ----------
    table : NDArray[np.uint32]
        uint32 (n, PART_WORDS), one descriptor for each part.
    mode : NDArray[np.int64]
        int64 (n,), PLAIN, BYTE_SHUFFLED or BIT_SHUFFLED; or `SHUFFLED`, `TOO_LARGE` or `TOO_NARROW`.
    """

    table: NDArray[np.uint32]
    mode: NDArray[np.int64]


def plain_shuffles(n: int, nbytes: int = 1) -> Shuffles:
    """Those of n plain chunks; their size matters only if they are copied as they are."""
    return same_shuffles(n, PLAIN, 1, max(nbytes, 1), nbytes)


def same_shuffles(n: int, mode: int, typesize: int, blocksize: int, nbytes: int) -> Shuffles:
    """Those of n chunks that are shuffled alike."""
    columns = np.full(n, mode, np.uint8), np.full(n, typesize, np.int32)
    return Shuffles(*columns, np.full(n, blocksize, np.int64), np.full(n, nbytes, np.int64))


def divisors(numbers: Column) -> tuple[Column, Column]:
    """Magic numbers and shifts of divisions by numbers >= 1; see parts.cuh."""
    shift = np.frexp(numbers.astype(np.float64))[1].astype(np.int64) - 1
    return ((np.int64(1) << (32 + shift)) - 1) // numbers, shift


def shuffling(mode: int, typesize: int, blocksize: int, nbytes: int) -> tuple[int, ...]:
    """The last arguments of shuffle for chunks of ``nbytes``; the third from last is the number of threads of each."""
    by_unit = mode == BIT_SHUFFLED and typesize in (1, 2, 4, 8, 16)
    unit, step = (min(32 * typesize, 128), 1) if by_unit else (128 * UNIT_NBYTES, 32)
    per_block, rest = (-(-size // unit) * step for size in (blocksize, nbytes % blocksize))
    per_chunk = nbytes // blocksize * per_block + rest
    magic, shift = (column.tolist() for column in divisors(np.array([per_block, per_chunk])))
    return mode, typesize, blocksize, nbytes, per_block, magic[0], shift[0], per_chunk, magic[1], shift[1]


def describe(boxes: Boxes, shuffles: Shuffles, swap_unit: int) -> Descriptors:
    """Make the descriptors of parts. swap_unit: bytes of the numbers whose order is reversed, or 0.

    Most parts are alike but for where they are, in a batch and from batch to batch, and have a descriptor already.
    """
    boxed = (*boxes.counts, *boxes.source_strides, *boxes.target_strides)
    where = ((boxes.source == 0), boxes.source & _WITHIN, boxes.target & _WITHIN, boxes.start)
    keys = np.stack((*where, *shuffles, *boxed), axis=1, dtype=np.int64)
    _, first, number = np.unique(keys @ _MIXED[: keys.shape[1]], return_index=True, return_inverse=True)
    if not 0 < first.size <= _MOST_ALIKE or boxes.lists.size or (keys[first][number] != keys).any():
        return _describe(boxes, shuffles, swap_unit)
    names = [(boxes.nbytes, swap_unit, key.tobytes()) for key in keys[first]]
    found = [_KNOWN.get(name) for name in names]
    new = [k for k, one in enumerate(found) if one is None]
    if new:
        some = first[new]
        made = _describe(boxes.take(some), shuffles.take(some), swap_unit)
        made.table.view(np.uint64)[:, :2] -= np.stack((boxes.source, boxes.target), axis=1)[some].view(np.uint64)
        if len(_KNOWN) > _MOST_KNOWN:
            _KNOWN.clear()
        for k, one in zip(new, zip(made.table, made.mode.tolist(), strict=True), strict=True):
            found[k] = _KNOWN[names[k]] = one
    tables, modes = zip(*(one for one in found if one is not None), strict=True)
    table = np.stack(tables)[number]
    addresses = table.view(np.uint64)
    addresses[:, 0] += boxes.source.view(np.uint64)
    addresses[:, 1] += boxes.target.view(np.uint64)
    return Descriptors(table, np.array(modes, np.int64)[number])


def _describe(boxes: Boxes, shuffles: Shuffles, swap_unit: int) -> Descriptors:
    """Make the descriptors of parts, each by itself."""
    missing = boxes.source == 0  # may be read in any order
    strides, lists = np.where(missing, boxes.target_strides, boxes.source_strides), boxes.source_lists.copy()
    lists[:, missing] = -1
    levels = _joined(replace(boxes, source_strides=strides, source_lists=lists))
    levels.source[:, missing] = 0
    mode, blocks = _shuffling(shuffles, missing)
    width, log_items = _units(boxes, levels, shuffles, (mode, blocks))
    narrow = (width < max(swap_unit, 1)) | (missing & ((width < boxes.nbytes) | (UNIT_NBYTES % boxes.nbytes != 0)))
    width = np.maximum(width, 1)
    total = levels.run // width * np.prod(levels.counts, axis=0)
    large = (levels.n > MAX_LEVELS) | (total >= _LIMIT) | ((levels.counts > 1) & (levels.target == 0)).any(axis=0)
    sides = zip((levels.source, levels.target), levels.reach, strict=True)
    extents = np.stack([_extent(levels, strides, reach) for strides, reach in sides])
    large |= (extents // width >= _LIMIT).any(axis=0)
    # Where each item of a large part would be loaded alone, the chunk is unshuffled first.
    across = ((boxes.counts > 1) & (np.abs(boxes.source_strides) == boxes.nbytes)).any(axis=0)
    alone = (mode != PLAIN) & across & (levels.run == boxes.nbytes)
    alone |= (mode == BIT_SHUFFLED) & (log_items < 3) & (levels.run < shuffles.nbytes)
    alone &= _UNSHUFFLED_SHARE * total * width >= shuffles.nbytes
    kind = np.where(mode == PLAIN, log_items, 8 * _log2(shuffles.typesize) + log_items)
    widths, steps = np.stack((width, width)), np.stack((~missing, np.ones_like(width), np.zeros_like(width)))
    gathered, last = _gather(boxes, levels, (widths, steps), (mode == PLAIN) & ~missing)
    kind[gathered] += np.where(last > 0, _IN_PIECES, 8 * _log2(widths[1] // width)[gathered])
    fits = ~large & (extents < _LIMIT).all(axis=0)
    row = _windows(levels, (mode, kind, widths, steps), fits)
    row[gathered] = last
    along, rows = _tasks(levels, (mode, kind, widths, steps))
    rows[4:6] = row, np.minimum(extents[0], _LIMIT)
    table = _table(boxes, levels, (mode, kind, widths, steps), (along, rows))
    _add_blocks(table, boxes, shuffles, blocks)
    why = np.where(mode != PLAIN, SHUFFLED, np.where(narrow, TOO_NARROW, TOO_LARGE))
    return Descriptors(table, np.where(narrow | large | alone, why, mode))


def cut(boxes: Boxes) -> Boxes:
    """Cut parts along the axis along which each reaches farthest, into pieces that reach less or are of one element."""
    reach = np.maximum(np.abs(boxes.source_strides), np.abs(boxes.target_strides))
    listed = (boxes.source_lists >= 0) | (boxes.target_lists >= 0)
    some = np.arange(boxes.source.size)
    axis = np.argmax(np.where((boxes.counts > 1) | listed, reach * boxes.counts + 1, 0), axis=0)
    extents, each = boxes.counts[axis, some], _LIMIT // 2 // np.maximum(reach[axis, some], 1)
    each = np.where(listed[axis, some] | (each >= extents), 1, np.maximum(each, 1))
    counts = -(-extents // each)
    made, at, each = boxes.take(some.repeat(counts)), axis.repeat(counts), each.repeat(counts)
    rows = np.arange(at.size)
    index = (rows - (counts.cumsum() - counts).repeat(counts)) * each
    moved = []
    for strides, lists in ((made.source_strides, made.source_lists), (made.target_strides, made.target_lists)):
        begin = lists[at, rows]
        numbers = index.copy()
        numbers[begin >= 0] = boxes.lists[(begin + index)[begin >= 0]]
        moved.append(numbers * strides[at, rows])
        lists[at, rows] = -1
    made.counts[at, rows] = np.minimum(extents.repeat(counts) - index, each)
    return replace(made, start=made.start + moved[0], target=made.target + moved[1])


def in_bytes(boxes: Boxes, swap_unit: int, fill: int) -> Boxes:
    """Parts of single bytes, which are in the right order already. fill: address of an element of missing chunks."""
    missing, n = boxes.source == 0, boxes.source.size
    unit = swap_unit if swap_unit > 1 else boxes.nbytes
    back = (swap_unit > 1) & ~missing
    none = np.full((2, n), -1, np.int64)

    def with_bytes(strides: Column, last: NDArray[np.integer]) -> Column:
        return np.concatenate((strides, np.stack((np.full(n, unit), last))))

    return Boxes(
        np.where(missing, fill, boxes.source),
        np.where(missing, 0, boxes.start + np.where(back, unit - 1, 0)),
        boxes.target,
        np.concatenate((boxes.counts, np.array([[boxes.nbytes // unit], [unit]]).repeat(n, axis=1))),
        with_bytes(np.where(missing, 0, boxes.source_strides), np.where(back, -1, 1)),
        with_bytes(boxes.target_strides, np.ones(n, np.int64)),
        1,
        np.concatenate((np.where(missing, -1, boxes.source_lists), none)),
        np.concatenate((boxes.target_lists, none)),
        boxes.lists,
    )


def _joined(boxes: Boxes) -> Levels:
    """Join the axes of parts, from the innermost one on."""
    n = boxes.source.size
    some, room = np.arange(n), (MAX_LEVELS + 1, n)
    levels = Levels(
        np.full(n, boxes.nbytes, np.int64),
        np.zeros(n, np.int64),
        np.ones(room, np.int64),
        *(np.zeros(shape, np.int64) for shape in (room, room, (2, *room), (2, *room))),
    )
    columns = boxes.counts, boxes.source_strides, boxes.target_strides, boxes.source_lists, boxes.target_lists
    for count, source, target, *lists in zip(*(column[::-1] for column in columns), strict=True):
        listed = np.maximum(*lists) >= 0
        many = (count != 1) | listed
        in_run = many & ~listed & (levels.n == 0) & (source == levels.run) & (target == levels.run)
        levels.run *= np.where(in_run, count, 1)
        many &= ~in_run
        if not many.any():
            continue
        top = np.minimum(np.maximum(levels.n, 1) - 1, MAX_LEVELS)
        reach = levels.counts[top, some]
        joins = many & ~listed & (levels.n > 0) & (source == reach * levels.source[top, some])
        joins &= (target == reach * levels.target[top, some]) & ~levels.lists[:, top, some].any(axis=0)
        levels.counts[top, some] *= np.where(joins, count, 1)
        new = np.flatnonzero(many & ~joins)
        at = np.minimum(levels.n[new], MAX_LEVELS)
        levels.counts[at, new], levels.source[at, new], levels.target[at, new] = count[new], source[new], target[new]
        levels.lists[:, at, new] = np.stack(lists)[:, new] + 1
        levels.n[new] += 1
    levels.reach = _reach(levels, boxes.lists)
    return levels


def _reach(levels: Levels, lists: Column) -> Column:
    """The largest index of each level, in the source and in the target; of an index list, or larger."""
    starts = np.unique(levels.lists)
    starts = starts[(starts > 0) & (starts <= lists.size)] - 1
    if not starts.size:
        return np.stack((levels.counts, levels.counts)) - 1
    most = np.maximum.reduceat(lists, starts)
    which = np.minimum(np.searchsorted(starts, levels.lists - 1), starts.size - 1)
    return np.where(levels.lists > 0, most[which], levels.counts - 1)


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


def _gather(
    boxes: Boxes, levels: Levels, units: tuple[Column, Column], plain: NDArray[np.bool_]
) -> tuple[Column, Column]:
    """Make units of items that lie apart in the source, of parts whose axes are in another order there.

    A run of theirs is along the axis that is contiguous in the source, so that what a warp reads at once is. Where they
    would be narrow, they are pieces of rows.

    units: widths, in the source and in the target, and steps of units, both of which are changed.

    Returns
    -------
    tuple of Column
        Numbers of these parts, and bytes of the last piece of their rows, 0 if they have none.
    """
    widths, steps = units
    along = (levels.source[1:] == levels.run) & (levels.target[1:] > 0) & ~levels.lists[:, 1:].any(axis=0)
    row = levels.counts[0] * levels.run
    low = _low_bit(boxes.target | np.bitwise_or.reduce(levels.target[1:]) | row | UNIT_NBYTES)
    pieces = (low <= _NARROW) & (row >= UNIT_NBYTES)
    fits = plain & along.any(axis=0) & (levels.run == widths[0]) & (levels.target[0] == levels.run)
    which = np.flatnonzero(fits & ~levels.lists[:, 0].any(axis=0) & (pieces | (low > levels.run)))
    if not which.size:
        return which, which
    pieces, low, row, run = pieces[which], low[which], row[which], levels.run[which]
    width, nbytes = np.where(pieces, run, low), np.where(pieces, np.minimum(row, _PIECE_NBYTES), low)
    first = 1 + along.argmax(axis=0)[which]
    widths[1, which] = width
    steps[1:, which] = levels.target[first, which] // width, levels.source[0, which] // widths[0, which]
    levels.run[which] = levels.counts[first, which] * width
    levels.counts[0, which] //= nbytes // run
    levels.source[0, which] *= nbytes // run
    levels.target[0, which] = nbytes
    levels.reach[:, 0, which] = levels.counts[0, which] - 1
    levels.n[which] -= 1
    at = np.arange(MAX_LEVELS)[:, None]
    for column in (levels.counts, levels.source, levels.target, *levels.lists, *levels.reach):
        column[:-1, which] = column[at + (at >= first), which]
    return which, np.where(pieces, nbytes + row % nbytes, 0)


def _windows(levels: Levels, units: tuple[NDArray[np.int64], ...], fits: NDArray[np.bool_]) -> Column:
    """Copy parts of rows whose units would be narrow in windows of the target.

    units: modes, kinds, widths and steps, of which kinds and steps are changed.

    Returns
    -------
    Column
        Bytes of the rows of these parts, 0 of others.
    """
    mode, kind, widths, steps = units
    # Of plain chunks, units of one byte or two; of shuffled ones, which windows load several times, single items.
    narrow = ((mode == PLAIN) & (kind < 2)) | ((mode == BYTE_SHUFFLED) & ((kind == 8) | (kind == 16)))
    fits = fits & narrow & (levels.run >= _WINDOWS_FROM * widths[1])
    which = np.flatnonzero(fits & ~levels.lists.any(axis=(0, 1)))
    row = np.zeros_like(levels.run)
    row[which] = levels.run[which]
    kind[which] += _IN_WINDOWS
    levels.run[which] = (row[which] // UNIT_NBYTES - 1) * widths[1, which]
    steps[:2, which] *= UNIT_NBYTES // widths[1, which]
    return row


def _tasks(levels: Levels, units: tuple[NDArray[np.int64], ...]) -> tuple[NDArray[np.bool_], Column]:
    """Give each thread the units, windows or pieces that are equally far apart along the last level, or along runs.

    levels: of which that level becomes the last, and it or runs shorter.

    Returns
    -------
    tuple
        Whether units are apart along runs; and what the units of a thread have in common, (8, n); see parts.cuh.
    """
    _, kind, widths, steps = units
    some, depth = np.arange(kind.size), int(np.clip(levels.n.max(initial=0), 1, MAX_LEVELS))
    counts = np.stack((*levels.counts[:depth], levels.run // widths[1]))
    tasks, chosen = _spread(levels, counts, kind, widths[1])
    along, last = chosen == depth, np.clip(levels.n, 1, MAX_LEVELS) - 1
    level = np.where(along, last, np.minimum(chosen, last))
    chosen = np.where(along, depth, level)
    count, tasks = counts[chosen, some], tasks[chosen, some]
    moved = np.flatnonzero(level != last)
    one, other = (level[moved], moved), (last[moved], moved)
    for column in (levels.counts, levels.source, levels.target, *levels.lists, *levels.reach) if moved.size else ():
        column[one], column[other] = column[other], column[one]
    levels.counts[last, some] = np.where(along, levels.counts[last, some], tasks)
    levels.run = np.where(along, tasks * widths[1], levels.run)
    rows = np.zeros((8, kind.size), np.int64)
    for k, strides in enumerate((levels.source, levels.target)):
        rows[k] = np.where(along, steps[k], strides[last, some] // widths[k]) * tasks
    rows[2:4] = np.divmod(count, np.maximum(tasks, 1))
    rows[6] = np.prod(levels.counts[:depth], axis=0)
    rows[7] = -(-rows[6] * (levels.run // widths[1]) // _WARP) * _WARP
    return along, rows


def _spread(levels: Levels, counts: Column, kind: Column, width: Column) -> tuple[Column, NDArray[np.intp]]:
    """Over how many threads to spread the units along each of the levels and along runs, and along which of them.

    counts: (levels + 1, n), units along each, the last along runs.
    """
    windows = (kind & _IN_WINDOWS) != 0
    each = np.where(windows, _ROWS_EACH, np.clip(_EACH_NBYTES // width, *_EACH))
    each[(kind >= _IN_PIECES) | (width == _LARGEST)] = 1
    tasks = np.minimum(np.maximum(counts // each, 1), counts)
    if windows.any():  # rows so far apart are at the same addresses modulo 16
        alike = UNIT_NBYTES // _low_bit((levels.source | levels.target)[: len(counts) - 1] | UNIT_NBYTES)
        alike = np.minimum(-(-tasks[:-1] // alike) * alike, counts[:-1])
        tasks[:-1] = np.where(windows, alike, tasks[:-1])
    if levels.lists.any():
        tasks[:-1] = np.where(levels.lists[:, : len(counts) - 1].any(axis=0), counts[:-1], tasks[:-1])
    gain = np.minimum(counts / np.maximum(tasks, 1), each)
    gain[-1, tasks[-1] * np.where(windows, UNIT_NBYTES, width) < _TOGETHER] /= 2
    order = (*range(len(counts) - 2, -1, -1), len(counts) - 1)  # outer levels before inner ones, and runs last
    good = gain >= 0.8 * gain.max(axis=0)
    return tasks, np.array(order)[good[order, :].argmax(axis=0)]


def _table(
    boxes: Boxes, levels: Levels, units: tuple[NDArray[np.int64], ...], tasks: tuple[NDArray[np.bool_], Column]
) -> NDArray[np.uint32]:
    """The descriptors without their blocks."""
    mode, kind, widths, steps = units
    along, rows = tasks
    n = boxes.source.size
    table = np.zeros((n, PART_WORDS), np.uint32)
    addresses = table.view(np.uint64)
    from_start = (mode == PLAIN) & (boxes.source != 0)
    addresses[:, 0] = np.where(from_start, boxes.source + boxes.start, boxes.source).view(np.uint64)
    addresses[:, 1] = boxes.target.view(np.uint64)
    per_run = levels.run // widths[1]
    total = per_run * rows[6]
    n_levels = np.maximum(levels.n, 1) + np.where(levels.lists.any(axis=(0, 1)), _LISTED, 0)
    n_tasks = np.where(kind < _IN_WINDOWS, total, 0)
    columns = (kind, n_tasks, n_levels, per_run, *divisors(np.maximum(per_run, 1)), *steps)
    table[:, 4:13] = (np.stack(columns, axis=1) & 0xFFFFFFFF).astype(np.uint32)
    threads = np.where((kind & _IN_WINDOWS) != 0, rows[7] + 3 * (-(-rows[6] // _WARP) * _WARP), total)
    table[:, N_BLOCKS], table[:, N_BLOCKS + 1] = -(-threads // BLOCK_THREADS), along
    rows[6] = np.where(kind >= _IN_PIECES, total, rows[6])
    table[:, _ROWS:] = (rows.T & 0xFFFFFFFF).astype(np.uint32)
    sources, targets = levels.source // widths[0], levels.target // widths[1]
    # Offsets are counted from the lowest address, so that they are not negative.
    for base, column, strides in ((0, 20, sources), (1, 21, targets)):
        below = -(np.minimum(strides, 0) * levels.reach[base]).sum(axis=0)
        moved = np.where(mode == PLAIN, below, 0) if base == 0 else below
        addresses[:, base] -= (moved * widths[base]).view(np.uint64)
        table[:, column] = (below if base == 1 else moved).astype(np.uint32)
    for k in range(int(np.clip(levels.n.max(initial=0), 1, MAX_LEVELS))):
        at, counts = 24 + 8 * k, levels.counts[k]
        by = divisors(np.maximum(counts, 1))
        entries = np.stack((sources[k], targets[k], counts, levels.lists[0, k], *by, levels.lists[1, k]), axis=1)
        table[:, at : at + 7] = (entries & 0xFFFFFFFF).astype(np.uint32)
    return table


def _add_blocks(table: NDArray[np.uint32], boxes: Boxes, shuffles: Shuffles, items: tuple[Column, ...]) -> None:
    """Add to descriptors how their chunks are shuffled."""
    if not shuffles.mode.any():
        return
    block, last, rest = items
    typesize = np.maximum(shuffles.typesize, 1)
    columns = (boxes.start, block, *divisors(block), block // typesize, last, rest // typesize)
    table[:, 13:20] = (np.stack(columns, axis=1) & 0xFFFFFFFF).astype(np.uint32)


def _extent(levels: Levels, strides: Column, reach: Column) -> Column:
    """Bytes that a part spans in the source or in the target."""
    spanned: Column = (np.abs(strides) * reach).sum(axis=0) + levels.run
    return spanned


def _low_bit(numbers: Column) -> Column:
    """The largest power of two that divides each number; 0 for 0."""
    return np.asarray(numbers & -numbers)


def _log2(powers: NDArray[np.integer]) -> Column:
    """Logarithms of powers of two."""
    logarithms: Column = np.frexp(np.maximum(powers, 1).astype(np.float64))[1].astype(np.int64) - 1
    return logarithms
