"""Makes an opened array ready to run: finds the shards in its codec chain, prepares every chain once.

A chain ``[transpose*, sharding_indexed, bytes-to-bytes*]`` is addressed (`gzarr.layout.sharded.Sharded`), even when
nested. A sharding codec behind anything else (a delta over a whole shard, say) cannot be addressed: it runs as a codec,
and the shard is read whole.
"""

import json
import math
from collections.abc import Callable, Hashable, Sequence
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

import numpy as np

from gzarr.backend import Backend, Chain
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.chunk_cache import ArrayChunks, ChunkCache
from gzarr.codecs.chain import prepare
from gzarr.codecs.numcodecs import trusted
from gzarr.codecs.registry import registry_state
from gzarr.codecs.sharding import ShardingCodec, prepare_index
from gzarr.codecs.spec import ArrayRepr, BytesRepr, CodecSpec
from gzarr.codecs.transpose import TransposeCodec
from gzarr.dtypes.scalars import lacks_unit
from gzarr.errors import MetadataError, MissingExtraError
from gzarr.indexing.grid import Grid, RegularAxis, chunk_shape, is_regular, largest_chunk
from gzarr.indexing.keys import Coords, join_path
from gzarr.indexing.selection import Indices
from gzarr.layout.chunk_layout import Layout, Names
from gzarr.layout.shard import Level, write_order
from gzarr.layout.sharded import Sharded
from gzarr.metadata.documents import as_meta, codecs_in_errors
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Store
from gzarr.storage.tables import Tables, chains_of

T = TypeVar("T")

_MAX_NDIM = 64


class _Sharding(NamedTuple):
    """One sharding codec of a chain, in terms of the array's own axes."""

    spec: ShardingCodec
    chunk_shape: Coords
    order: Coords
    wrap: tuple[CodecSpec, ...]


def prepare_array(
    meta: ArrayMeta,
    store: Store,
    path: str,
    backend: Backend,
    chunk_cache: ChunkCache | None = None,
    allow_pickle: bool = False,
) -> ArrayIO:
    """Prepare an array's chains and layout.

    chunk_cache: where its decoded chunks are cached. allow_pickle: whether pickled objects are loaded.
    Raises: MetadataError if the codecs do not fit the chunks, UnknownCodecError, MissingExtraError.
    """
    make = partial(_chunks, meta, backend, allow_pickle=allow_pickle)
    made_of = _made_of(meta, allow_pickle=allow_pickle)
    try:
        cuts, only_chain, chain, levels, nbytes = _share(backend, *made_of, meta.codecs, make)
        grid, names = _subdivided(meta.grid, cuts), Names(path, meta.keys)
        if documents := chains_of(store.tables, path):
            only_chain, chain = None, _by_table(documents, store, path, grid, backend)
    except (MetadataError, MissingExtraError) as error:
        raise type(error)(f"{codecs_in_errors(meta, store, path)}: {error}") from error
    if levels is None:
        layout = Layout(grid, meta.grid, names)
    else:
        layout = Sharded(grid, meta.grid, levels, names)
        if store.concurrency > 1:
            layout.read_across_network(nbytes)
    cache = None if chunk_cache is None else _cached_chunks(meta, store, chunk_cache)
    return ArrayIO(
        name=join_path(str(store), path),
        store=store,
        layout=layout,
        backend=backend,
        chain=chain,
        only_chain=only_chain,
        chunk_nbytes=nbytes,
        compiled=backend.compiled(store, layout, only_chain, cached=cache is not None),
        cache=cache,
        marker=backend.marker,
    )


def is_prepared(meta: ArrayMeta, backend: Backend, *, allow_pickle: bool) -> bool:
    """Whether an array of the same codecs and chunks was prepared before, so that this one can be at any time."""
    entries = _shared.get(backend)
    return entries is not None and _key(*_made_of(meta, allow_pickle=allow_pickle)) in entries


class _Chunks(NamedTuple):
    """How the chunks of an array are cut and encoded, wherever they are stored: see `ArrayIO` and `Sharded`.

    cuts: chunk shapes that shards are cut into, from level to level.
    """

    cuts: Sequence[Coords]
    only_chain: Chain | None
    chain: Callable[[Coords], Chain]
    levels: Callable[[Coords], Sequence[Level]] | None
    nbytes: int


