"""Describes an array to the compiled loop, for every read and write, and what is taken of each of its elements."""

import struct
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numcodecs.blosc import Blosc
from numcodecs.gzip import GZip
from numcodecs.lz4 import LZ4
from numcodecs.zlib import Zlib
from numcodecs.zstd import Zstd

from gzarr.backend import Fields
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.compressors import AUTO_SHUFFLE, BloscCodec
from gzarr.codecs.registry import registered_factory, to_numcodecs
from gzarr.codecs.spec import ArrayRepr, Step, fill_of
from gzarr.codecs.transpose import TransposeCodec
from gzarr.cpu.codecs.arrays import is_unswappable
from gzarr.cpu.codecs.compressors import DEFLATE_LEVELS, MAX_TYPESIZE
from gzarr.cpu.compiled import library
from gzarr.cpu.compiled.casts import NO_CAST, cast_numbers
from gzarr.cpu.compiled.encoder import CNAME_NBYTES, Encoder, with_frames
from gzarr.cpu.compiled.filters import ARRAY_FILTERS, BYTES_FILTERS, FILTERS, make_filters
from gzarr.cpu.compiled.ranges import FileRanges
from gzarr.indexing.keys import KeyEncoding
from gzarr.layout.chunk_layout import Layout
from gzarr.storage.base import Store

#: Results of these types do nothing but take a copy of what is put into them.
PLAIN_ARRAYS = (np.ndarray, np.memmap)

#: All of every element, as it is.
WHOLE = (0, 0, 0, 0, 0)
#: Axes that the loop's tables have room for (MAX_NDIM).
MAX_NDIM = 32
#: Longest axis: no number in the tables overflows, however long the chunks.
MAX_EXTENT = 1 << 62
#: Larger chunks are not for the loop: a thread asks for scratch memory for two of them.
MAX_NBYTES = 1 << 28
#: Codecs whose chunks are decoded block by block from so many bytes on (MIN_BLOCKWISE): smaller ones stay in cache.
_IN_BLOCKS, MIN_IN_BLOCKS = ("blosc", "numcodecs.blosc", "bytes"), 1 << 18
#: Encoded chunks are rarely larger than decoded ones; the loop leaves one that is, by an eighth and this.
MAX_GROWTH_NBYTES = 1 << 12


class LoopChain(NamedTuple):
    """A codec chain in the loop's terms.

    Attributes
    ----------
    chunk : ArrayRepr
        The decoded chunk.
    dtype : np.dtype[Any]
        Dtype as stored, with its byte order.
    number : int
        The loop's number of the compressor.
    checksum : int
        The loop's number of the checksum that follows; 0 for none.
    in_blocks : bool
        Whether chunks are so large that only the blocks a part touches are read.
    lengths, strides : tuple[int, ...]
        Of a decoded chunk, in elements and bytes, along the array's axes.
    nbytes : int
        Bytes of a decoded chunk.
    max_encoded : int
        Bytes that an encoded chunk may have.
    fill : bytes
        An element of a missing chunk.
    encoder : Encoder or None
        How chunks are compressed; None if the loop cannot do that.
    filters : bytes
        The loop's table of filters.
    widest : int
        The most bytes that a chunk has between its filters, or decoded.
    """

    chunk: ArrayRepr
    dtype: np.dtype[Any]
    number: int
    checksum: int
    in_blocks: bool
    lengths: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int
    max_encoded: int
    fill: bytes
    encoder: Encoder | None
    filters: bytes
    widest: int

    @property
    def write_nbytes(self) -> int:
        """Bytes of scratch memory that a write takes."""
        encoder = self.encoder or Encoder()
        return self.nbytes + self.max_encoded + (2 * encoder.block if encoder.frame else 0)

    def job(
        self, swap: int, separator: str, array: Any, npoints: int = -1, element: Sequence[int] = WHOLE, rows: int = 0
    ) -> bytes:
        """Return the loop's struct Job. swap: see `swapped`. separator: of keys. array: the result, or the value.

        npoints: -1 for boxes, of which ``array`` is the first slot if there are several. element: `Element.numbers`.
        rows: slots of a block.
        """
        ndim, padding = len(self.lengths), (0,) * (len(self.lengths) - array.ndim)
        head = ndim, self.dtype.itemsize, self.nbytes, self.max_encoded, self.number, swap, self.checksum
        address = array.__array_interface__["data"][0]
        axes = *self.lengths, *self.strides, *array.shape, *padding, *array.strides, *padding
        more = ord(separator), address, npoints, rows, *element
        return struct.pack(f"{16 + 4 * ndim}q", *head, *more, *axes) + self.filters


class ChunkTime:
    """How many seconds a chunk of an array takes one thread, as calls of the loop find it; 0 before the first one."""

    __slots__ = ("chunk_s",)

    def __init__(self) -> None:
        self.chunk_s = 0.0

    def note(self, seconds: float, nchunks: int) -> None:
        """Note how long some chunks took; older notes fade."""
        each = seconds / nchunks
        self.chunk_s = (self.chunk_s + each) / 2 if self.chunk_s else each


