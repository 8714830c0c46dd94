"""Decodes chunks straight into memory of our choosing, and only what is wanted of them, where a chain allows it.

Most chains are a bytes codec and one compressor, perhaps with transposes before and a checksum behind. Their chunks are
decoded into the result itself if they fill one run of it, else into scratch memory of the thread, which stays in cache
and costs no page faults; of large chunks that are cut into blocks, only the blocks that a part touches are decoded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.registry import registered_factory
from gzarr.codecs.spec import ArrayRepr, Codec, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.cpu.codecs.arrays import USER_DEFINED
from gzarr.cpu.codecs.compressors import blosc_decoder, lz4_decoder, zstd_decoder
from gzarr.cpu.codecs.lift import Decoder, fail, wrong_size
from gzarr.cpu.window import MIN_NBYTES, Cut, Window, cut_blosc, cut_plain
from gzarr.errors import MissingExtraError
from gzarr.plan import Part

#: Smaller chunks are decoded into memory of their own, which the allocator has at hand.
MIN_SCRATCH_NBYTES = 1 << 17
#: Larger ones too: a thread keeps no more than this.
_MAX_SCRATCH_NBYTES = 1 << 26

#: Compressors that decode into given memory.
_INTO: Mapping[str, Callable[[int], Decoder]] = {
    "blosc": blosc_decoder,
    "numcodecs.blosc": blosc_decoder,
    "numcodecs.lz4": lz4_decoder,
    "numcodecs.zstd": zstd_decoder,
    "zstd": zstd_decoder,
}
#: Decodes the frame of a window, whose size is not the chunk's.
_decode_blocks = blosc_decoder(None)

_CUT: Mapping[str, Cut] = {"blosc": cut_blosc, "numcodecs.blosc": cut_blosc, "bytes": cut_plain}


class Direct(NamedTuple):
    """How chunks of one shape are decoded into given memory.

    Attributes:
        outer: codecs that are decoded first, in encoding order.
        codec: name of the compressor, for errors; "bytes" if there is none.
        function: decodes bytes, into an array of bytes if one is given; None if there is no compressor.
        cut: makes windows of large chunks; None if that cannot be or does not pay.
        dtype: dtype as stored, with its byte order.
        shape: shape as stored.
        order: the array axis of every stored axis.
        inverse: the permutation back; None if there is nothing to permute.
        nbytes: decoded size.
    """

    outer: tuple[Codec, ...]
    codec: str
    function: Decoder | None
    cut: Cut | None
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: tuple[int, ...]
    inverse: tuple[int, ...] | None
    nbytes: int


def make_direct(steps: Sequence[Step], codecs: Sequence[Codec]) -> Direct | None:
    """Prepare a chain; None if chunks must go through its codecs one by one."""
    n = next((i for i, step in enumerate(steps) if not isinstance(step.spec, TransposeCodec)), len(steps))
    if n == len(steps) or not isinstance(steps[n].spec, BytesCodec):
        return None
    spec: Any = steps[n].spec
    stored = steps[n].decoded
    if not isinstance(stored, ArrayRepr) or not stored.nbytes or stored.dtype.isbuiltin == USER_DEFINED:
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
    cuts = not outer and stored.nbytes >= MIN_NBYTES
    return Direct(
        outer=outer,
        codec=name,
        function=None if make is None else make(stored.nbytes),
        cut=_CUT.get(name) if cuts else None,
        dtype=stored.dtype if spec.endian is None else stored.dtype.newbyteorder(spec.endian),
        shape=stored.shape,
        order=order,
        inverse=None if order == tuple(range(len(order))) else tuple(int(a) for a in np.argsort(order)),
        nbytes=stored.nbytes,
    )


def place(direct: Direct, buffers: Sequence[Any], parts: Sequence[Part], out: Any, fields: Any, fill: Any) -> None:
    """Decode chunks one by one and copy their parts into ``out``. Raises: CodecError(index)."""
    put = _put_large if direct.nbytes >= MIN_SCRATCH_NBYTES else _put_small
    done = 0
    try:
        for buffer, part in zip(buffers, parts, strict=True):
            if buffer is None:
                out[part.out] = fill
            else:
                put(direct, buffer, part, out, fields)
            done += 1
    except (MemoryError, MissingExtraError):
        raise
    except Exception as error:  # noqa: BLE001  any library's complaint about a chunk
        fail(direct.codec, done, error)


def _put_small(direct: Direct, buffer: Any, part: Part, out: Any, fields: Any) -> None:
    for codec in reversed(direct.outer):
        (buffer,) = codec.decode((buffer,))
    data = buffer if direct.function is None else direct.function(buffer)
    if len(data) != direct.nbytes:
        raise wrong_size(direct.codec, direct.nbytes, len(data))
    chunk: Any = np.ndarray(direct.shape, direct.dtype, data)
    if direct.inverse is not None:
        chunk = chunk.transpose(direct.inverse)
    if fields is not None:
        chunk = chunk[fields]
    out[part.out] = chunk[part.inside]


def _put_large(direct: Direct, buffer: Any, part: Part, out: Any, fields: Any) -> None:
    if type(buffer) is Window:
        _put_window(direct, buffer, part, out, fields)
        return
    for codec in reversed(direct.outer):
        (buffer,) = codec.decode((buffer,))
    target = _run(direct, part, out, fields)
    into = scratch(direct.nbytes) if target is None else target
    data = buffer if direct.function is None else direct.function(buffer, into)
    if len(data) != direct.nbytes:
        raise wrong_size(direct.codec, direct.nbytes, len(data))
    if target is not None and direct.function is not None:
        return
    chunk: Any = np.ndarray(direct.shape, direct.dtype, data)
    if direct.inverse is not None:
        chunk = chunk.transpose(direct.inverse)
    if fields is not None:
        chunk = chunk[fields]
    out[part.out] = chunk[part.inside]


def _run(direct: Direct, part: Part, out: Any, fields: Any) -> Any:
    """The bytes of the result that a chunk fills in one run, in its own byte order; None if it does not."""
    if direct.inverse is not None or fields is not None or out.dtype != direct.dtype or type(part.out) is not tuple:
        return None
    if not part.full or not all(type(index) is slice for index in part.inside):
        return None
    region = out[part.out]
    if not isinstance(region, np.ndarray) or region.shape != direct.shape or not region.flags.c_contiguous:
        return None
    return region.reshape(-1).view(np.uint8)


def _put_window(direct: Direct, window: Window, part: Part, out: Any, fields: Any) -> None:
    data = _decode_blocks(window.data, scratch(window.nbytes)) if window.encoded else window.data
    if window.shape:
        chunk: Any = np.ndarray(window.shape, direct.dtype, data, window.offset)
        if direct.inverse is not None:
            chunk = chunk.transpose(direct.inverse)
    else:
        chunk = np.ndarray((window.nbytes // direct.dtype.itemsize,), direct.dtype, data)
    if fields is not None:
        chunk = chunk[fields]
    out[part.out] = chunk[window.index]


class _Scratch(threading.local):
    """Memory that a thread decodes into, chunk after chunk."""

    memory: Any = np.empty(0, np.uint8)


_scratch = _Scratch()


def scratch(nbytes: int) -> np.ndarray[Any, Any]:
    """Memory of the calling thread, valid until its next call: flat uint8."""
    if nbytes > _MAX_SCRATCH_NBYTES:
        return np.empty(nbytes, np.uint8)
    if _scratch.memory.size < nbytes:
        _scratch.memory = np.empty(nbytes, np.uint8)
    memory: np.ndarray[Any, Any] = _scratch.memory[:nbytes]
    return memory