def _chunks(meta: ArrayMeta, backend: Backend, *, allow_pickle: bool) -> _Chunks:
    shardings, specs = find_shardings(meta.codecs, len(meta.shape))
    if allow_pickle and not all(spec.name in _FIXED for spec in specs):
        specs = tuple(map(trusted, specs))
    objects = meta.grid
    if shardings and len(objects) >= _MAX_NDIM:
        raise MetadataError(
            f"codec 'sharding_indexed': the index of a shard has one dimension more than the array, and NumPy's arrays"
            f" have at most {_MAX_NDIM}: got an array of {len(objects)}; store it without shards"
        )
    cuts = [sharding.chunk_shape for sharding in shardings]
    grid = _subdivided(objects, cuts)

    # Shards of any length are cut into chunks of one length.
    uniform = is_regular(grid) or bool(shardings)
    first = _chain(meta, specs, chunk_shape(grid, (0,) * len(grid)), backend)
    chain: Callable[[Coords], Chain] = (lambda _: first) if uniform else _by_shape(meta, specs, grid, backend)
    levels = _levels(shardings, backend.host) if shardings else None
    if levels is not None:
        levels(chunk_shape(objects, (0,) * len(objects)))  # a faulty index is reported now, not at a read
    nbytes = first.chunk.nbytes
    size = 16 * first.chunk.nelements if nbytes is None else nbytes
    return _Chunks(cuts, first if uniform else None, chain, levels, size)


def _cached_chunks(meta: ArrayMeta, store: Store, cache: ChunkCache) -> ArrayChunks:
    """The array's chunks in a cache."""
    lengths = tuple(axis.length if isinstance(axis, RegularAxis) else axis for axis in meta.grid)
    signature = (str(meta.data_type.dtype), lengths, meta.codecs)
    return ArrayChunks(cache, signature, store, store.lock_name(""))


#: Codecs that always run in the same way: no other package decides what their names mean.
_FIXED = frozenset({"blosc", "bytes", "crc32c", "gzip", "transpose", "zstd"})
_MAX_SHARED = 512
# By backend, for as long as it lives: chains of a GPU hold device memory.
_shared: WeakKeyDictionary[Backend, dict[Hashable, tuple[Any, Any]]] = WeakKeyDictionary()


def _made_of(meta: ArrayMeta, *, allow_pickle: bool) -> tuple[tuple[Any, ...], Hashable]:
    """What the chunks of an array depend on, as `_share` takes it: whatever its shape, unless chunks vary."""
    made_of = meta.codecs, meta.data_type, meta.fill_value
    if not is_regular(meta.grid):
        return (*made_of, meta.grid), allow_pickle
    return made_of, (largest_chunk(meta.grid), allow_pickle)


def _subdivided(grid: Grid, cuts: Sequence[Coords]) -> Grid:
    """A grid of shards, cut into chunks level by level. Raises: MetadataError."""
    for shape in cuts:
        _check_divides(grid, shape)
        grid = tuple([axis.subdivided(n) for axis, n in zip(grid, shape, strict=True)])
    return grid


def _key(made_of: tuple[Any, ...], how: Hashable) -> Hashable:
    return (*map(id, made_of), how, registry_state())


def _share(
    backend: Backend, made_of: tuple[Any, ...], how: Hashable, specs: Sequence[CodecSpec], make: Callable[[], T]
) -> T:
    """Make something, or return what was made of the very same objects for an array opened before.

    The objects are compared by identity, because equal fill values may differ in their bits. specs: codecs that it
    depends on.
    """
    key = _key(made_of, how)
    entries = _shared.get(backend)
    cached = None if entries is None else entries.get(key)
    if cached is not None:
        return cached[0]
    made = make()
    if all(map(_is_fixed, specs)):
        entries = _shared.setdefault(backend, {})
        while len(entries) >= _MAX_SHARED:
            entries.pop(next(iter(list(entries)), None), None)
        entries[key] = (made, made_of)  # held, so that their ids stay theirs
    return made


def _is_fixed(spec: CodecSpec) -> bool:
    inner = (*spec.codecs, *spec.index_codecs) if type(spec) is ShardingCodec else None
    return spec.name in _FIXED if inner is None else all(map(_is_fixed, inner))


def _chain(meta: ArrayMeta, specs: tuple[CodecSpec, ...], shape: Coords, backend: Backend) -> Chain:
    def make() -> Chain:
        dtype = meta.data_type.dtype
        if lacks_unit(dtype):
            dtype = dtype.newbyteorder("=")  # The codec swaps the bytes: NumPy does not.
        chunk = ArrayRepr(dtype, shape, meta.fill_value)
        return backend.prepare(prepare(specs, chunk), chunk)

    return _share(backend, (specs, meta.data_type, meta.fill_value), shape, specs, make)


def _by_shape(meta: ArrayMeta, specs: tuple[CodecSpec, ...], grid: Grid, backend: Backend) -> Callable[[Coords], Chain]:
    """The chain of a chunk by its coordinates, where chunks differ in shape."""
    cached = lru_cache(maxsize=256)(lambda shape: _chain(meta, specs, shape, backend))
    return lambda coords: cached(chunk_shape(grid, coords))


