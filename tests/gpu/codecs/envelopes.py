"""Parsers of envelopes against the CPU's decoders: chunks in a slab, the tables made of them, and damage."""

from __future__ import annotations

import gzip
import itertools
import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numcodecs import GZip, Zlib, Zstd
from numcodecs.lz4 import compress as lz4_compress
from numcodecs.lz4 import decompress as lz4_decompress

from gzarr.config import config
from gzarr.cpu.codecs.compressors import gzip_decoder, lz4_decoder, zlib_decoder, zstd_decoder
from gzarr.errors import CodecError
from gzarr.gpu.codecs.deflate import parse_gzip, parse_zlib
from gzarr.gpu.codecs.headers import StreamTable
from gzarr.gpu.codecs.lz4 import parse_lz4
from gzarr.gpu.codecs.zstd import parse_zstd
from tests.gpu.slabs import Slab, outcome, slab_of

Parse = Callable[..., StreamTable]

DECODERS: dict[str, tuple[Parse, Callable[[int], Any], Callable[[bytes, int], bytes]]] = {
    "lz4": (parse_lz4, lz4_decoder, lambda raw, n: lz4_decompress(struct.pack("<I", n) + raw)),
    "zlib": (parse_zlib, zlib_decoder, lambda raw, n: inflate(raw)),
    "gzip": (parse_gzip, gzip_decoder, lambda raw, n: inflate(raw)),
    "zstd": (parse_zstd, zstd_decoder, lambda raw, n: bytes(Zstd().decode(raw))),
}
ENCODERS: dict[str, list[Callable[[bytes], bytes]]] = {
    "lz4": [lambda data, a=a: lz4_compress(data, a) for a in (1, 8)],
    "zlib": [lambda data, level=level: Zlib(level).encode(data) for level in (0, 1, 6, 9)]
    + [lambda data, w=w: deflated(data, w) for w in (9, 12, 15)],
    "gzip": [lambda data, level=level: GZip(level).encode(data) for level in (0, 1, 9)] + [gzip.compress],
    "zstd": [
        lambda data, v=v, c=c: Zstd(v, c).encode(data) for v, c in itertools.product((-3, 1, 3, 12), (False, True))
    ],
}
LENGTHS = (1, 2, 3, 255, 256, 257, 1000, 65_535, 65_791, 65_792, 65_793, 131_072, 131_073, 400_001)


def inflate(raw: bytes) -> bytes:
    stream = zlib.decompressobj(-15)
    data = stream.decompress(raw)
    assert stream.eof
    assert not stream.unused_data
    return data


def deflated(data: bytes, wbits: int) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, wbits)
    return stream.compress(data) + stream.flush()


def contents(nbytes: int) -> list[bytes]:
    rng = np.random.default_rng(nbytes)
    steps = np.cumsum(rng.integers(0, 3, nbytes)).astype(np.uint8)
    return [bytes(nbytes), steps.tobytes(), rng.bytes(nbytes)]


def check_ranges(slab: Slab, table: StreamTable, expected: int) -> None:
    """Every row lies in its chunk; rows for the host are the whole chunk."""
    assert table.source.dtype == table.nbytes.dtype == table.decoded_nbytes.dtype == np.int64
    assert len(table.source) == len(table.nbytes) == len(table.to_host) == len(slab.sizes)
    assert (table.decoded_nbytes == expected).all()
    assert (table.source >= slab.offsets).all()
    assert (table.nbytes >= 0).all()
    assert (table.source + table.nbytes <= slab.offsets + slab.sizes).all()
    assert (table.source[table.to_host] == slab.offsets[table.to_host]).all()
    assert (table.nbytes[table.to_host] == slab.sizes[table.to_host]).all()


def decode(codec: str, slab: Slab, table: StreamTable) -> list[bytes]:
    """Decode with nothing but the table."""
    rows = zip(table.source, table.nbytes, table.decoded_nbytes, strict=True)
    return [DECODERS[codec][2](slab.data[source : source + n].tobytes(), int(size)) for source, n, size in rows]


def run(codec: str, *chunks: bytes, expected: int) -> StreamTable:
    slab = slab_of(chunks)
    table = DECODERS[codec][0](*slab, expected)
    with config.set({"cpu.native": False}):
        assert same(table, DECODERS[codec][0](*slab, expected))
    check_ranges(slab, table, expected)
    return table


def refusal(codec: str, bad: bytes, good: bytes, expected: int) -> str:
    """The message for a bad chunk between good ones, whose number must be told."""
    with pytest.raises(CodecError) as caught:
        run(codec, good, good, bad, good, expected=expected)
    assert (caught.value.index, caught.value.codec) == (2, codec)
    return str(caught.value)


def same(one: Any, other: Any) -> bool:
    """Whether two outcomes are the same error, or tables of the same rows."""
    if isinstance(one, tuple) or isinstance(other, tuple):
        return bool(one == other)
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in StreamTable.__slots__)


def check_damage(codec: str, chunk: bytes, expected: int) -> None:
    """An error or a table in bounds, whatever lies around the chunk; never an error where the CPU has an answer."""
    parse, cpu = DECODERS[codec][:2]
    got = outcome(parse, chunk, expected, 0)
    with config.set({"cpu.native": False}):
        assert same(got, outcome(parse, chunk, expected, 255))
    try:
        answer = bytes(cpu(expected)(chunk))
    except Exception:  # noqa: BLE001  the libraries' complaints are of many kinds
        answer = None
    if isinstance(got, tuple):
        assert got[:2] == (0, codec)
        assert answer is None, "the CPU decodes what is refused here"
        return
    slab = Slab(np.frombuffer(b"\0" + chunk, np.uint8), np.array([1]), np.array([len(chunk)]))
    check_ranges(slab, got, expected)
    if answer is not None and not got.to_host[0]:
        assert decode_leniently(codec, slab, got) == answer


def decode_leniently(codec: str, slab: Slab, table: StreamTable) -> bytes:
    """As `decode`, but bytes behind a Deflate stream are ignored, as a batched decoder does."""
    if codec in ("zlib", "gzip"):
        start = int(table.source[0])
        return zlib.decompressobj(-15).decompress(slab.data[start : start + int(table.nbytes[0])].tobytes())
    return decode(codec, slab, table)[0]
