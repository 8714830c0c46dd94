"""``layout="gpu"``: what it chooses, that every way to create an array takes it, that others read what comes out."""

import math
from collections.abc import Callable
from typing import Any

import numcodecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.codecs.compressors import BloscCodec
from gzarr.codecs.sharding import ShardingCodec
from gzarr.errors import MetadataError
from gzarr.hierarchy import presets

DATA = np.arange(60 * 70 * 80, dtype="i4").reshape(60, 70, 80)
CHUNKS = presets.choose_chunks(DATA.shape, 4)
SHARDS = presets.choose_shards(DATA.shape, CHUNKS, 4)
PLAIN = presets.choose_chunks(DATA.shape, 4, sharded=False)


# -- what is chosen ----------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 3000), max_size=5),
    st.sampled_from([1, 2, 4, 8, 16]),
    st.sampled_from([None, "batch", "plane", "volume", "random"]),
    st.booleans(),
)
def test_sizes_keep_to_their_limits(shape: list[int], itemsize: int, access: Any, sharded: bool) -> None:
    factor = 1 if sharded else presets.PLAIN_FACTOR
    chunks = presets.choose_chunks(shape, itemsize, access=access, sharded=sharded)
    nbytes = math.prod(chunks) * itemsize
    assert all(1 <= c <= n for c, n in zip(chunks, shape, strict=True) if n)
    assert nbytes <= presets.CHUNK_NBYTES * factor
    if (
        math.prod(shape) * itemsize >= presets.LEAST_CHUNK_NBYTES * factor
    ):  # halved upwards: no smaller than half of a limit
        assert nbytes > presets.LEAST_CHUNK_NBYTES * factor / (2 if access == "batch" else 1)
    shards = presets.choose_shards(shape, chunks, itemsize)
    if shards is None:
        assert all(c >= n for c, n in zip(chunks, shape, strict=True))
        return
    assert all(s % c == 0 for s, c in zip(shards, chunks, strict=True))
    assert math.prod(shards) * itemsize <= presets.SHARD_NBYTES
    counts = [-(-n // c) if n else 1 << 30 for n, c in zip(shape, chunks, strict=True)]
    assert math.prod(counts) * nbytes <= presets.SHARD_NBYTES or math.prod(shards) * itemsize > presets.SHARD_NBYTES / 8


@pytest.mark.parametrize(
    ("shape", "itemsize", "access", "chunks", "shards"),
    [
        ((), 4, None, (), None),
        ((5,), 8, None, (5,), None),
        ((0,), 8, None, (32768,), (4194304,)),
        ((10**9,), 4, None, (61036,), (7812608,)),
        ((4000, 3000, 3), 1, None, (250, 188, 3), (2000, 3008, 3)),
        ((8760, 721, 1440), 4, "plane", (35, 23, 23), (140, 184, 184)),
        ((50000, 224, 224, 3), 1, "batch", (1, 224, 224, 3), (196, 224, 224, 3)),
        ((100000, 28, 28), 1, "batch", (83, 28, 28), (25066, 28, 28)),
        ((1000, 4096, 4096), 2, "batch", (1, 256, 512), (4, 1024, 4096)),
    ],
)
def test_what_is_chosen(
    shape: tuple[int, ...], itemsize: int, access: Any, chunks: tuple[int, ...], shards: tuple[int, ...] | None
) -> None:
    assert presets.choose_chunks(shape, itemsize, access=access) == chunks
    assert presets.choose_shards(shape, chunks, itemsize) == shards


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "c16", [("a", "f4", 10)]], ids=str)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_blosc_makes_streams_of_64_kib(dtype: Any, zarr_format: int) -> None:
    z = gzarr.create_array(shape=1 << 24, dtype=dtype, layout="gpu", zarr_format=zarr_format)
    codec = z.metadata.codecs[-1] if zarr_format == 2 else z.compressors[0]
    assert isinstance(codec, BloscCodec)
    nbytes = math.prod(z.chunks) * z.dtype.itemsize
    frame = numcodecs.Blosc("lz4", codec.clevel, 1, codec.blocksize).encode(np.zeros(nbytes // z.itemsize, z.dtype))
    blocksize, typesize = int.from_bytes(frame[8:12], "little"), frame[3]
    splits = 1 if frame[2] & 16 else typesize
    assert presets.STREAM_NBYTES / 4 <= blocksize // splits <= presets.STREAM_NBYTES


# -- every way to create an array --------------------------------------------------------------------------------

LIKE = gzarr.array(DATA, chunks=(7, 70, 80), compressors=numcodecs.Zstd(3), filters=numcodecs.Delta("i4"))
WAYS: dict[str, Callable[..., Any]] = {
    "create": lambda **kw: gzarr.create(DATA.shape, dtype="i4", **kw),
    "create_array": lambda **kw: gzarr.create_array(shape=DATA.shape, dtype="i4", **kw),
    "array": lambda **kw: gzarr.array(DATA, **kw),
    "array of an array": lambda **kw: gzarr.array(LIKE, **kw),
    "from_array": lambda **kw: gzarr.from_array(data=LIKE, **kw),
    "empty": lambda **kw: gzarr.empty(DATA.shape, dtype="i4", **kw),
    "zeros": lambda **kw: gzarr.zeros(DATA.shape, dtype="i4", **kw),
    "ones": lambda **kw: gzarr.ones(DATA.shape, dtype="i4", **kw),
    "full": lambda **kw: gzarr.full(DATA.shape, 7, dtype="i4", **kw),
    "empty_like": lambda **kw: gzarr.empty_like(LIKE, **kw),
    "zeros_like": lambda **kw: gzarr.zeros_like(DATA, **kw),
    "ones_like": lambda **kw: gzarr.ones_like(LIKE, **kw),
    "full_like": lambda **kw: gzarr.full_like(LIKE, **kw),
    "open_like": lambda **kw: gzarr.open_like(LIKE, gzarr.storage.MemoryStore(), **kw),
    "open": lambda **kw: gzarr.open(gzarr.storage.MemoryStore(), "w", shape=DATA.shape, dtype="i4", **kw),
    "open_array": lambda **kw: gzarr.open_array(gzarr.storage.MemoryStore(), "w", shape=DATA.shape, dtype="i4", **kw),
}


def is_laid_out(z: gzarr.Array) -> bool:
    if z.metadata.zarr_format == 2:
        return z.chunks == PLAIN and z.compressor.cname == "lz4" and z.compressor.blocksize == presets.STREAM_NBYTES
    blosc = z.compressors[-1]
    return (z.chunks, z.shards) == (CHUNKS, SHARDS) and isinstance(blosc, BloscCodec) and blosc.cname == "lz4"


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_create_takes_it(way: str, zarr_format: int) -> None:
    z = WAYS[way](layout="gpu", zarr_format=zarr_format)
    assert is_laid_out(z)
    z[...] = DATA
    assert np.array_equal(z[...], DATA)


def test_shards_in_shards_are_taken_apart() -> None:
    inner = ShardingCodec(chunk_shape=(5, 5, 8))
    z = gzarr.create_array(shape=DATA.shape, dtype="i4", shards=(60, 70, 80), chunks=(30, 35, 40), codecs=[inner])
    z[...] = DATA
    copy = gzarr.storage.MemoryStore()
    gzarr.transfer(z, copy, layout="gpu")
    assert is_laid_out(gzarr.open_array(copy))
    assert np.array_equal(gzarr.open_array(copy)[...], DATA)


# -- what wins, what conflicts -----------------------------------------------------------------------------------


def test_what_is_given_wins() -> None:
    def make(**keywords: Any) -> gzarr.Array:
        return gzarr.create_array(shape=(1000, 1000), dtype="f4", layout="gpu", **keywords)

    assert (make(chunks=(10, 500)).chunks, make(chunks=(10, 500)).shards) == ((10, 500), (1000, 1000))
    assert (make(shards=(300, 500)).chunks, make(shards=(300, 500)).shards) == ((150, 250), (300, 500))
    assert make(shards=[[600, 400], [500, 500]]).chunks == (200, 250)
    assert make(shards={"shape": (300, 500), "index_location": "start"}).chunks == (150, 250)
    assert (make(shards=False).chunks, make(shards=False).shards) == ((500, 500), None)
    assert make(shards=False, chunks=[[600, 400], 1000]).chunk_sizes == ((600, 400), (1000,))
    assert make(chunks=1000).shards is None
    assert make(compressors=None).compressors == ()
    assert make(compressors=numcodecs.Zstd(3)).compressors[0].name == "zstd"
    assert [codec.name for codec in make(filters=numcodecs.Delta("f4")).metadata.sharding.codecs] == [
        "numcodecs.delta",
        "bytes",
        "blosc",
    ]
    assert [codec.name for codec in make(codecs=[numcodecs.GZip(1)]).metadata.sharding.codecs] == ["bytes", "gzip"]
    assert make(order="F").metadata.sharding.codecs[0].name == "transpose"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"layout": "cpu"}, "layout must be 'gpu'"),
        ({"layout": "gpu:all"}, "'gpu:batch'"),
        ({"chunks": [[600, 400], 1000]}, "shards=False"),
        ({"shards": (10, 10), "zarr_format": 2}, "zarr_format=3"),
        ({"shards": "auto", "zarr_format": 2}, "zarr_format=3"),
        ({"shards": (300, 500), "chunks": (7, 7)}, "multiples"),
        ({"codecs": [ShardingCodec(chunk_shape=(10, 10))]}, "sharding_indexed"),
        ({"serializer": ShardingCodec(chunk_shape=(10, 10))}, "sharding_indexed"),
    ],
)
def test_conflicts_are_errors(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(MetadataError, match=message):
        gzarr.create_array(**{"shape": (1000, 1000), "dtype": "f4", "layout": "gpu", **keywords})


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_what_no_gpu_has_stays_as_without_a_layout(zarr_format: int) -> None:
    for dtype in (str, "U7", "S3", "M8[s]"):
        made = [gzarr.create_array(shape=300000, dtype=dtype, zarr_format=zarr_format, layout=x) for x in (None, "gpu")]
        assert [(z.chunks, z.shards, z.metadata.codecs) for z in made][:1] * 2 == [
            (z.chunks, z.shards, z.metadata.codecs) for z in made
        ]
    records = gzarr.create_array(shape=300000, dtype=[("name", "S4"), ("x", "f4")], zarr_format=3, layout="gpu")
    assert records.shards is not None
    texts = gzarr.create_array(shape=300, dtype=str, chunks=100)
    assert gzarr.empty_like(texts, layout="gpu").chunks == (100,)
    with pytest.raises(MetadataError, match="layout"):
        gzarr.empty_like(texts, layout="cpu")


def test_an_access_can_be_named() -> None:
    assert gzarr.create_array(shape=(500, 224, 224, 3), dtype="u1", layout="gpu:batch").chunks == (1, 224, 224, 3)


# -- other readers -----------------------------------------------------------------------------------------------