def _by_table(
    documents: Sequence[bytes], store: Store, path: str, grid: Grid, backend: Backend
) -> Callable[[Coords], Chain]:
    """The chain of a chunk by its coordinates, where the store's table says which of several it has."""
    metas = [as_meta(json.loads(document)) for document in documents]

    @lru_cache(maxsize=256)
    def prepared(number: int, shape: Coords) -> Chain:
        meta = cast(ArrayMeta, metas[number])
        return _chain(meta, meta.codecs, shape, backend)

    found = cache(lambda: cast(Tables, store.tables).table(path))  # when a chunk is first read

    def chain(coords: Coords) -> Chain:
        table = found()
        row, chains = (None, None) if table is None else (table.row(coords), table.chains)
        number = 0 if row is None or chains is None else int(chains[row])
        return prepared(number, chunk_shape(grid, coords))

    return chain


def find_shardings(specs: Sequence[CodecSpec], ndim: int) -> tuple[list[_Sharding], tuple[CodecSpec, ...]]:
    """Split a chain into its addressable levels of sharding and the codecs of the innermost chunks."""
    shardings: list[_Sharding] = []
    order = tuple(range(ndim))
    # A shard without axes holds one chunk: there is nothing to address, and sharding runs as a codec.
    while ndim:
        at = next((i for i, spec in enumerate(specs) if isinstance(spec, ShardingCodec)), None)
        if at is None or not all(isinstance(spec, TransposeCodec) for spec in specs[:at]):
            break
        for spec in specs[:at]:
            if isinstance(spec, TransposeCodec):
                order = tuple(order[axis] for axis in spec.permutation(ndim))
        sharding = specs[at]
        if not isinstance(sharding, ShardingCodec):
            break
        if len(sharding.chunk_shape) != ndim:
            raise MetadataError(
                f"codec 'sharding_indexed': chunk_shape {sharding.chunk_shape} does not have {ndim} dimensions"
            )
        shape = [0] * ndim
        for axis, n in zip(order, sharding.chunk_shape, strict=True):
            shape[axis] = n
        shardings.append(_Sharding(sharding, tuple(shape), order, tuple(specs[at + 1 :])))
        specs = sharding.codecs
    if shardings and order != tuple(range(ndim)):
        specs = (TransposeCodec(order), *specs)
    return shardings, tuple(specs)


def _check_divides(grid: Grid, inner: Coords) -> None:
    for axis, (lengths, n) in enumerate(zip(grid, inner, strict=True)):
        whole = {lengths.length} if hasattr(lengths, "length") else set(lengths.lengths)
        bad = sorted(length for length in whole if length % n)
        if bad:
            raise MetadataError(
                f"codec 'sharding_indexed': a shard of {bad[0]} elements on axis {axis} "
                f"is not a whole number of chunks of {n}; choose shards that are multiples of chunks"
            )


def _levels(shardings: Sequence[_Sharding], host: Backend) -> Callable[[Coords], Sequence[Level]]:
    @lru_cache(maxsize=256)
    def levels(shape: Coords) -> Sequence[Level]:
        made = []
        for sharding in shardings:
            counts = tuple(n // c for n, c in zip(shape, sharding.chunk_shape, strict=True))
            how = "level", sharding.order, counts
            make = partial(_level, sharding, counts, host)
            made.append(
                make() if sharding.wrap else _share(host, (sharding.spec,), how, sharding.spec.index_codecs, make)
            )
            shape = sharding.chunk_shape
        return tuple(made)

    return levels


def _level(sharding: _Sharding, counts: Coords, host: Backend) -> Level:
    shape = tuple(counts[axis] for axis in sharding.order)
    index = ArrayRepr(np.dtype("uint64"), (*shape, 2), np.uint64(2**64 - 1))
    steps = prepare_index(sharding.spec, index)
    return Level(
        chunk_shape=sharding.chunk_shape,
        counts=counts,
        order=None if sharding.order == tuple(range(len(counts))) else sharding.order,
        coder=host.prepare(steps, index),
        index_nbytes=steps[-1].encoded.nbytes or 0,
        location=sharding.spec.index_location,
        wrap=host.prepare(prepare(sharding.wrap, BytesRepr()), index) if sharding.wrap else None,
        steps=_steps(sharding.order, shape),
        write_order=write_order(sharding.spec.subchunk_write_order, shape),
    )


def _steps(order: Coords, shape: Coords) -> Indices:
    """How many entries further the next one is along each axis. order: the axis of each one of an index. shape: its."""
    steps = np.ones(len(shape), np.int64)
    for number, axis in enumerate(order):
        steps[axis] = math.prod(shape[number + 1 :])
    return steps
