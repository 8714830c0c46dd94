"""The CPU backend: decodes chunk by chunk while each is in cache, on several threads where that pays."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gzarr.backend import Array, Chain, Fields, Placement
from gzarr.codecs.spec import ArrayRepr, Step, equals_fill, fill_of
from gzarr.cpu.codecs.objects import DecodeRows, make_decode_rows
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.casts import take
from gzarr.cpu.compiled.eligibility import CompiledLoop
from gzarr.cpu.compiled.read import are_few, place_buffers
from gzarr.cpu.compiled.source import LoopChain, make_loop_chain
from gzarr.cpu.scratch import measured
from gzarr.cpu.sharding import codecs_for
from gzarr.cpu.threads import decoders, load_host, run
from gzarr.cpu.windows import reduce_windows
from gzarr.dtypes.scalars import as_assigned
from gzarr.errors import CodecError
from gzarr.indexing.plan import Part
from gzarr.layout.chunk_layout import Layout
from gzarr.profiling.recorder import staged
from gzarr.storage.base import Buffer, Store
from gzarr.tensors import is_on_device, memory_of, to_host


class _Prepared(NamedTuple):
    """How the backend decodes a chain.

    Attributes
    ----------
    loop : callable
        Returns the chain as passed to the compiled loop, or why the loop does not support it. Called when many
        chunks are first read or written, as this takes longer than opening an array.
    rows : callable or None
        Decodes rows of a chunk of strings; None for other chunks.
    fill : object
        An element of a missing chunk.
    """

    loop: Callable[[], LoopChain | str]
    rows: DecodeRows | None
    fill: Any


def as_numpy(value: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """A value to be written as a NumPy array. Numbers and lists are checked against ``dtype``, as NumPy does."""
    if type(value) is np.ndarray:
        return value  # before `np.ma`, whose import by one thread would stop a child that another one forks
    if isinstance(value, np.ndarray):
        # A part of a matrix keeps two axes, and one of a masked array its mask.
        return np.asarray(value) if isinstance(value, (np.matrix, np.ma.MaskedArray)) else value
    value = to_host(value)
    if isinstance(value, np.generic):
        return as_assigned(value, dtype)
    if isinstance(value, (str, bytes)) or not hasattr(value, "__array__"):
        return np.asarray(value, dtype)
    return np.asarray(value)


class Owned:
    """Memory by its array interface: NumPy's views keep the object alive that it is from if that is no array itself."""

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__, self.owner = interface, owner


def owned_by(array: np.ndarray[Any, Any], owner: object) -> np.ndarray[Any, Any]:
    """An array in the same memory that keeps an owner alive, as all views of it do."""
    shared = np.asarray(Owned(array.__array_interface__, (array, owner)))
    return shared if shared.dtype == array.dtype else shared.view(array.dtype)


#: Decoded bytes of one batch: the chunks of one read request, or of one thread's turn.
BATCH_NBYTES = 1 << 20
#: Chunks of one batch; all their objects are locked while it is written.
MAX_BATCH_NCHUNKS = 64


