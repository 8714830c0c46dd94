"""Reads many chunks on the device by tables, without an object for each chunk.

Theory of operation. The parts of a read are numbered (`Windows`), and a piece is a run of numbers: a wave. The lane
that does it fetches the encoded chunks into one slab, which gives offsets, sizes and spans as columns. These become the
streams of the decoders and the tables of the placement kernel. Chunks that found no room in the slab take another turn
in the same piece.

Rules: the parts of a piece that are odd in any way (files that cannot be read, damaged chunks) are left to the
reference path, so its answers and its errors are the only ones there are. All pieces of a shard are of one version;
else the reference path reads the shard again once all pieces are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Work
from gzarr.cpu.compiled.fetch import LEFT, MISSING, Fetch, Runs, longest_uncut, spans_of
from gzarr.cpu.compiled.tables import Windows
from gzarr.errors import CodecError, DeviceError
from gzarr.gpu.codecs.batch import Chunks, Wave
from gzarr.gpu.device.lanes import Lane
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.pipeline.launching import Decoded, direct_targets, place_boxes
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.pipeline.placing import box_columns
from gzarr.gpu.pipeline.read import decode_streams
from gzarr.gpu.pipeline.resources import Resources
from gzarr.gpu.pipeline.sizing import later_nbytes, read_cost
from gzarr.gpu.pipeline.waves import in_waves
from gzarr.gpu.reading.host import Batch, fetch_from_store, streams_in
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import BoxPlan, Groups, Part
from gzarr.layout.chunk_layout import Layout
from gzarr.profiling.recorder import stage
from gzarr.storage.base import Store, token_of

#: Numbers of parts: the first, and one past the last.
Piece: TypeAlias = tuple[int, int]

#: A piece ends between two shards if that takes no more than this share of it.
_MAX_SHARE_LOST = 0.25
#: Chunks whose sizes are asked for before the first slab is taken, if its chunks have more decoded bytes than this.
_N_SAMPLED, _MAX_UNSAMPLED_NBYTES = 16, 1 << 22
#: A slab is larger than the last chunks were, as chunks differ; alignment and checksums take some bytes for each.
_SPARE, _SPARE_NBYTES = 1.15, 32


class Source(NamedTuple):
    """The chunks of an array: where they are, and how the device decodes them.

    Attributes
    ----------
    store, layout
        Where they are.
    plan : DevicePlan
        Of all chunks.
    files : Fetch or None
        How they are found in local files; None if the store is asked for them.
    sizes : EncodedSizes
        How large they have been.
    """

    store: Store
    layout: Layout
    plan: DevicePlan
    files: Fetch | None
    sizes: EncodedSizes


class EncodedSizes:
    """How large the encoded chunks of an array are, as far as is known: slabs are sized by it.

    Attributes
    ----------
    mean : float or None
        Bytes of a chunk on average, of the wave where they were largest; None if nothing is known.
    """

    __slots__ = ("mean",)

    def __init__(self) -> None:
        self.mean: float | None = None

    def add(self, sizes: Table) -> None:
        """Learn the sizes of some chunks."""
        if sizes.size:  # the negative numbers of chunks without a size do not matter
            self.mean = max(self.mean or 0.0, int(sizes.sum()) / sizes.size)

    def slab_nbytes(self, n: int, chunk_nbytes: int) -> int:
        """Bytes of a slab for n chunks."""
        mean = chunk_nbytes if self.mean is None else self.mean
        return int(n * (mean * _SPARE + _SPARE_NBYTES)) + _SPARE_NBYTES


class Target(Protocol):
    """Where the parts of a read go. Parts are given by their numbers, and by their spans in `Windows`."""

    def direct(self, numbers: Table, spans: NDArray[np.int32]) -> Table | None:
        """The addresses to which some chunks are to be decoded, 0 for none; None if there are none."""
        ...

    def later_nbytes(self, numbers: Table) -> int:
        """Device memory that placing some parts takes, besides a little for each."""
        ...

    def place(
        self, wave: Wave, decoding: DevicePlan, decoded: Decoded, numbers: Table, spans: NDArray[np.int32]
    ) -> int:
        """Launch the placement of what decoders did not put into place. Returns: bytes of all that is placed."""
        ...

    def parts(self, numbers: Table, spans: NDArray[np.int32]) -> Iterator[Part]:
        """Some parts, as the reference path has them."""
        ...


class BoxTarget:
    """The result of a box.

    Parameters
    ----------
    device : Device
        Where it is.
    decoding : DevicePlan
        How chunks are decoded.
    box : BoxPlan
        The plan.
    out : Array
        The result.

    Attributes
    ----------
    box, out
        As given.
    columns : BoxColumns
        The parts as tables.
    targets : Targets or None
        Where chunks are decoded straight into the result; None if none is.
    """

    def __init__(self, device: Device, decoding: DevicePlan, box: BoxPlan, out: Array) -> None:
        self.box, self.columns, self.out = box, box_columns(box), out
        self.targets = direct_targets(device, decoding, self.columns, out)

    def direct(self, numbers: Table, spans: NDArray[np.int32]) -> Table | None:
        """The addresses of chunks that are contiguous in the result."""
        return None if self.targets is None else self.targets.of(spans)

    def later_nbytes(self, numbers: Table) -> int:
        """Nothing more."""
        return 0

    def place(
        self, wave: Wave, decoding: DevicePlan, decoded: Decoded, numbers: Table, spans: NDArray[np.int32]
    ) -> int:
        """Launch the placement of the others. Returns: bytes of all parts."""
        return place_boxes(wave, decoding, decoded, (self.columns, spans), self.out)

    def parts(self, numbers: Table, spans: NDArray[np.int32]) -> Iterator[Part]:
        """Some parts, as the reference path has them."""
        return map(self.box.part, spans.tolist())


@dataclass(slots=True, eq=False)
class DeviceRead:
    """A read in batches.

    Attributes
    ----------
    resources, source
        What it is done with, and of which array.
    windows : Windows
        The parts.
    target : Target
        Where they go.
    size : int
        Most parts of a piece.
    work : Work
        How much there is to do.
    versions : dict
        The token of every shard that is read in several pieces or by several threads, by its number.
    given_up : set of int
        Numbers of the shards that were replaced meanwhile, or of which something was odd in one of several pieces.
    """

    resources: Resources
    source: Source
    windows: Windows
    target: Target
    size: int
    work: Work
    versions: dict[int, object] = field(default_factory=dict)
    given_up: set[int] = field(default_factory=set)
    stage = "locate"

    @property
    def batches(self) -> Iterator[Piece]:
        """The batches."""
        return cut(self.windows.ends, self.size)

    def read(self, piece: Piece) -> Groups:
        """Read a batch into the result, all but the parts that are returned. Raises: StoreError, DeviceError."""
        shared = self._shared_shards(piece)
        numbers = np.arange(*piece)
        with self.resources.lanes.borrow() as lane:
            try:
                left = self._do(lane, numbers, [shard for shard, _ in shared])
            except CodecError:  # the reference path says what is wrong
                left = numbers
        if not self._is_sharded:
            return [(part.coords, [part]) for part in self._parts(left)]
        odd = set(self._shards_of(left).tolist())
        self.given_up |= {shard for shard, token in shared if shard in odd or self._is_other(shard, token)}
        return [self._all_of(shard) for shard in sorted(odd - self.given_up)]

    def retry(self) -> Iterator[tuple[Coords, list[Part]]] | None:
        """All parts of the shards that were given up; None if none was."""
        return map(self._all_of, sorted(self.given_up)) if self.given_up else None

    @property
    def _is_sharded(self) -> bool:
        return self.source.layout.objects is not self.source.layout.grid

    def _shared_shards(self, piece: Piece) -> list[tuple[int, object]]:
        """The shards that are read in several pieces, or by several threads, with their tokens."""
        if not self._is_sharded:
            return []
        ends = self.windows.ends
        first, last = self._shards_of(np.array([piece[0], piece[1] - 1])).tolist()
        begins, ends = ends[first : last + 1], ends[first + 1 : last + 2]
        cut = (begins < piece[0]) | (ends > piece[1])
        cut |= ends - begins > longest_uncut(self.source.plan.chunk.nbytes or 1)
        shards = (first + np.flatnonzero(cut)).tolist()
        return [(shard, self.versions.setdefault(shard, self._token(shard))) for shard in shards]

    def _is_other(self, shard: int, token: object) -> bool:
        """Whether a shard may be of another version than that of a token."""
        return token is None or self._token(shard) != token

    def _token(self, shard: int) -> object:
        return token_of(self.source.store, self.source.layout.key(self.windows.shard(shard)))

    def _shards_of(self, numbers: Table) -> Table:
        shards: Table = np.searchsorted(self.windows.ends, numbers, side="right") - 1
        return shards

    def _do(self, lane: Lane, numbers: Table, shared: Sequence[int]) -> Table:
        """Read parts into the result. shared: see `_shared_shards`. Returns: those left. Raises: CodecError."""
        nbytes = self._slab_nbytes(lane, numbers)
        offsets, sizes = self._turn(lane, numbers, nbytes)
        waiting = (offsets < 0) & (sizes >= 0)
        left = [numbers[sizes == LEFT]]
        if waiting.any():
            groups = self._groups(numbers, shared)
            again = np.isin(groups, groups[waiting]) & (sizes != LEFT)
            groups, numbers, rooms = groups[again], numbers[again], np.maximum(sizes[again], 0) + _SPARE_NBYTES
            for some, room in turns(groups, rooms, nbytes):
                offsets, sizes = self._turn(lane, numbers[some], room)
                left.append(numbers[some][(offsets < 0) & (sizes != MISSING)])  # what grows while it is read, too
        return np.concatenate(left) if len(left) > 1 else left[0]

    def _groups(self, numbers: Table, shared: Sequence[int]) -> Table:
        """Which parts must be read in one turn: those of a shard, which are then of one version; by equal numbers.

        Versions of the shared shards are compared, and chunks that are files need not be of one version.
        """
        alone = -1 - numbers
        if not self._is_sharded:
            return alone
        shards = self._shards_of(numbers)
        return np.where(np.isin(shards, shared), alone, shards)

    def _turn(self, lane: Lane, numbers: Table, nbytes: int) -> tuple[Table, Table]:
        """Read the parts that find room in a slab. Returns: where each is in it, and its size. Raises: CodecError."""
        batch = self._fetch(lane, numbers, nbytes)
        here = batch.offsets >= 0
        if here.all():
            self._place(lane, numbers, batch)
        else:
            ready = here | (batch.sizes == MISSING)
            if ready.any():
                self._place(lane, numbers[ready], batch.take(ready))
        return batch.offsets, batch.sizes

    def _fetch(self, lane: Lane, numbers: Table, nbytes: int) -> Batch:
        """Fetch the chunks of some parts."""
        lane.rewind()
        with stage("read") as noted:
            batch = self._batch(lane, (self.windows, self._runs(numbers)), nbytes)
            if noted:
                sizes = batch.sizes[batch.offsets >= 0]
                noted.count(sizes.size, int(sizes.sum()), int(sizes.sum()))
        self.source.sizes.add(batch.sizes)
        return batch

    def _batch(self, lane: Lane, wanted: tuple[Windows, Runs], nbytes: int) -> Batch:
        store, layout, plan, files, _ = self.source
        if files is None:
            return fetch_from_store(lane, store, layout.key, wanted, plan.phase)
        return self.resources.reader.fetch(lane, files, wanted, plan, nbytes)

    def _runs(self, numbers: Table) -> Runs:
        """Parts, by their numbers in order, as runs."""
        if numbers[-1] - numbers[0] == numbers.size - 1:
            return self.windows.runs(int(numbers[0]), int(numbers[-1]) + 1)
        pieces = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
        return np.concatenate([self.windows.runs(int(some[0]), int(some[-1]) + 1) for some in pieces])

    def _slab_nbytes(self, lane: Lane, numbers: Table) -> int:
        """Bytes of a slab for some parts. If there are many and nothing is known, a few of them are asked for."""
        sizes, chunk_nbytes = self.source.sizes, self.source.plan.chunk.nbytes or 1
        if self.source.files and sizes.mean is None and numbers.size * chunk_nbytes > _MAX_UNSAMPLED_NBYTES:
            self._fetch(lane, numbers[:: -(-numbers.size // _N_SAMPLED)], 0)
        return sizes.slab_nbytes(numbers.size, chunk_nbytes)

    def _place(self, lane: Lane, numbers: Table, batch: Batch) -> None:
        """Decode chunks, all of which are there or missing, and place their parts."""
        plan, n = self.source.plan, numbers.size

        def wave(some: slice) -> None:
            nonlocal numbers, batch
            if some.start == 0 and some.stop < n:
                # In the order of the slab, so that a wave is a piece of it.
                order = np.argsort(batch.offsets, kind="stable")
                numbers, batch = numbers[order], batch.take(order)
            self._place_wave(lane, numbers[some], batch.take(some) if some.stop - some.start < n else batch)

        def too_large(number: int) -> DeviceError:
            (part,) = self._parts(numbers[number : number + 1])
            return self.resources.too_large(part.coords, plan.chunk)

        size = max(self.resources.lanes.limit // read_cost(plan, plan.chunk.nbytes or 1).memory, 1)
        in_waves(lane, n, size, wave, too_large, plan.reading)

    def _place_wave(self, lane: Lane, numbers: Table, batch: Batch) -> None:
        plan, here = self.source.plan, batch.offsets >= 0
        n, chunk_nbytes = int(np.count_nonzero(here)), plan.chunk.nbytes or 0
        wave = Wave(lane.device, lane=lane, later=later_nbytes(plan, here.size) + self.target.later_nbytes(numbers))
        present = slice(None) if n == here.size else np.flatnonzero(here)
        chunks: Chunks | None = None
        wave.targets = self.target.direct(numbers[present], batch.spans[present])
        try:
            with stage("place") as placed:
                with stage("decode", timed=True) as noted:
                    if n:
                        streams = streams_in(wave, batch.slab, batch.offsets[present], batch.sizes[present])
                        if noted:
                            noted.count(n, int(streams.sizes.sum()), n * chunk_nbytes)
                        chunks = decode_streams(wave, plan, streams)
                with stage("place", timed=True):
                    nbytes = self.target.place(wave, plan, (chunks, present), numbers, batch.spans)
                with stage("check"):
                    wave.finish()
                placed.count(here.size, n * chunk_nbytes, nbytes)
        finally:
            chunks = None  # else an error's traceback would hold them
            wave.drop()

    def _parts(self, numbers: Table) -> Iterator[Part]:
        """Some parts, as the reference path has them."""
        if numbers.size:
            yield from self.target.parts(numbers, spans_of(self.windows, self._runs(numbers)))

    def _all_of(self, shard: int) -> tuple[Coords, list[Part]]:
        """All parts of a shard."""
        ends = self.windows.ends
        return self.windows.shard(shard), list(self._parts(np.arange(ends[shard], ends[shard + 1])))


def cut(ends: Table, size: int) -> Iterator[Piece]:
    """Cut parts into pieces of at most so many, between two shards if little is lost by it. ends: of `Windows`."""
    first, n = 0, int(ends[-1])
    while first < n:
        last = min(first + size, n)
        whole = int(ends[np.searchsorted(ends, last, side="right") - 1])
        if whole - first >= (1 - _MAX_SHARE_LOST) * (last - first):
            last = whole
        yield first, last
        first = last


def turns(groups: Table, rooms: Table, nbytes: int) -> Iterator[tuple[slice, int]]:
    """Cut parts into turns of whole groups that find room in so many bytes; a larger group has a turn of its own.

    groups: equal numbers, one behind the other, are a group. rooms: what each part takes.
    Returns: the parts of each turn, and what they take.
    """
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))
    bounds = np.append(starts, groups.size)
    sums = np.concatenate([[0], np.cumsum(np.add.reduceat(rooms, starts))])
    first = 0
    while first < starts.size:
        last = max(int(np.searchsorted(sums, sums[first] + nbytes, side="right")) - 1, first + 1)
        yield slice(int(bounds[first]), int(bounds[last])), int(sums[last] - sums[first]) + _SPARE_NBYTES
        first = last
