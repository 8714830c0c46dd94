"""Decides whether the compiled loop does a read or a write, and says why the reference path has to if it does not.

Conditions on the array alone (its chain, layout and store) are checked at the first read or write and then remembered.
Conditions on the selection, the values and the settings are checked every time.
"""

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from gzarr.backend import Fields, Placement
from gzarr.config import config
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.basic import BasicSelections, make_basic
from gzarr.cpu.compiled.points import make_point_batches
from gzarr.cpu.compiled.ranges import make_ranges
from gzarr.cpu.compiled.read import LoopRead, are_few, batch_size, make_read
from gzarr.cpu.compiled.source import MAX_EXTENT, PLAIN_ARRAYS, ChunkTime, LoopChain, Source, make_element, swapped
from gzarr.cpu.compiled.write import LoopWrite, fits, make_write, shared_size, write_size
from gzarr.cpu.threads import thread_count
from gzarr.indexing.copies import CopyPlan, Plan, make_batches
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.keys import join_path
from gzarr.indexing.plan import BoxPlan, PointPlan
from gzarr.indexing.tables import Batches
from gzarr.layout.chunk_layout import Layout
from gzarr.layout.sharded import Sharded
from gzarr.profiling.recorder import recorder_for
from gzarr.storage.base import Store, Target

#: The tables do not pay for fewer chunks: they take 25 us (measured with lz4 chunks of 40 kB, which take the loop 12).
MIN_NCHUNKS = 2
#: The time that the loop saves by writing shards, in entries, each of which the reference path copies in 4 us: the
#: entries of every shard, plus so many for every chunk that is written, minus so many for every shard. The tables must
#: cost less.
#: (Measured with zstd chunks of 2 to 40 kB: a shard of three chunks takes as long either way, and one chunk of a shard
#: of 100 does.)
_PER_CHUNK, _PER_SHARD, MIN_SAVED = 32, 100, 40

#: Kinds of dtypes of which points are cast before they are written: no large values, as those of boxes may be.
_NUMBERS = frozenset("biufc")

_FEW = "too few chunks to gain from the loop"
_IRREGULAR = "points of grids that are not regular, or of too many chunks, are handled by the reference path"
_OTHER_VALUES = "arrays of this kind, shape or dtype are handled by the reference path"


class _Decision(NamedTuple):
    """The decision for an array.

    Attributes
    ----------
    read, write : Source or str
        The loop's description of the array, or why the loop does not read or write it.
    basic : BasicSelections or None
        Reads and writes basic selections of few chunks; None if plans are made for these, too.
    """

    read: Source | str
    write: Source | str
    basic: BasicSelections | None = None


