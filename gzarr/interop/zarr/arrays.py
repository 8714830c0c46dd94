"""An array of zarr-python as gzarr's engine reads and writes it: parsed metadata, a store, what is prepared of it.

zarr-python keeps the pipeline of an array that is resized: the shape in the metadata may be an old one. Therefore
extents follow the batch. What a read finds does not depend on where the array ends. A write takes the array to end
where zarr-python does, which then writes fill values past the end; elsewhere it keeps what a chunk holds there.
"""

import asyncio
import json
import math
from collections.abc import Hashable
from dataclasses import replace
from operator import lt
from time import perf_counter
from typing import Any

import numpy as np
from zarr.core.buffer import cpu

from gzarr.backend import Fields
from gzarr.chunk_io import engine
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.prepare import prepare_array
from gzarr.chunk_io.reference import ReadJob, WriteJob
from gzarr.codecs.registry import registry_state
from gzarr.codecs.sharding import ShardingCodec
from gzarr.codecs.spec import CodecSpec
from gzarr.devices import backend_for
from gzarr.dtypes.scalars import lacks_unit
from gzarr.indexing.grid import Axis, Grid, RegularAxis, VaryingAxis
from gzarr.indexing.keys import Coords
from gzarr.indexing.plan import make_plan
from gzarr.indexing.selection import basic_key
from gzarr.interop.zarr.batches import Batch, NotHandledError, Taken, take
from gzarr.interop.zarr.stores import PlainZarrStore, Stores, for_one_read
from gzarr.layout.sharded import Sharded
from gzarr.metadata import v2, v3
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Store
from gzarr.storage.memory import MemoryStore

#: Decoded bytes of a chunk that is read without a thread, and the seconds that this may take.
_SMALL_NBYTES, _QUICK_S = 1 << 16, 5e-4
#: Slow reads of small chunks, one after the other, that show a slow store. Fewer are a busy machine's.
_MAX_SLOW = 4
#: Chunks, and their decoded bytes, that are fetched before a thread decodes them.
_MAX_FETCHED, _FETCHED_NBYTES = 16, 1 << 24
#: Prepared variants of an array: by path, extents and device; and arrays whose variants are kept for the next opening.
_MAX_PREPARED, _MAX_KEPT = 32, 256
#: Modules whose codecs are gzarr's codecs of the same name. Others may do something else under it.
_KNOWN_CODECS = ("zarr.codecs.", "numcodecs.")
#: The module of the codec that gzarr refuses, and numcodecs too unless it is told that the data are trusted.
_REFUSED = "numcodecs.pickles"
_HOST, _GPU = "zarr.core.buffer.cpu", "zarr.core.buffer.gpu"

_kept: "dict[Hashable, BoundArray]" = {}


def bind(metadata: Any, store: Any) -> "BoundArray":
    """Bind an array to gzarr's engine, with what was prepared for local arrays like it: most are opened repeatedly.

    Raises: GzarrError if gzarr does not know something of it.
    """
    stores = Stores(store)
    key = _key(metadata, stores)
    kept = None if key is None else _kept.get(key)
    if kept is None:
        kept = BoundArray(metadata, stores)
        if key is None:
            return kept
        if len(_kept) >= _MAX_KEPT:
            _kept.clear()
        _kept[key] = kept
    bound = object.__new__(BoundArray)
    vars(bound).update(vars(kept), zarr_store=store, stores=stores)
    if kept.meta.sharding is not None:  # the indexes of shards that it caches are released with the array
        bound._prepared = {}
    return bound


def _key(metadata: Any, stores: Stores) -> Hashable:
    """Return what arrays have in common that are bound alike; None if there is no telling."""
    if not stores.is_local:
        return None
    local: Any = stores.on(None)
    try:
        if metadata.zarr_format == 2:
            codecs = *(metadata.filters or ()), metadata.compressor
            said = [codec and (type(codec), json.dumps(codec.get_config())) for codec in codecs]  # repr leaves out some
            keys = metadata.dimension_separator, metadata.order
            made_of = metadata.shape, metadata.dtype, metadata.chunks, keys, *said
        else:
            grid, keys = metadata.chunk_grid, metadata.chunk_key_encoding
            made_of = metadata.shape, metadata.data_type, grid, keys, metadata.codecs, metadata.storage_transformers
        fill = metadata.fill_value  # its bits, as equal ones may differ in them
        fill = type(fill), fill.tobytes() if isinstance(fill, np.generic) else fill
        key = local.root, registry_state(), metadata.zarr_format, *made_of, *fill
        hash(key)
    except (AttributeError, TypeError):
        return None
    return key


