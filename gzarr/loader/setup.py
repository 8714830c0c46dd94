"""What a loader was made with, checked and worked out: everything about it that does not change.

An epoch is produced from a `Setup` alone, by a thread that has no reference to the loader.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from gzarr.hierarchy.array import Array
from gzarr.indexing.grid import Axis
from gzarr.indexing.selection import Indices
from gzarr.loader.arguments import check_functions, check_on_error, check_sampler, integer, parse_pads
from gzarr.loader.arrays import JoinedArrays, Reader, grid_of, make_reader, nchunks_of, stored_dtype, watched
from gzarr.loader.feeds import DirectFeed, Feed, FeedMemory, FeedSource, KeptFeed, PoolFeed, batches_together
from gzarr.loader.joining import axis_of, join_arrays
from gzarr.loader.leases import Leases
from gzarr.loader.look_ahead import EpochPlan
from gzarr.loader.node import NodeTurn, parse_share
from gzarr.loader.order import Order, Recent, Weighted, is_repeatable, make_order, make_sampled, parse_shuffle
from gzarr.loader.pool import Room, Want, batches_of_step, choose_kept, divide, parse_memory
from gzarr.loader.ragged import Ragged, are_like
from gzarr.loader.ranks import History, RankShare, is_within, make_share, parse_ranks
from gzarr.loader.samples import Samples
from gzarr.loader.shared_feeds import SharedFeed, joint_positions
from gzarr.loader.sources import Kept, collect, find_backend, parse_dtypes, parse_target, through_cache
from gzarr.loader.state import Begun, fingerprint
from gzarr.loader.watch import ArrayWatch
from gzarr.loader.windows import positive

#: Steps that are read at once where a store waits for a server; elsewhere one keeps all processors busy.
WAITING_READS = 3


class Setup:
    """What a loader was made with. Raises: as `gzarr.Loader`.

    Parameters
    ----------
    given : mapping
        The arguments of the loader.
    part : Samples, optional
        Its samples, if it is a part of a split.

    Attributes
    ----------
    arrays : dict
        The arrays by name.
    names : dict or None
        By name, the keys of nested dicts that lead to it in a batch; None for an array that was given without a name.
    watch : ArrayWatch
        What others do to them.
    backend : Backend
        Of the device that batches are on.
    target : Backend
        Of the device that batches are uploaded to; the same if they are not.
    samples : Samples
        The samples.
    dtypes : dict
        Data type of each array in batches.
    batch_size, seed, rank, world_size, drop_last, block_chunks, sampler, on_epoch
        As given.
    shuffle : False, "exact" or "blocks"
        How samples are ordered.
    axis : Axis
        How axis 0 of the largest array is cut into chunks.
    memory : int
        The cap, in bytes.
    rooms : dict
        What each array gets of it; those that are missing are kept in memory.
    kept : Kept
        The arrays in memory.
    pads : dict
        By name, what elements of samples are that lie past the end of an array.
    sparse : dict
        By their places in a batch, the matrices that are made of rows.
    local : LocalRanks or None
        The ranks of this host that share memory.
    reused : dict
        By name, memory of the last epoch, which the next one uses again; by None, that which ranks share.
    transform, prefetch
        As given.
    skip : bool
        Whether samples of damaged chunks are left out.
    most, n_readers : int
        The most batches of a step that is read, and how many steps are read at once.
    """

    def __init__(self, given: Mapping[str, Any], part: Samples | None = None) -> None:
        found, self.names = collect(given["arrays"])
        arrays = through_cache(found, given["cache"], given["cache_nbytes"])
        self.backend = find_backend(arrays, given["device"])
        self.target = parse_target(given["prefetch_to"], self.backend)
        self.seed, self.shuffle = integer("seed", given["seed"]), parse_shuffle(given["shuffle"])
        self.arrays, samples, self._offsets, weighted = join_arrays(arrays, given, self.backend)
        self.samples = part or samples
        counts = [positive(given[name], name) for name in ("batch_size", "block_chunks", "prefetch")]
        self.batch_size, self.block_chunks, self.prefetch = counts
        self.rank, self.world_size = parse_ranks(given["rank"], given["world_size"])
        self.local = parse_share(given["share"], self.rank, self.world_size, self.backend.device)
        self._given, self._part = given, part
        self.sampler, self.drop_last = given["sampler"], bool(given["drop_last"])
        if weighted is not None:
            self.sampler, self.shuffle = weighted, False
        check_sampler(self.sampler, self.shuffle, self.world_size)
        ragged = {name: array for name, array in self.arrays.items() if isinstance(array, Ragged)}
        places = {name: (self.names or {}).get(name, ()) for name in ragged}
        self.makers = {places[name][:-1]: array.maker for name, array in ragged.items() if array.maker is not None}
        self._readers: dict[str, Reader] = {}
        self._alone: Setup | None = None
        self._check_steps()
        self.dtypes = parse_dtypes(given["dtype"], self.arrays)
        self.pads = parse_pads(given["crops"], self.arrays, self.dtypes)
        self.memory = parse_memory(given["memory"], sum(array.nbytes for array in self.arrays.values()))
        self.skip = check_on_error(given["on_error"], self.world_size)
        stored = {name: array for name, array in self.arrays.items() if not isinstance(array, np.ndarray)}
        self.axis = axis_of(stored or self.arrays, self.samples)
        if self.shuffle == "blocks":
            self.samples.runs(self.axis)  # random crops have none
        self.watch = ArrayWatch(*self._watched())
        self.rooms, self.most, self.n_readers = self._divide_shared(stored) if self.local else self._divide(stored)
        for name in ragged:
            self.reader(name)  # which refuses other samples
        self.kept = Kept({name: a for name, a in self.arrays.items() if name not in self.rooms}, self.backend)
        self.reused: dict[Any, Any] = {}
        self.on_epoch, self.transform = check_functions(given)
        #: By name, the shape and the fingerprint that an array had when it was last looked at.
        self._prints: dict[str, tuple[tuple[int, ...], str]] = {}

    def _check_steps(self) -> None:
        """Raise ValueError if no step is complete, and incomplete ones are left out."""
        if self.drop_last and self.sampler is None and self.samples.n < self.batch_size * self.world_size:
            raise ValueError(
                f"drop_last=True leaves no batch: {self.samples.n} samples are fewer than a step takes, "
                f"batch_size={self.batch_size} with world_size={self.world_size}; give a smaller batch_size, or "
                "drop_last=False"
            )

    def _watched(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """The arrays that others may change: single ones, and those that are joined."""
        arrays = {name: array.values if isinstance(array, Ragged) else array for name, array in self.arrays.items()}
        single = {name: array for name, array in arrays.items() if isinstance(array, Array)}
        joined = {name: array for name, array in self.arrays.items() if isinstance(array, JoinedArrays)}
        return single, {watched(name, n): one for name, many in joined.items() for n, one in enumerate(many.arrays)}

    def _divide_shared(self, stored: Mapping[str, Any]) -> tuple[dict[str, Room], int, int]:
        """Divide memory that ranks share. Where nobody has asked for that and it cannot be, each has its own."""
        objects = [name for name in stored if self.dtypes[name].hasobject or self.dtypes[name].kind == "T"]
        asked = self.local is not None and self.local.asked
        if objects and asked:
            raise ValueError(
                f"share: {objects[0]!r} has Python objects, which processes cannot share; use share='none'"
            )
        try:
            divided = None if objects else self._divide(stored)
        except ValueError:
            if asked:
                raise
            divided = None
        if divided is None or not divided[0]:
            self.local = None
        return divided or self._divide(stored)

    @property
    def n_local(self) -> int:
        """Number of ranks that share memory."""
        return len(self.local.ranks) if self.local is not None else 1

    def _divide(self, stored: Mapping[str, Any]) -> tuple[dict[str, Room], int, int]:
        """Divide the memory. Returns: rooms by name, the most batches of a step, how many steps are read at once."""
        n, size = self.n_local, self.batch_size * self.n_local
        wants = {name: self._want(array, self.dtypes[name]) for name, array in stored.items()}
        nbytes = {name: array.nbytes for name, array in stored.items()}
        rows = self.samples.kind in ("rows", "window")
        kinds = (Array, JoinedArrays) if rows else Array
        may = {name: nbytes[name] for name, array in stored.items() if isinstance(array, kinds)}
        kept = set() if self.skip else choose_kept(may, wants, self.memory // n, self.batch_size)
        wants = {name: want for name, want in wants.items() if name not in kept}
        waits = any(
            one.store.concurrency > 1 for name in wants for one in getattr(stored[name], "arrays", [stored[name]])
        )
        n_readers = WAITING_READS if waits else 1
        step = batches_of_step(size * sum(want.sample_nbytes for want in wants.values()), waits=waits)
        left = self.memory - n * sum(nbytes[name] for name in kept)
        steps = n_readers + 2  # those that are read, the next, and that whose batches are gathered
        divided = divide(left, list(wants.values()), size, steps, step, self.prefetch)
        most = min([step, *[max(room.ahead // steps, 1) for room in divided]])
        rooms = dict(zip(wants, divided, strict=True))
        like = {name: [other for other in rooms if are_like(stored[name], stored[other])] for name in rooms}
        return {name: min(rooms[other] for other in [name, *like[name]]) for name in rooms}, most, n_readers

    def _want(self, array: Any, dtype: np.dtype[Any]) -> Want:
        """What an array wants of the memory."""
        size, grid = self.samples.box(array.shape), grid_of(array)
        n, span = prod(size), self._span(grid[0])
        nbytes = n * stored_dtype(array).itemsize, n * dtype.itemsize
        padded = self.samples.padded or isinstance(array, Ragged)
        return Want(size, grid, *nbytes, span, span == self.samples.n, padded, self.n_local)

    def _span(self, axis: Axis) -> int:
        """Over how many positions the samples of one chunk are spread. axis: axis 0 of their array."""
        n = self.samples.n
        if self.samples.kind == "rows" and axis.nchunks == axis.extent:
            return 1
        sampled = self.sampler is not None
        if sampled or self.shuffle == "exact" or self.samples.draws or self.samples.kind == "tiles":
            return n
        lengths = getattr(axis, "length", 0), getattr(self.axis, "length", 0)
        if not all(lengths) or (self.shuffle == "blocks" and axis is not self.axis and lengths[1] % lengths[0]):
            return n
        length = lengths[0] + self.samples.size[0] - 1
        if self.shuffle == "blocks":
            length = self.block_chunks * lengths[1] * self.n_local  # each rank has blocks of its own
        return min(-(-length // self.samples.starts[0].stride) + 1, n)

    @property
    def n_chunks(self) -> float:
        """Number of chunks that are read, for each rank."""
        return sum(nchunks_of(self.arrays[name]) for name in self.rooms) / self.world_size

    @property
    def resumable(self) -> bool:
        """Whether another run gets the same samples."""
        return self.sampler is None or is_repeatable(self.sampler)

    def identity(self, *, anew: bool = True) -> dict[str, Any]:
        """What tells states of this loader from those of others, as JSON.

        anew: whether to look at the arrays again if their shapes are those of the last look.
        """
        for name, array in self.arrays.items():
            known = self._prints.get(name)
            if anew or known is None or known[0] != tuple(array.shape):
                self._prints[name] = tuple(array.shape), fingerprint(array)
        told: dict[str, Any] = {
            "arrays": {name: self._prints[name][1] for name in self.arrays},
            "samples": self.samples.describe(),
            "shuffle": "sampler" if self.sampler is not None else self.shuffle,
        }
        if isinstance(self.sampler, Weighted):
            told["weights"] = self.sampler.digest
        return told | ({"block_chunks": self.block_chunks} if self.shuffle == "blocks" else {})

    def n_positions(self) -> int:
        """Number of positions of an epoch. Raises: TypeError if only the iteration over a sampler tells."""
        sampler = self.sampler
        if sampler is None or (callable(sampler) and not hasattr(sampler, "__len__")):
            return self.samples.n
        return len(sampler)

    def check_place(self, history: History) -> None:
        """Refuse what cannot have been taken of an epoch. Raises: ValueError."""
        if not history:
            return
        if not self.resumable:
            raise ValueError(
                "sampler is iterated over, and what it gives another time is unknown: no place within an epoch can be "
                "resumed; give a function of positions and epoch, or a sequence"
            )
        total = self.n_positions()
        if not is_within(total, history):
            taken = [list(pair) for pair in history]
            raise ValueError(
                f"the state tells of a place beyond the end of an epoch of {total} samples: taken={taken} (numbers of "
                "ranks, and of the samples that each has taken); use another one"
            )

    def order(self, epoch: int) -> Order:
        """The order of an epoch. A sampler that is iterated over is, now."""
        if self.sampler is not None:
            return make_sampled(self.sampler, self.samples.n, epoch)
        runs = self.samples.runs(self.axis) if self.shuffle == "blocks" else 1
        return make_order(
            self.samples.n, self.shuffle, seed=self.seed, epoch=epoch, runs=runs, block_chunks=self.block_chunks
        )

    def share(self, total: int, history: History = ()) -> RankShare:
        """What this rank takes of so many positions."""
        return make_share(
            total,
            history,
            batch_size=self.batch_size,
            rank=self.rank,
            world_size=self.world_size,
            contiguous=self.shuffle == "blocks",
            drop_last=self.drop_last,
        )

    def forget(self) -> None:
        """Give up memory that the next epoch would use again."""
        if None in self.reused:
            self.reused[None].close()
        self.reused.clear()
        self._alone = None

    def alone(self) -> "Setup":
        """The same for this rank alone, with its part of the memory."""
        if self._alone is None:
            given = {**self._given, "share": "none", "memory": self.memory // self.n_local}
            self._alone = Setup(given, self._part)
        return self._alone

    def feeds(self, begun: Begun, first: int, turn: NodeTurn | None = None) -> list[Feed]:
        """Make the feeds of all arrays from one batch on."""
        known: dict[bool, Recent] = {}
        made: dict[str, Feed] = {}
        for name in self.arrays:
            made[name] = self._feed(name, self.epoch_of(name, begun, first, known), begun, turn, made)
        single, joined = self._watched()
        self.watch.check([*single, *[name for name in joined if name.rpartition("[")[0] not in self.rooms]])
        return list(made.values())

    def reader(self, name: str) -> Reader:
        """How samples of an array are read."""
        if name not in self._readers:
            array, backend = self.arrays[name], self.backend if self.local is None else self.backend.host
            size = self.samples.box(tuple(array.shape))
            if isinstance(array, Ragged):
                self._readers[name] = array.reader(name, backend, size, self._packing(array))
            else:
                self._readers[name] = make_reader(name, array, backend, size, skip=self.skip)
        return self._readers[name]

    def _packing(self, array: Any) -> tuple[int, int] | None:
        """If its batches are packed, how many rows one has, and how many ranks' lie together."""
        packs = isinstance(array, Ragged) and not array.padded and not self.skip
        return (self.batch_size, self.n_local) if packs else None

    def epoch_of(self, name: str, begun: Begun, first: int, known: dict[bool, Recent] | None = None) -> EpochPlan:
        """What is wanted of an array from one batch on. known: samples that arrays have asked for lately."""
        array, skipped, shared = self.arrays[name], first * self.batch_size, self.local if name in self.rooms else None
        order, share, samples = begun.order, begun.share, self.samples.at(self.seed, begun.epoch)
        joint = shared and joint_positions(share, shared.ranks, self.batch_size, skipped)

        def compute(lo: int, hi: int) -> Indices:
            return order(joint(lo, hi) if joint else share.positions(skipped + lo, skipped + hi))

        def boxes(some: Indices) -> Indices:
            return samples.boxes(some, array.ndim)

        n, size = share.n - skipped, samples.box(tuple(array.shape))
        total = n * self.n_local if joint else n
        ids = ({} if known is None else known).setdefault(bool(joint), Recent(compute, total))
        if name not in self.rooms:
            return EpochPlan(n, self.batch_size, ids, boxes, size, ())
        grid, sharers = grid_of(array), self.n_local
        size_of_all = self.batch_size * sharers
        return EpochPlan(total, size_of_all, ids, boxes, size, grid, self._span(grid[0]), self.reader(name).cut)

    def _feed(
        self, name: str, epoch: EpochPlan, begun: Begun, turn: NodeTurn | None, others: Mapping[str, Feed]
    ) -> Feed:
        """Make the feed of an array. others: those that are made."""
        array, kept, room, dtype = self.arrays[name], self.kept.get(name), self.rooms.get(name), self.dtypes[name]
        shape, stored = tuple(array.shape), stored_dtype(array)
        reader, sample = self.reader(name) if kept is None else None, self.samples.shape(shape)
        box, pad = self.samples.box(shape), None if self._packing(array) else self.pads.get(name)
        source = FeedSource(name, self.backend, reader, kept, box, sample, stored, dtype, pad)
        held = self.reused.get(name)
        if held is None:
            held = self._hold(source, room, begun.stream)
            if begun.stream is None:  # nothing that another stream does can still use it
                self.reused[name] = held
        if room is None:
            return KeptFeed(source, epoch, held.leases)
        if turn is not None:
            return SharedFeed(source, epoch, room, held.leases, turn.memory.arrays[name], turn)
        if room.mode == "pool":
            return PoolFeed(source, epoch, room, held)
        leader: Any = next((feed for other, feed in others.items() if are_like(array, self.arrays[other])), None)
        return DirectFeed(source, epoch, room, held.leases, leader)

    def _hold(self, source: FeedSource, room: Room | None, stream: object) -> FeedMemory:
        """Allocate the memory of an array."""
        leases, pool = None, None
        if not source.dtype.hasobject:
            direct = room is not None and room.mode == "direct" and self.local is None
            blocks = room.slots // self.batch_size if room is not None and direct else 0
            most, rows = self.prefetch + 2 + blocks, self.batch_size
            if room is None:
                rows *= batches_together((rows, *source.size), source.dtype)
            leases = Leases(self.backend, (rows, *source.size), source.dtype, most, stream)
        if room is not None and room.mode == "pool" and self.local is None:
            pool = self.backend.empty((room.slots, *source.size), source.stored)
        return FeedMemory(leases, pool)

    def starts(self, ids: Indices, epoch: int) -> Indices:
        """First elements of samples: beside them, in joined arrays, the number of the array."""
        samples = self.samples.at(self.seed, epoch)
        found = samples.boxes(ids, len(samples.size))
        if self._offsets is None:
            return found
        which = np.searchsorted(self._offsets, found[:, 0], side="right") - 1
        found[:, 0] -= self._offsets[which]
        return np.column_stack([which, found])
