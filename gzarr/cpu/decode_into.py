"""Decodes chunks into given memory, where a chain allows it.

Most chains are a bytes codec and one compressor, perhaps with transposes before and a checksum behind. Their chunks are
decoded into the result itself if they fill one run of it, otherwise into scratch memory, which stays in cache and
costs no page faults.
"""

from __future__ import annotations

import mmap
import os
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.registry import registered_factory
from gzarr.codecs.spec import ArrayRepr, Codec, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.cpu.codecs.arrays import is_unswappable
from gzarr.cpu.codecs.compressors import blosc_decoder, gzip_decoder, lz4_decoder, zlib_decoder, zstd_decoder
from gzarr.cpu.codecs.per_chunk import Decoder, fail, wrong_size
from gzarr.errors import MissingExtraError
from gzarr.indexing.copies import Slots
from gzarr.indexing.plan import Part

#: Smaller chunks are decoded into memory of their own, which the allocator reuses.
MIN_SCRATCH_NBYTES = 1 << 17
#: Larger ones too: no more scratch memory than this is kept for each core.
_MAX_SCRATCH_NBYTES = 1 << 26

#: NumPy asks the system for huge pages for allocations of so many bytes.
_MIN_HUGE_NBYTES = 1 << 22

#: Results of these types do nothing but take a copy of what is put into them.
PLAIN_ARRAYS = (np.ndarray, np.memmap)

#: Compressors that decode into given memory.
_INTO: Mapping[str, Callable[[int], Decoder]] = {
    "blosc": blosc_decoder,
    "gzip": gzip_decoder,
    "numcodecs.blosc": blosc_decoder,
    "numcodecs.gzip": gzip_decoder,
    "numcodecs.lz4": lz4_decoder,
    "numcodecs.zlib": zlib_decoder,
    "numcodecs.zstd": zstd_decoder,
    "zstd": zstd_decoder,
}


class DecodeInto(NamedTuple):
    """How chunks of one shape are decoded into given memory.

    Attributes
    ----------
    outer : tuple[Codec, ...]
        Codecs that are decoded first, in encoding order.
    codec : str
        Name of the compressor, for errors; "bytes" if there is none.
    function : Decoder or None
        Decodes bytes, into an array of bytes if one is given; None if there is no compressor.
    dtype : np.dtype[Any]
        Dtype as stored, with its byte order.
    shape : tuple[int, ...]
        Shape as stored.
    order : tuple[int, ...]
        The array axis of every stored axis.
    inverse : tuple[int, ...] or None
        The permutation back; None if there is nothing to permute.
    nbytes : int
        Decoded size.
    compressor : Step or None
        None if there is none.
    """

    outer: tuple[Codec, ...]
    codec: str
    function: Decoder | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: tuple[int, ...]
    inverse: tuple[int, ...] | None
    nbytes: int
    compressor: Step | None

    def timed(self, timed: Callable[[Any], Any]) -> DecodeInto:
        """The same with decoders that are timed."""
        outer = tuple(codec._replace(decode=timed(codec.decode)) for codec in self.outer)
        return self._replace(function=None if self.function is None else timed(self.function), outer=outer)


def make_decode_into(steps: Sequence[Step], codecs: Sequence[Codec]) -> DecodeInto | None:
    """Prepare a chain; None if chunks must go through its codecs one by one."""
    n = next((i for i, step in enumerate(steps) if not isinstance(step.spec, TransposeCodec)), len(steps))
    if n == len(steps) or not isinstance(steps[n].spec, BytesCodec):
        return None
    spec: Any = steps[n].spec
    stored = steps[n].decoded
    if not isinstance(stored, ArrayRepr) or not stored.nbytes or is_unswappable(stored.dtype):
        return None
    if any(registered_factory("cpu", step.spec.name) is not None for step in steps):
        return None
    order = tuple(range(len(stored.shape)))
    for step in steps[:n]:
        transpose: Any = step.spec
        order = tuple(order[axis] for axis in transpose.order)
    name = steps[n + 1].spec.name if n + 1 < len(steps) else "bytes"
    make = _INTO.get(name)
    outer = tuple(codecs[n + 1 if make is None else n + 2 :])
    name = "bytes" if make is None else name
    return DecodeInto(
        outer=outer,
        codec=name,
        function=None if make is None else make(stored.nbytes),
        dtype=stored.dtype if spec.endian is None else stored.dtype.newbyteorder(spec.endian),
        shape=stored.shape,
        order=order,
        inverse=None if order == tuple(range(len(order))) else tuple(int(a) for a in np.argsort(order)),
        nbytes=stored.nbytes,
        compressor=None if make is None else steps[n + 1],
    )


def place(into: DecodeInto, buffers: Sequence[Any], parts: Sequence[Part], out: Any, fields: Any, fill: Any) -> None:
    """Decode chunks one by one and copy their parts into ``out``. Raises: CodecError(index)."""
    if into.nbytes < MIN_SCRATCH_NBYTES:
        _place_each(into, partial(_small_piece, into, fields), buffers, parts, out, fill)
    # Arrays of another kind may do more than copy what they are given: hold on to it, or read other chunks.
    elif out.dtype.hasobject or not _only_copies(out):
        _place_each(into, partial(_large_piece, into, fields, None, _fresh), buffers, parts, out, fill)
    else:
        with lent_scratch() as scratch:
            _place_each(into, partial(_large_piece, into, fields, out, scratch.room), buffers, parts, out, fill)


