"""How the memory of a loader is divided: which arrays are kept, and what the others have for samples that wait."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Literal, NamedTuple

import numpy as np

from gzarr.indexing.grid import Grid
from gzarr.loader.look_ahead import KNOWN_NBYTES, DirectPlanner, EpochPlan, Planner, PoolPlanner, mode_of

#: Factors of units that sizes of memory may have.
_UNITS = {"": 1, "b": 1} | {
    f"{prefix}{infix}b": base**power
    for power, prefix in enumerate("kmgt", 1)
    for infix, base in (("", 1000), ("i", 1024))
}
#: What small arrays, which are read once and kept, take of the memory together: a share of it, and so many bytes.
KEPT_NBYTES = 64 << 20
KEPT_SHARE = 8
#: The same for arrays of samples that take less than half of the memory of their planning.
TINY_KEPT_SHARE = 2
#: Bytes of batches that are read in one step: enough for threads to pay, little enough to overlap with the rest.
STEP_NBYTES = 16 << 20
#: But so many batches, if memory suffices: with one of 64 images of 150 kB, a sixth of the time goes into planning and
#: the ends of reads, when one thread waits for the other.
STEP_BATCHES = 4
#: The same where a store waits for a server.
WAITING_STEP_NBYTES = 64 << 20
#: Bytes for planning, at least and at most, for each sample that there is memory for; in between they are a small part
#: of the sample. They bound how far it looks ahead.
PLANNED_NBYTES, MOST_PLANNED_NBYTES, PLANNED_SHARE = 128, 16 * KNOWN_NBYTES, 32

#: Bytes for planning a fragment of a sample that goes straight into its batch.
FRAGMENT_NBYTES = 200


def parse_memory(memory: int | str, data_nbytes: int) -> int:
    """Return a size of memory in bytes. Raises: ValueError, TypeError.

    memory: bytes, a text such as "512 MiB" or "2GB", or a share of the data such as "35 %".
    data_nbytes: decoded size of all the data.
    """
    if isinstance(memory, (int, np.integer)) and not isinstance(memory, bool):
        nbytes = int(memory)
    elif isinstance(memory, str):
        nbytes = _parse_text(memory, data_nbytes)
    else:
        raise TypeError(f"memory must be a whole number of bytes, '512 MiB', or a share such as '35 %'; got {memory!r}")
    if nbytes < 1:
        raise ValueError(f"memory must be positive, got {memory!r}")
    return nbytes


def _parse_text(text: str, data_nbytes: int) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%|[a-zA-Z]*)\s*", text)
    unit = match[2].lower() if match else "?"
    if match is None or (unit != "%" and unit not in _UNITS):
        raise ValueError(f"memory must be a whole number of bytes, '512 MiB', or a share such as '35 %'; got {text!r}")
    factor = data_nbytes / 100 if unit == "%" else _UNITS[unit]
    return math.ceil(float(match[1]) * factor)


class Want(NamedTuple):
    """What an array wants of the memory.

    Attributes
    ----------
    size : tuple of int
        Elements of a sample along each axis.
    grid : Grid
        The chunk grid.
    slot_nbytes, sample_nbytes : int
        Size of a sample in a pool, and in a batch.
    span : int
        Over how many positions the samples of one chunk are spread (`gzarr.loader.look_ahead.mode_of`).
    span_is_all : bool
        Whether that is the whole epoch.
    padded : bool
        Whether samples may reach past the ends of arrays: only batches are filled with a value beforehand.
    planners : int
        How many ranks share the memory, each of which plans for all.
    """

    size: tuple[int, ...]
    grid: Grid
    slot_nbytes: int
    sample_nbytes: int
    span: int
    span_is_all: bool = True
    padded: bool = False
    planners: int = 1


class Room(NamedTuple):
    """What an array gets of the memory.

    Attributes
    ----------
    mode : str
        "pool" or "direct".
    slots : int
        Samples that there is memory for.
    ahead : int
        Batches of them that may be planned and not yet gathered.
    horizon : int
        How many samples a pool looks ahead.
    """

    mode: Literal["pool", "direct"]
    slots: int
    ahead: int
    horizon: int = 0

    def planner(self, epoch: EpochPlan) -> Planner:
        """A planner that stands at the start of an epoch."""
        if self.mode == "pool":
            return PoolPlanner(epoch, self.slots, self.ahead, self.horizon)
        return DirectPlanner(epoch, self.slots // epoch.batch_size)


def batches_of_step(batch_nbytes: int, *, waits: bool) -> int:
    """How many batches a step should read. waits: whether the store waits for a server."""
    return min(max((WAITING_STEP_NBYTES if waits else STEP_NBYTES) // max(batch_nbytes, 1), STEP_BATCHES), 64)


def choose_kept(nbytes: Mapping[str, int], wants: Mapping[str, Want], memory: int, batch_size: int) -> set[str]:
    """Which arrays are read once and kept: the smallest ones, and those of tiny samples, whose planning is larger.

    nbytes: decoded sizes by name. Memory for a batch of all arrays is left.
    """
    spare = memory - needed_of(wants.values(), batch_size)
    kept, total = set(), 0
    for name, size in sorted(nbytes.items(), key=itemgetter(1)):
        tiny = 2 * wants[name].slot_nbytes < PLANNED_NBYTES
        if total + size <= min(memory // TINY_KEPT_SHARE if tiny else min(memory // KEPT_SHARE, KEPT_NBYTES), spare):
            kept.add(name)
            total += size
    return kept


def needed_of(wants: Iterable[Want], batch_size: int) -> int:
    """The least memory with which arrays can be read."""
    return batch_size * sum(map(_nbytes_of, wants))


def _nbytes_of(want: Want) -> int:
    return max(want.slot_nbytes, want.sample_nbytes) + PLANNED_NBYTES * want.planners


def divide(memory: int, wants: Sequence[Want], batch_size: int, reads: int, most: int, prefetch: int = 2) -> list[Room]:
    """Divide memory between arrays in proportion to the sizes of their samples, so that all hold equally many.

    Parameters
    ----------
    memory : int
        Bytes for all arrays.
    wants : sequence of Want
        The arrays that are read.
    batch_size : int
        Samples of a batch.
    reads : int
        Steps that are under way at once.
    most : int
        The most batches of a step.
    prefetch : int
        The most batches that wait for the caller.

    Returns
    -------
    list of Room
        For each array.

    Raises
    ------
    ValueError
        If there is not enough memory for a batch.
    """
    each = list(map(_nbytes_of, wants))
    total = sum(each)
    if memory < total * batch_size:
        raise ValueError(
            f"memory={memory} bytes are less than one batch takes: {batch_size} samples of {total} bytes, with "
            f"{PLANNED_NBYTES} an array for planning; give memory={total * batch_size} or more, or a smaller batch_size"
        )
    # Outside are those that wait, the caller's, and the one that replaces it. The cap has three on top.
    memory = max(memory - max(prefetch - 1, 1) * total * batch_size, total * batch_size)
    shares = [memory * nbytes // total for nbytes in each]
    return [_room(want, share, batch_size, reads * most) for want, share in zip(wants, shares, strict=True)]


def _fragments_of(want: Want) -> int:
    """How many chunks a sample touches at most."""
    axes = zip(want.size, want.grid, strict=True)
    return math.prod([min((n * axis.nchunks - 1) // max(axis.extent, 1) + 2, n, axis.nchunks) for n, axis in axes])


def _room(want: Want, share: int, batch_size: int, ahead: int) -> Room:
    planned = max(min(want.slot_nbytes // PLANNED_SHARE, MOST_PLANNED_NBYTES), PLANNED_NBYTES)
    slots = max(share // (want.slot_nbytes + planned * want.planners), batch_size)
    # Batches on their way leave less memory for samples that wait. A span has to fit beside them if it can. An eighth
    # is for the next span, whose samples wait already while the last one is gathered.
    spare = slots // 4 if want.span_is_all else max(slots * 8 // 9 - want.span - batch_size, slots // 4)
    most = max(min(spare // batch_size, ahead), 1)
    useful = want.span if want.span_is_all else (want.span + (most + 1) * batch_size) * 9 // 8
    planned_direct = max(PLANNED_NBYTES, FRAGMENT_NBYTES * _fragments_of(want)) * want.planners
    blocks = max(share // ((want.sample_nbytes + planned_direct) * batch_size), 1)
    blocks = min(blocks, -(-useful // batch_size))
    if not want.padded and mode_of(want.size, want.grid, useful, blocks * batch_size) == "pool":
        slots = min(slots, useful + most * batch_size)
        return Room("pool", slots, most, planned * slots // KNOWN_NBYTES)
    if want.span_is_all:
        most = min(blocks // 2, ahead)
    return Room("direct", blocks * batch_size, max(min(most, blocks), 1))