class BoundArray:
    """An array of zarr-python, bound to gzarr's engine.

    Parameters
    ----------
    metadata : ArrayV2Metadata or ArrayV3Metadata
        Its metadata.
    stores : Stores
        What its store is.

    Raises
    ------
    GzarrError
        If gzarr does not know something of it.
    """

    def __init__(self, metadata: Any, stores: Stores) -> None:
        self.zarr_store, self.stores = stores.store, stores
        self.meta = _parse(metadata)
        self.dtype: np.dtype[Any] = metadata.dtype.to_native_dtype()
        self.is_text = self.dtype.kind == "T" and self.meta.data_type.variable == "string"
        own = self.meta.data_type.dtype
        if not self.is_text and not _same(own, self.dtype):
            raise NotHandledError(f"dtype {self.dtype}, which gzarr takes for {own}")
        if lacks_unit(own) and not (own.isnative and self.dtype.isnative):
            raise NotHandledError(f"dtype {self.dtype}: NumPy does not swap the bytes of dates without a unit")
        # zarr-python keeps the chunks of a shard that are not written, wherever the array ends.
        self._keeps_rest = len(self.meta.codecs) == 1 and self.meta.sharding is not None
        self._prepared: dict[Any, ArrayIO] = {}
        self._is_regular = VaryingAxis not in map(type, self.meta.grid)
        self._nchunks = tuple([axis.nchunks for axis in self.meta.grid])
        self._nowhere = (None,) * len(self.meta.grid)
        self._nbytes = math.prod(self.meta.chunks) * own.itemsize
        self._n_slow = 0

    @property
    def waits(self) -> bool:
        """Whether the store answers by coroutines."""
        return not self.stores.need_no_loop

    async def fetch(self, batch: Batch) -> dict[str, Any] | None:
        """Fetch the chunks of a batch of few, by key; None for others, and for shards, of which parts are fetched."""
        if self.meta.sharding is not None or len(batch) > _MAX_FETCHED or self._nbytes * len(batch) > _FETCHED_NBYTES:
            return None
        found = await asyncio.gather(*(entry[0].get(cpu.buffer_prototype) for entry in batch))
        stored = ((entry[0].path, value) for entry, value in zip(batch, found, strict=True) if value is not None)
        return {key: memoryview(value.as_numpy_array()).cast("B") for key, value in stored}

    def is_small(self, batch: Batch, out: Any) -> bool:
        """Whether a batch whose chunks are there is read into ``out`` sooner than a thread can begin."""
        nbytes = max(self._nbytes * len(batch), math.prod(out.shape) * out.dtype.itemsize)  # the latter of whole shards
        return len(batch) <= _MAX_FETCHED and nbytes <= _SMALL_NBYTES

    def read(
        self, batch: Batch, out: Any, drop_axes: tuple[int, ...], loop: Any, fetched: dict[str, Any] | None = None
    ) -> None:
        """Read what a batch takes. fetched: its chunks, if they are there (`fetch`). Raises: GzarrError."""
        began = perf_counter()
        target, device = self._array(batch, out)
        taken, grid = self._take(batch, drop_axes, target.shape, writing=False)
        fields = None if _same(target.dtype, self.dtype) else self._fields(target.dtype)
        io = self._io(taken, grid, device, loop)
        if fetched is not None:
            io = io._replace(store=MemoryStore(fetched), compiled=None)
        self._read(io, taken, target, fields, batch[0][1].config)
        if self.is_small(batch, target):
            self._note(began)

    def _read(self, io: ArrayIO, taken: Taken, target: Any, fields: Fields, config: Any) -> None:
        if getattr(config, "read_missing_chunks", True) is False:
            raise NotHandledError("missing chunks are errors")
        if taken.view is not None:
            target = target[taken.view]
        io = for_one_read(io, config)
        basic, key = _basic(io, taken)
        if basic is not None and fields is None and basic.read(key, target.dtype, target) is not None:
            return
        job = ReadJob(io, make_plan(taken.selection, io.layout.grid), target, fields)
        if self.is_text:
            job = job._replace(out=np.empty(target.shape, object))
        engine.read((job,))
        if self.is_text:
            target[...] = job.out

    @property
    def is_quick(self) -> bool:
        """Whether small chunks were read lately in no more time than it takes to hand them to a thread."""
        return self._nbytes <= _SMALL_NBYTES and self._n_slow < _MAX_SLOW and self.stores.need_no_loop

    def _note(self, began: float) -> None:
        """Note how long the read of a chunk took."""
        self._n_slow = self._n_slow + 1 if perf_counter() - began > _QUICK_S else 0

    @property
    def is_quickly_written(self) -> bool:
        """Whether a write of a small chunk is likely to take no longer than to hand it to a thread."""
        return self.is_quick and self.stores.is_local

    def write(
        self, batch: Batch, value: Any, drop_axes: tuple[int, ...], loop: Any, *, only_at_once: bool = False
    ) -> bool:
        """Write what a batch takes. Returns: whether that was done. Raises: GzarrError.

        only_at_once: leave it if it needs a plan, or would wait for a lock.
        """
        began = perf_counter()
        if self.zarr_store.read_only:
            raise NotHandledError("the store is read-only")
        data, device = self._array(batch, value)
        keep_empty = batch[0][1].config.write_empty_chunks
        own = self.meta.data_type.dtype
        if data.dtype != own:
            if lacks_unit(own):
                raise NotHandledError(f"values of dtype {data.dtype}")
            data = data.astype(own)
        taken, grid = self._take(batch, drop_axes, data.shape, writing=not self._keeps_rest)
        io = self._io(taken, grid, device, loop)
        if data.shape == ():
            data = np.broadcast_to(data, taken.selection.shape)
        elif taken.view is not None:
            data = data[taken.view]
        basic, key = _basic(io, taken)
        done = basic is not None and basic.write(key, data, keep_empty=keep_empty)
        if not done and not only_at_once:
            engine.write((WriteJob(io, make_plan(taken.selection, io.layout.grid), data, None, keep_empty),))
            done = True
        if len(batch) == 1:
            self._note(began)
        return done

    def _array(self, batch: Batch, buffer: Any) -> tuple[Any, str]:
        """Return the array in a buffer, and its device."""
        place, spec = batch[0][:2]
        if place.store is not self.zarr_store:
            raise NotHandledError("another store than the array's")
        kind = type(buffer).__module__
        if kind != spec.prototype.buffer.__module__:
            raise NotHandledError("buffers of two kinds")
        data = buffer.as_ndarray_like()
        if kind == _GPU:
            return data, f"cuda:{data.device.id}"
        if kind != _HOST or not isinstance(data, np.ndarray):
            raise NotHandledError(f"a buffer of {kind}")
        return data.view(np.ndarray), "cpu"

    def _fields(self, wanted: np.dtype[Any]) -> str | list[str]:
        """Return the fields that a result of some dtype is of."""
        fields: Any = self.dtype.fields or {}
        if wanted.names is not None and all(n in fields and fields[n][0] == wanted[n] for n in wanted.names):
            return list(wanted.names)
        names = [name for name in fields if fields[name][0] == wanted]
        if len(names) != 1:
            raise NotHandledError(f"a result of dtype {wanted} of an array of {self.dtype}")
        return str(names[0])

    def _take(self, batch: Batch, drop_axes: tuple[int, ...], shape: Coords, *, writing: bool) -> tuple[Taken, Grid]:
        grid = self.meta.grid if self._is_regular else self._grid_of(batch)
        return take(batch, self._split, grid, drop_axes, shape, writing=writing), grid

    def _split(self, key: str) -> tuple[str, Coords]:
        """Return the path of the array and the coordinates of the chunk of a key."""
        encoding, ndim = self.meta.keys, len(self.meta.shape)
        prefixed = encoding.name == "default"
        if encoding.separator == "/":
            items = key.split("/")
            n = ndim + prefixed or 1
            path, tail = "/".join(items[:-n]), items[-n:]
        else:
            path, _, last = key.rpartition("/")
            tail = last.split(encoding.separator)
        return path, tuple(map(int, tail[1:] if prefixed else tail)) if ndim else ()

    def _grid_of(self, batch: Batch) -> Grid:
        """Return the grid with the lengths that the batch gives: resizing adds chunks that the metadata do not know.

        Where a chunk begins does not matter, as long as all are where they are said to be.
        """
        lengths = [list(axis.lengths) if isinstance(axis, VaryingAxis) else [] for axis in self.meta.grid]
        for getter, spec, *_ in batch:
            for known, c, n in zip(lengths, self._split(getter.path)[1], spec.shape, strict=True):
                if known:
                    known.extend([1] * (c + 1 - len(known)))
                    known[c] = n
        return tuple(
            VaryingAxis(sum(known), tuple(known)) if known else axis
            for axis, known in zip(self.meta.grid, lengths, strict=True)
        )

    def _io(self, taken: Taken, grid: Grid, device: str, loop: Any) -> ArrayIO:
        """Return the array prepared for a backend, ending where it is known to end, or else with its last chunk."""
        within = self._is_regular and taken.ends == self._nowhere and all(map(lt, taken.lasts, self._nchunks))
        store = self.stores.on(loop)
        key: Any = (taken.path, device, id(store))
        if not within:
            key = (*key, taken.lasts, taken.ends, grid)
        found = self._prepared.get(key)
        if found is None:
            if len(self._prepared) >= _MAX_PREPARED:
                self._prepared.clear()
            extended = tuple([_extend(*axis) for axis in zip(grid, taken.lasts, taken.ends, strict=True)])
            found = self._prepared[key] = self._prepare(store, taken.path, extended, device)
        return found

    def _prepare(self, store: Store, path: str, grid: Grid, device: str) -> ArrayIO:
        meta = replace(self.meta, shape=tuple([axis.extent for axis in grid]), grid=grid)
        io = prepare_array(meta, store, path, backend_for(device))
        # Of a chunk that reaches past a known end zarr-python keeps nothing there, where gzarr would.
        nowhere = (-1,) * len(grid)
        io.layout.cut = nowhere, nowhere
        if isinstance(io.layout, Sharded) and isinstance(io.store, PlainZarrStore):
            io.layout.whole_share = 1  # as zarr-python does
        return io