def _only_copies(out: Any) -> bool:
    """Whether a result does nothing but take copies of what is put into it."""
    return all(type(block) in PLAIN_ARRAYS for block in (out.blocks if type(out) is Slots else (out,)))


def _place_each(
    into: DecodeInto, decode: Decoder, buffers: Sequence[Any], parts: Sequence[Part], out: Any, fill: Any
) -> None:
    """Decode chunks and copy their parts into ``out``. fill: the value of missing chunks.

    decode: from an encoded chunk and its part to that part's values; None if it has decoded into the result. Only what
        it raises is a fault of the chunk.
    """
    for index, (buffer, part) in enumerate(zip(buffers, parts, strict=True)):
        if buffer is None:
            out[part.out] = fill
            continue
        try:
            piece = decode(buffer, part)
        except (MemoryError, MissingExtraError):
            raise
        except Exception as error:  # noqa: BLE001  any library's complaint about a chunk
            fail(into.codec, index, error)
        if piece is not None:
            out[part.out] = piece


def _small_piece(into: DecodeInto, fields: Any, buffer: Any, part: Part) -> Any:
    for codec in reversed(into.outer):
        (buffer,) = codec.decode((buffer,))
    return _piece(into, fields, buffer if into.function is None else into.function(buffer), part)


def _large_piece(into: DecodeInto, fields: Any, out: Any, room: _Room, buffer: Any, part: Part) -> Any:
    """out: where to decode if the chunk fills one run of it, or None. room: gives memory for other chunks."""
    for codec in reversed(into.outer):
        (buffer,) = codec.decode((buffer,))
    if into.function is None:
        return _piece(into, fields, buffer, part)
    run = None if out is None or fields is not None else _run(into, part, out)
    data = into.function(buffer, room(into.nbytes) if run is None else run)
    if run is None:
        return _piece(into, fields, data, part)
    _check_size(into, data)
    return None


def _piece(into: DecodeInto, fields: Any, data: Any, part: Part) -> Any:
    """The part of a decoded chunk: a view."""
    _check_size(into, data)
    return _viewed(into, fields, np.ndarray(into.shape, into.dtype, data))[part.inside]


def _check_size(into: DecodeInto, data: Any) -> None:
    if len(data) != into.nbytes:
        raise wrong_size(into.codec, into.nbytes, len(data))


def _viewed(into: DecodeInto, fields: Any, chunk: Any) -> Any:
    """A chunk with its axes in the array's order and with the fields that are wanted."""
    if into.inverse is not None:
        chunk = chunk.transpose(into.inverse)
    return chunk if fields is None else chunk[fields]


def _run(into: DecodeInto, part: Part, out: Any) -> Any:
    """The bytes of the result that a chunk fills in one run, in its own byte order; None if it does not."""
    if into.inverse is not None or out.dtype != into.dtype or type(part.out) is not tuple:
        return None
    if not part.full or not all(type(index) is slice for index in part.inside):
        return None
    region = out[part.out]
    if not isinstance(region, np.ndarray) or region.shape != into.shape or not region.flags.c_contiguous:
        return None
    return region.reshape(-1).view(np.uint8)


#: Gives flat memory of so many bytes.
_Room = Callable[[int], np.ndarray[Any, Any]]


def _fresh(nbytes: int) -> np.ndarray[Any, Any]:
    return np.empty(nbytes, np.uint8)


def _pages(nbytes: int) -> np.ndarray[Any, Any]:
    """Flat memory without the huge pages that NumPy asks for: little of it is touched, here and there."""
    if nbytes < _MIN_HUGE_NBYTES or not hasattr(mmap, "MAP_ANONYMOUS"):
        return _fresh(nbytes)
    return np.frombuffer(mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), np.uint8)


class _Scratch:
    """Memory to decode into, chunk after chunk."""

    __slots__ = ("_memory",)

    def __init__(self) -> None:
        self._memory = _fresh(0)

    def room(self, nbytes: int) -> np.ndarray[Any, Any]:
        """Memory that is valid until the next call: flat uint8."""
        if nbytes > _MAX_SCRATCH_NBYTES:
            return _fresh(nbytes)
        if self._memory.size < nbytes:
            self._memory = _pages(nbytes)
        return self._memory[:nbytes]


#: Scratch memory that nobody decodes into, for as many threads as decode at once: those that wait are many more.
_spare: deque[_Scratch] = deque(maxlen=os.cpu_count() or 1)


class lent_scratch:  # noqa: N801 - used like a function
    """A context with scratch memory, the one that was used last.

    Meanwhile nobody else has it: a read in the midst of another, as a signal handler or a finalizer may begin one, has
    its own.
    """

    __slots__ = ("_scratch",)

    def __enter__(self) -> _Scratch:
        try:
            self._scratch = _spare.pop()
        except IndexError:
            self._scratch = _Scratch()
        return self._scratch

    def __exit__(self, *exc: object) -> None:
        _spare.append(self._scratch)