class CompiledLoop:
    """Decides which reads and writes of one array the compiled loop does.

    Parameters
    ----------
    store, layout
        Where the array's chunks are.
    chain : callable, optional
        Returns the loop's description of the chunks, or why there is none; None if they differ in shape.
    cached : bool
        Whether decoded chunks are cached, so that reads go to the cache.
    is_numpy : bool
        Whether results are arrays of NumPy itself, as those of basic selections then are.
    """

    __slots__ = ("_cached", "_chain", "_decision", "_is_numpy", "_layout", "_store")

    def __init__(
        self, store: Store, layout: Layout, chain: Callable[[], LoopChain | str] | None, *, cached: bool, is_numpy: bool
    ) -> None:
        self._store, self._layout, self._chain, self._cached = store, layout, chain, cached
        self._is_numpy = is_numpy
        self._decision: _Decision | None = None

    def take_read(self, plan: Plan, nparts: int, out: Any, fields: Fields) -> LoopRead | str:
        """Return a read as a job of the loop, or why not. nparts: of the plan. out: of the plan's shape."""
        copies = isinstance(plan, CopyPlan)
        source = (self._decision or self._decide()).read
        if isinstance(source, str):
            return source
        if nparts < (1 if copies or source.chain.in_blocks else MIN_NCHUNKS):
            return _FEW
        if (off := library.obstacle()) is not None:
            return off
        blocks: tuple[Any, ...] = out if copies else (out,)
        shape = (plan.rows, *plan.shape[1:]) if isinstance(plan, CopyPlan) else plan.shape
        if any(type(block) not in PLAIN_ARRAYS or block.shape != shape for block in blocks):
            return _OTHER_VALUES
        element = make_element(source.chain, blocks[0].dtype, fields)
        if element is None or (copies and (fields is not None or not all(map(_is_plain, blocks)))):
            return _OTHER_VALUES
        if source.in_memory and are_few(source.chain.nbytes, nparts):
            return _FEW
        n_threads = thread_count()
        batches = _batches(source, plan, element.start, batch_size(source, nparts, n_threads))
        if batches is None:
            return _IRREGULAR
        return make_read(source, plan, batches, (blocks, element), n_threads)

    def take_write(self, plan: Plan, nparts: int, value: Any, fields: Fields, *, keep_empty: bool) -> LoopWrite | str:
        """Return a write as a job of the loop, or why not.

        nparts: of the plan. value: of the plan's shape. keep_empty: whether chunks equal to the fill value are stored.
        """
        if nparts < (1 if isinstance(self._layout, Sharded) else MIN_NCHUNKS):
            return _FEW
        source = (self._decision or self._decide()).write
        if isinstance(source, str):
            return source
        if (off := library.obstacle()) is not None:
            return off
        if source.in_memory and not isinstance(source.layout, Sharded):
            if not isinstance(plan, BoxPlan) or fields is not None:
                return _OTHER_VALUES
            if are_few(source.chain.nbytes, nparts):
                return _FEW
        if isinstance(plan, CopyPlan) or type(value) not in PLAIN_ARRAYS or value.shape != plan.shape:
            return _OTHER_VALUES
        chain, dtype = source.chain, value.dtype
        if isinstance(plan, PointPlan) and fields is None and {dtype.kind, chain.chunk.dtype.kind} <= _NUMBERS:
            value, dtype = value.astype(chain.chunk.dtype, copy=False), chain.chunk.dtype
        element = None if fields is None else make_element(chain, dtype, fields)
        swap = None if dtype.hasobject else swapped(chain.dtype, dtype if fields is None else chain.chunk.dtype)
        if swap is None or (fields is not None and element is None):
            return _OTHER_VALUES
        if isinstance(source.layout, Sharded) and _saved(source.layout, 1, nparts) < MIN_SAVED:
            return _FEW
        target = _target(source)
        if target is None and not source.in_memory:
            return "only the store may replace its files"
        n_threads = thread_count()
        size = write_size(source, target, nparts, n_threads)
        start = 0 if element is None else element.start
        batches = _batches(source, plan, start, size, whole=True)
        if batches is not None and 0 < 2 * batches.nobjects <= n_threads:
            batches = _batches(source, plan, start, shared_size(source, size), whole=True)
        if batches is None:
            return _IRREGULAR
        if isinstance(source.layout, Sharded) and _saved(source.layout, batches.nobjects, batches.nchunks) < MIN_SAVED:
            return _FEW
        given = value, swap, None if element is None else element.numbers
        return make_write((source, target, batches), given, keep_empty=keep_empty, n_threads=n_threads)

    def basic(self) -> BasicSelections | None:
        """What reads and writes basic selections without a plan; None if nothing does, or if a profile is taken."""
        basic = (self._decision or self._decide()).basic if self._is_numpy else None
        return basic if basic is not None and config.get("cpu.native") and recorder_for("cpu") is None else None

    def reads_copies(self) -> bool:
        """Whether the loop makes copies of the array's chunks."""
        source = (self._decision or self._decide()).read
        return not isinstance(source, str) and library.obstacle() is None

    def placement(self) -> tuple[Placement, ...]:
        """Say what reads and writes many chunks, and why."""
        read, write, _ = self._decision or self._decide()
        off = library.obstacle()
        return tuple(
            Placement(step, "host", f"by the reference path: {why}" if isinstance(why, str) else "by the compiled loop")
            for step, why in (("bulk reads", off or read), ("bulk writes", off or write))
        )

    def _decide(self) -> _Decision:
        """Check the conditions on the array alone. Several threads may do so at the same time."""
        chain = "chunks differ in shape or codecs" if self._chain is None else self._chain()
        self._decision = decision = _decision(self._store, self._layout, chain, cached=self._cached)
        return decision