class CpuBackend:
    """Decodes on the host into NumPy arrays.

    Attributes
    ----------
    device
        "cpu".
    xp
        The module numpy.
    """

    device = "cpu"
    xp: Any = np
    options: Mapping[str, Any] = MappingProxyType({})
    marker = None
    asarray = staticmethod(as_numpy)
    owned_by = staticmethod(owned_by)
    run = staticmethod(run)
    measured = staticmethod(measured)
    reduce_windows = staticmethod(reduce_windows)
    load = staticmethod(load_host)
    take = staticmethod(take)
    own_stream = current = staticmethod(nullcontext)  # there are no streams

    @property
    def host(self) -> "CpuBackend":
        """The backend itself."""
        return self

    def prepare(self, steps: tuple[Step, ...], chunk: ArrayRepr) -> Chain:
        """Make a chain ready to run. Raises: UnknownCodecError, MissingExtraError."""
        codecs = codecs_for(steps)
        placement = tuple(Placement(step.spec.name, "host", "the array is on the CPU") for step in steps)
        loop = cache(partial(make_loop_chain, steps, chunk))
        return Chain(chunk, codecs, placement, _Prepared(loop, make_decode_rows(steps, codecs, chunk), fill_of(chunk)))

    def batch_nchunks(self, chain: Chain | None, nchunks: int, nbytes: int, *, writing: bool) -> int:
        """How many chunks one batch should hold."""
        return min(max(BATCH_NBYTES // nbytes, 1), MAX_BATCH_NCHUNKS)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: object | None = None) -> Array:
        """An uninitialized NumPy array. Raises: MemoryError."""
        try:
            return np.empty(shape, dtype)
        except ValueError as error:  # NumPy's, which names no shape
            raise MemoryError(f"no memory holds an array of shape {shape} and {dtype}: select a part of it") from error

    def adopt_out(self, out: Any) -> Array:
        """An array to read into, as is. Raises: ValueError if it is in GPU memory, TypeError if it is not an array."""
        out = memory_of(out)
        if is_on_device(out):
            raise ValueError("out is in GPU memory, but the array is read on the CPU: open it with device='cuda'")
        if not hasattr(out, "shape") or not hasattr(out, "dtype"):
            raise TypeError(f"out must be an array, got {type(out).__name__}")
        return out

    def place(
        self, chain: Chain, buffers: Sequence[Buffer | None], parts: Sequence[Part], out: Array, fields: Fields
    ) -> None:
        """Decode chunks one by one and copy their parts into ``out``. Raises: CodecError(index)."""
        loop, rows, fill = chain.prepared
        if fields is not None:
            fill = fill_of(chain.chunk, fields)
        elif out.dtype != chain.chunk.dtype and not chain.chunk.dtype.hasobject:
            with np.errstate(all="ignore"):  # a NaN that becomes an integer, as in the chunks that are there
                fill = np.asarray(fill).astype(out.dtype)[()]
        left: Sequence[int] = range(len(parts))
        is_many = fields is None and not are_few(chain.chunk.nbytes or 0, len(parts))
        if is_many and library.loop() is not None and not isinstance(loop_chain := loop(), str):
            left = staged("loop", decoders.call, partial(place_buffers, loop_chain, buffers, parts, out))
        for index in left:
            buffer, part = buffers[index], parts[index]
            if buffer is None:
                out[part.out] = fill
                continue
            if rows is not None:
                _place_strings(chain, rows, buffer, (index, part), out)
                continue
            chunk = _decode_one(chain, buffer, index)
            if fields is not None:
                chunk = chunk[fields]
            out[part.out] = chunk[part.inside]

    def compiled(self, store: Store, layout: Layout, chain: Chain | None, *, cached: bool) -> CompiledLoop:
        """Return what decides on the compiled loop for an array."""
        prepared: _Prepared | None = None if chain is None else chain.prepared
        loop = None if prepared is None else prepared.loop
        return CompiledLoop(store, layout, loop, cached=cached, is_numpy=type(self) is CpuBackend)

    def decode(self, chain: Chain, buffers: Sequence[Buffer | None]) -> list[Array]:
        """Decode whole chunks into arrays of their own; a missing chunk is filled. Raises: CodecError(index)."""
        chunks: list[Array] = []
        for index, buffer in enumerate(buffers):
            if buffer is None:
                chunks.append(np.full(chain.chunk.shape, fill_of(chain.chunk, None), chain.chunk.dtype))
            else:
                chunks.append(_changeable(chain, buffer, index))
        return chunks

    def merge_and_encode(
        self,
        chain: Chain,
        old: Sequence[Buffer | None],
        value: Array,
        parts: Sequence[Part],
        fields: Fields,
        *,
        keep_empty: bool,
    ) -> list[Buffer | None]:
        """Merge and encode chunks one by one, each while it is in cache. Raises: CodecError(index)."""
        encoded: list[Buffer | None] = []
        drops = not keep_empty and chain.chunk.fill_value is not None
        for index, (buffer, part) in enumerate(zip(old, parts, strict=True)):
            base = None if buffer is None else _changeable(chain, buffer, index)
            chunk = _gather_one(chain.chunk, value, part, base, fields)
            if drops and equals_fill(chunk, chain.chunk):
                encoded.append(None)
                continue
            try:
                encoded.append(chain.encode((chunk,))[0])
            except CodecError as error:
                error.index = index
                raise
        return encoded

    def current_stream(self) -> None:
        """None: there are no streams."""

    def record(self, stream: object | None = None) -> None:
        """None: everything is done when it returns."""

    def wait(self, mark: object | None, stream: object | None = None) -> None:
        """Do nothing: everything is done when it returns."""

    def finish(self) -> None:
        """Do nothing."""

    def upload(self, array: NDArray[Any], stream: object | None) -> NDArray[Any]:
        """The array."""
        return array

    def mapped(self, memory: NDArray[Any]) -> NDArray[Any]:
        """The memory."""
        return memory


def _decode_one(chain: Chain, buffer: Buffer, index: int) -> Array:
    try:
        return staged("decode", chain.decode, (buffer,))[0]
    except CodecError as error:
        error.index = index
        raise


def _place_strings(
    chain: Chain, rows: DecodeRows, buffer: Buffer, numbered: tuple[int, Part], out: np.ndarray[Any, Any]
) -> None:
    """Decode the strings that a part takes from its chunk. numbered: the part after its index."""
    index, (_, inside, to, _) = numbered
    if type(inside) is not tuple or type(inside[0]) is not slice:
        out[to] = _decode_one(chain, buffer, index)[inside]
        return
    is_run = len(inside) == 1 and type(out) is np.ndarray and type(to) is tuple and {*map(type, to)} == {slice}
    into = out[to] if is_run and out.dtype == object else None
    try:
        found = rows(buffer, inside[0], into if into is not None and into.flags.c_contiguous else None)
    except CodecError as error:
        error.index = index
        raise
    if found is not into:
        out[to] = found[(slice(None), *inside[1:])]


def _changeable(chain: Chain, buffer: Buffer, index: int) -> Array:
    """A decoded chunk in memory of its own."""
    chunk = _decode_one(chain, buffer, index)
    # A decoder may hand out a read-only view of stored bytes, or another byte order.
    keep = chunk.flags.writeable and chunk.flags.owndata and chunk.dtype == chain.chunk.dtype
    return chunk if keep else chunk.astype(chain.chunk.dtype, copy=True)


def _gather_one(chunk: ArrayRepr, value: Array, part: Part, old: Array | None, fields: Fields) -> Array:
    values = value[part.out]
    if type(values) is not np.ndarray and is_on_device(values):  # of an array that is read on a GPU as it is written
        values = as_numpy(values, chunk.dtype)
    if old is None:
        whole = fields is None and isinstance(values, np.ndarray) and values.shape == chunk.shape
        if whole and type(part.inside) is tuple and {*map(type, part.inside)} <= {slice}:
            return np.ascontiguousarray(values, chunk.dtype).reshape(chunk.shape)
        old = np.full(chunk.shape, fill_of(chunk, None), chunk.dtype)
    # A point of an array without axes: with a new axis its one element takes a list of one value.
    inside = part.inside if chunk.shape or isinstance(part.out, tuple) else (None,)
    if fields is None:
        old[inside] = values
    else:
        old[fields][inside] = values
    return old