class Source(NamedTuple):
    """The chunks of an array: where they are, and what they are.

    Attributes
    ----------
    store, layout
        Where they are.
    path : str
        Of the array in the store.
    keys : KeyEncoding
        How coordinates become keys.
    prefix : str
        Beginning of the paths of the array's files.
    chain : LoopChain
        Of all chunks.
    chunk_time, write_chunk_time : ChunkTime
        How long the loop takes to read and to write one.
    in_memory : bool
        Whether the store brings chunks into memory, as it has no files; the prefix is that of their keys.
    ranges : FileRanges or None
        The chunks, if they are ranges of files of another format.
    """

    store: Store
    layout: Layout
    path: str
    keys: KeyEncoding
    prefix: str
    chain: LoopChain
    chunk_time: ChunkTime
    write_chunk_time: ChunkTime
    in_memory: bool = False
    ranges: FileRanges | None = None

    def file(self, key: str) -> str:
        """Path of the file of a stored object."""
        return self.prefix + (key[len(self.path) + 1 :] if self.path else key)


class _Stored(NamedTuple):
    """A chain without filters: transposes, the codec "bytes", a compressor and a checksum.

    Attributes
    ----------
    dtype : np.dtype[Any]
        Dtype as stored, with its byte order.
    shape : tuple[int, ...]
        Shape as stored.
    order : tuple[int, ...]
        The array axis of every stored axis.
    compressor : Step or None
        None if there is none.
    checksum : int
        As of `LoopChain`.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: tuple[int, ...]
    compressor: Step | None
    checksum: int


def _stored(steps: Sequence[Step]) -> _Stored | None:
    """How chunks of a chain without filters are stored; None if their dtype is not known to the loop."""
    n = next(i for i, step in enumerate(steps) if not isinstance(step.spec, TransposeCodec))
    spec: Any = steps[n].spec
    stored = steps[n].decoded
    known = isinstance(spec, BytesCodec) and isinstance(stored, ArrayRepr) and stored.nbytes
    if not known or not isinstance(stored, ArrayRepr) or is_unswappable(stored.dtype):
        return None
    order = tuple(range(len(stored.shape)))
    for step in steps[:n]:
        transpose: Any = step.spec
        order = tuple(order[axis] for axis in transpose.order)
    rest = {step.spec.name in library.COMPRESSORS: step for step in steps[n + 1 :]}
    checksum = library.CHECKSUMS[rest[False].spec.name] if False in rest else 0
    dtype = stored.dtype if spec.endian is None else stored.dtype.newbyteorder(spec.endian)
    return _Stored(dtype, stored.shape, order, rest.get(True), checksum)


def make_loop_chain(steps: Sequence[Step], chunk: ArrayRepr) -> LoopChain | str:
    """Describe a chain for the loop, or say why the loop does not know it."""
    obstacle = _obstacle([step.spec.name for step in steps])
    if obstacle is not None:
        return obstacle
    filters = make_filters(steps)
    if isinstance(filters, str):
        return filters
    stored = _stored(steps) if filters is None else _without_filters(steps, filters.decoded)
    if stored is None:
        return f"chunks of dtype {chunk.dtype} are not known to the loop"
    compressor, checksum = stored.compressor, stored.checksum
    codec = "bytes" if compressor is None else compressor.spec.name
    number = library.codec_number(codec, checksum=checksum)
    if number is None:
        return library.problem() or library.lacking(codec, checksum=checksum)
    if not 0 < len(stored.shape) <= MAX_NDIM:
        return f"the loop supports 1 to {MAX_NDIM} dimensions"
    lengths, strides = [0] * len(stored.shape), [0] * len(stored.shape)
    nbytes = stored.dtype.itemsize
    for axis, n in zip(reversed(stored.order), reversed(stored.shape), strict=True):
        lengths[axis], strides[axis] = n, nbytes
        nbytes *= n
    if nbytes > MAX_NBYTES:
        return f"chunks are larger than {MAX_NBYTES >> 20} MiB"
    widest = nbytes if filters is None else filters.widest
    if widest > MAX_NBYTES:
        return f"filters make chunks larger than {MAX_NBYTES >> 20} MiB"
    return LoopChain(
        chunk=chunk,
        dtype=stored.dtype,
        number=number,
        checksum=checksum,
        in_blocks=not filters and not checksum and codec in _IN_BLOCKS and nbytes >= MIN_IN_BLOCKS,
        lengths=tuple(lengths),
        strides=tuple(strides),
        nbytes=nbytes,
        max_encoded=widest + widest // 8 + MAX_GROWTH_NBYTES + (2 * widest - nbytes if filters else 0),
        fill=np.asarray(fill_of(chunk), chunk.dtype).tobytes(),
        encoder=make_encoder(compressor, checksum=checksum),
        filters=filters.table if filters else b"",
        widest=widest,
    )


def _without_filters(steps: Sequence[Step], decoded: ArrayRepr) -> _Stored | None:
    """How chunks would be stored if a chain had no filters, but for what these encode."""
    kept = [step for step in steps if step.spec.name not in FILTERS]
    stored = _stored([step._replace(decoded=decoded) if step.spec.name == "bytes" else step for step in kept])
    if stored is None or not any(step.spec.name in ARRAY_FILTERS for step in steps):
        return stored
    return stored._replace(dtype=decoded.dtype)


def make_encoder(step: Step | None, *, checksum: int) -> Encoder | None:
    """Return parameters with which the loop encodes as the CPU's codec does; None if it cannot.

    step: of the compressor, None for none. checksum: the loop's number of what follows.
    """
    encoder = _encoder(step, checksum=checksum)
    if encoder is None or {*map(type, encoder[:4])} != {int} or type(encoder.cname) is not str:
        return None
    # The loop's fields must hold the parameters. Codecs check the others, and may refuse them.
    small = abs(encoder.level) < 1 << 31 and encoder.shuffle in range(3) and encoder.blocksize in range(1 << 31)
    if not (small and encoder.cname.isascii() and len(encoder.cname) < CNAME_NBYTES):
        return None
    return with_frames(encoder, step.decoded.nbytes or 0) if step is not None and encoder.cname else encoder


def _encoder(step: Step | None, *, checksum: int) -> Encoder | None:
    if library.codec_number("bytes" if step is None else step.spec.name, checksum=checksum, encodes=True) is None:
        return None
    if step is None:
        return Encoder()
    codec: Any = to_numcodecs(step.spec)
    if type(codec) is Blosc and getattr(codec, "_typesize", None) is None:
        decoded: Any = step.decoded
        typesize: Any = step.spec.typesize if isinstance(step.spec, BloscCodec) else decoded.itemsize
        if typesize > MAX_TYPESIZE or decoded.nbytes % typesize:
            typesize = 1
        shuffle = (2 if typesize == 1 else 1) if codec.shuffle == AUTO_SHUFFLE else codec.shuffle
        return Encoder(codec.clevel, shuffle, typesize, codec.blocksize, cname=codec.cname)
    if type(codec) is Zstd:
        return Encoder(codec.level, checksum=bool(codec.checksum))
    if type(codec) in (GZip, Zlib):
        return Encoder(codec.level) if codec.level in DEFLATE_LEVELS else None
    return Encoder(codec.acceleration) if type(codec) is LZ4 else None


#: The codecs of chains that the loop knows, in their order, and whether there may be several of a kind.
_ORDER: tuple[tuple[Collection[str], bool], ...] = (
    (("transpose",), True),
    (ARRAY_FILTERS, True),
    (("bytes",), False),
    (BYTES_FILTERS, True),
    (library.COMPRESSORS, False),
    (library.CHECKSUMS, False),
)


def _obstacle(names: list[str]) -> str | None:
    """Say why the loop does not know a chain of codecs with these names; None if it may."""
    for name in names:
        if registered_factory("cpu", name) is not None:
            return f"codec {name!r} was registered by another package"
    rest = deque(names)
    # What may follow what, and whether more than once.
    for known, often in _ORDER:
        while rest and rest[0] in known:
            rest.popleft()
            if not often:
                break
    return f"codec {rest[0]!r} is not in the compiled loop" if rest else None


def swapped(stored: np.dtype[Any], wanted: np.dtype[Any]) -> int | None:
    """Return how many bytes to swap at a time to change the byte order of elements; 0 for none, None if unknown."""
    if stored == wanted:
        return 0
    if wanted.kind not in "iufcmM" or stored.newbyteorder() != wanted:
        return None
    return wanted.itemsize // 2 if wanted.kind == "c" else wanted.itemsize


class Element(NamedTuple):
    """What is taken of every element.

    Attributes
    ----------
    start : int
        Where in an element that begins, in bytes.
    numbers : tuple of int
        Of the loop's struct Job: start, bytes, bytes in the result, types of a cast (`WHOLE` for all of it as it is).
    fill : bytes
        The same of a missing chunk, as in the result.
    """

    start: int
    numbers: tuple[int, ...]
    fill: bytes


def make_element(chain: LoopChain, dtype: np.dtype[Any], fields: Fields) -> Element | None:
    """Return what is taken of a chunk's elements for an array of a dtype; None if the loop does not know it."""
    stored = chain.chunk.dtype
    if fields is None:
        if dtype == stored:
            return Element(0, WHOLE, chain.fill)
        taken, start = stored, 0
    elif isinstance(fields, str) and stored.fields and fields in stored.fields:
        taken, start = stored.fields[fields][:2]
    else:
        return None
    cast = cast_numbers(taken, dtype)
    if cast is None or taken.subdtype is not None or taken.hasobject or (fields is not None and cast != NO_CAST):
        return None
    fill = np.frombuffer(chain.fill, stored)
    with np.errstate(all="ignore"):  # as in chunks that are there
        fill = (fill if fields is None else fill[fields]).astype(dtype)
    return Element(start, (start, taken.itemsize, dtype.itemsize, *cast), fill.tobytes())