def _decision(store: Store, layout: Layout, chain: LoopChain | str, *, cached: bool) -> _Decision:
    if isinstance(chain, str):
        return _Decision(chain, chain)
    names, files = layout.names, store.files
    prefix = None if files is None else files.prefix(names.path)
    ranges = make_ranges(store, names.path) if layout.objects is layout.grid else None
    in_memory = ranges is None and files is None and _is_in_memory(store, layout)
    if ranges is None and not in_memory and (prefix is None or "\0" in prefix):
        why = f"the store does not expose local files{'' if files else ': it has no files'}"
        return _Decision(why, why)
    if any(axis.extent > MAX_EXTENT for axis in layout.grid):
        return _Decision(why := "an axis is too long", why)
    if isinstance(layout, Sharded) and layout.is_wrapped:
        return _Decision(why := "codecs are around shards", why)
    no_read = "decoded chunks are cached" if cached else None
    if swapped(chain.dtype, chain.chunk.dtype) is None:
        no_read = f"dtype {chain.chunk.dtype} is stored in another byte order"
    prefix = join_path(names.path, "_")[:-1] if prefix is None else prefix
    source = Source(store, layout, names.path, names.keys, prefix, chain, ChunkTime(), ChunkTime(), in_memory, ranges)
    if isinstance(layout, Sharded) and not layout.is_flat:
        return _Decision(no_read or source, "shards are nested")
    read, write = no_read or source, _write_obstacle(source) or source
    return _Decision(read, write, make_basic(read, write, _target(source)))


def _is_in_memory(store: Store, layout: Layout) -> bool:
    """Whether a store without files gives its objects at once, and shards whole for no more than their parts."""
    versions = store.versions
    return store.concurrency == 1 and (layout.objects is layout.grid or versions is None or versions.in_memory)


def _batches(source: Source, plan: Plan, start: int, size: int, *, whole: bool = False) -> Batches | None:
    """A plan in batches; None if the loop cannot sort its points. Arguments: as of `make_point_batches`."""
    layout = source.layout
    if isinstance(plan, PointPlan):
        chunk = source.chain.strides, source.chain.nbytes
        return make_point_batches(plan, layout, chunk, start, size, whole=whole)
    return make_batches(plan, layout.objects, size, whole=whole)


def _is_plain(block: Any) -> bool:
    """Whether the slots of a block are contiguous, and may be written to."""
    return bool(block.flags.writeable and block[:1].flags.c_contiguous)


def _target(source: Source) -> Target | None:
    files = source.store.files
    return None if files is None else files.target(source.path)


def _write_obstacle(source: Source) -> str | None:
    layout, chain, store = source.layout, source.chain, source.store
    if source.in_memory and (store.conditional is not None or store.max_locked is not None):
        return "objects of this store are replaced one by one"
    if _target(source) is None and not source.in_memory:
        return "only the store may replace its files"
    if chain.encoder is None:
        return "the compressor's parameters, or functions of its library, are not known to the loop"
    if not all(isinstance(axis, RegularAxis) for axis in (*layout.grid, *layout.objects)):
        return "shards differ in shape"
    if isinstance(layout, Sharded):
        level = layout.level
        if level.order is not None:
            return "the indexes of shards are transposed"
        if not fits(level, chain.widest):
            return "shards are too large"
    return None


def _saved(layout: Sharded, nshards: int, nparts: int) -> int:
    """Return the entries that the loop saves by writing so many parts of so many shards."""
    return nshards * (prod(layout.level.counts) - _PER_SHARD) + nparts * _PER_CHUNK