def _basic(io: ArrayIO, taken: Taken) -> tuple[Any, tuple[slice, ...] | None]:
    """Return what reads and writes a selection without a plan, if anything does, and what it takes."""
    key = None if io.compiled is None else basic_key(taken.selection)
    return None if io.compiled is None or key is None else io.compiled.basic(), key


def _same(one: np.dtype[Any], two: np.dtype[Any]) -> bool:
    """Whether dtypes are one, byte order aside."""
    return one == two or (one.kind == two.kind != "T" and one.newbyteorder("=") == two.newbyteorder("="))


def _extend(axis: Axis, last: int, end: int | None) -> Axis:
    if isinstance(axis, RegularAxis):
        n = axis.length
        return RegularAxis(max(-(-axis.extent // n), last + 1) * n if end is None else end, n)
    return VaryingAxis(axis.starts[-1] if end is None else end, axis.lengths)


def _parse(metadata: Any) -> ArrayMeta:
    """Return zarr-python's metadata as gzarr's. Raises: MetadataError, NotHandledError for codecs of other packages."""
    is_v2 = metadata.zarr_format == 2
    codecs = (*(metadata.filters or ()), metadata.compressor) if is_v2 else _flat(metadata.codecs)
    for codec in codecs:
        module = type(codec).__module__
        if codec is not None and (module == _REFUSED or not module.startswith(_KNOWN_CODECS)):
            raise NotHandledError(f"codec {codec!r}")
    if is_v2:
        stored = metadata.to_buffer_dict(cpu.buffer_prototype)[".zarray"].to_bytes()
        meta: object = v2.parse_array(json.loads(stored), {}, "zarr-python")
    else:
        try:
            stored = json.dumps({**metadata.to_dict(), "attributes": {}}).encode()
        except TypeError:  # what only zarr-python can encode, which takes five times as long
            stored = metadata.to_buffer_dict(cpu.buffer_prototype)["zarr.json"].to_bytes()
        meta = v3.parse_bytes(stored, "zarr-python", {})
    if not isinstance(meta, ArrayMeta):
        raise NotHandledError("no array")
    if meta.fill_value is None:
        meta = replace(meta, fill_value=metadata.dtype.default_scalar())
    return meta if is_v2 else replace(meta, codecs=_in_order(meta.codecs, metadata.codecs))


def _in_order(specs: tuple[CodecSpec, ...], codecs: Any) -> tuple[CodecSpec, ...]:
    """Return specs that write the chunks of shards in zarr-python's order, which metadata do not say."""
    ordered = []
    for spec, codec in zip(specs, codecs, strict=True):
        if isinstance(spec, ShardingCodec):
            order: Any = getattr(codec, "subchunk_write_order", "morton")
            order = "lexicographic" if order == "unordered" else order
            spec = replace(spec, codecs=_in_order(spec.codecs, codec.codecs), subchunk_write_order=order)  # noqa: PLW2901
        ordered.append(spec)
    return tuple(ordered)


def _flat(codecs: Any) -> list[Any]:
    """Return codecs with those inside of shards."""
    flat = []
    for codec in codecs:
        flat += [codec, *_flat(getattr(codec, "codecs", ())), *_flat(getattr(codec, "index_codecs", ()))]
    return flat
