"""Large chunks, of which the compiled loop reads and decodes what is wanted: NumPy's values, and no more bytes.

Blosc frames are read block by block, Zstandard frames decoded up to the last byte that is wanted.

Damage and lies are tried a second time in a process in which the loop is built with AddressSanitizer and UBSan.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.chunk_io import engine
from gzarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, ShardingCodec, TransposeCodec, ZstdCodec
from gzarr.config import config
from gzarr.cpu.codecs.frames import BLOSC_HEADER
from gzarr.cpu.compiled import library
from gzarr.errors import ChunkError
from gzarr.storage import LocalStore, MemoryStore
from tests.cpu.compiled.looping import Watched
from tests.properties.cases import same
from tests.properties.test_copies import check, job_for

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

#: Chunks of 260 kB and more, with edges on every axis.
SHAPE, CHUNK = (270, 230, 8), (130, 200, 5)
SMALL = (67, 60, 3)  # of several blocks all the same, where their size is given
CNAMES, SHUFFLES = ("blosclz", "lz4", "lz4hc", "zlib", "zstd"), ("noshuffle", "shuffle", "bitshuffle")
#: Elements of 2 to 16 bytes, some in the other byte order, some that are no numbers.
DTYPES = ("<i4", ">f8", "<i2", "S3", ">c16", "S16", "<c8", "S5", "<M8[s]")
N_COMPRESSED, N_PLAIN = 15, 6
#: Of blocks, as multiples of an element. The last block of a chunk is a short one, perhaps of a few elements, or none.
BLOCKS = (1, 4096, 10_000, 13, 65_000, 128_999, 26_000)
#: Chunks of four blocks of Zstandard.
ZSTD: list[tuple[str, list[Any]]] = [
    ("<i4", [BytesCodec(), ZstdCodec(1)]),
    (">f8", [BytesCodec("big"), ZstdCodec(3)]),
    ("<u2", [TransposeCodec((2, 1, 0)), BytesCodec(), ZstdCodec(1)]),
    ("<i4", [BytesCodec(), ZstdCodec(1, checksum=True), Crc32cCodec()]),
]
FIRST, LAST = np.s_[:3], np.s_[127:130]


def chain(number: int) -> tuple[str, list[Any]]:
    """A dtype and codecs: every compressor with every shuffle, in all sorts of blocks and orders of axes."""
    if number >= N_COMPRESSED + N_PLAIN:
        return ZSTD[number - N_COMPRESSED - N_PLAIN]
    cname, shuffle = CNAMES[number % 5], SHUFFLES[number // 5 % 3]
    dtype = DTYPES[number % len(DTYPES)]
    itemsize = np.dtype(dtype).itemsize
    typesize = (itemsize, 1, 1 + number % 16)[number % 3]
    blocksize = max(BLOCKS[number % len(BLOCKS)], 1024) * itemsize if number % 4 else 0
    order = ((0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0))[number % 4]
    codecs = [BytesCodec("big" if dtype[0] == ">" else "little"), BloscCodec(cname, 3, shuffle, typesize, blocksize)]
    if number >= N_COMPRESSED:  # stored as they are, in a frame or without one
        codecs[1:] = [BloscCodec(cname, 0, shuffle, typesize, blocksize)] if number % 2 else []
    if number % 4:
        codecs = [TransposeCodec(order), *codecs]
    return dtype, codecs


NUMBERS = np.random.default_rng(2).integers(0, 40, SHAPE).cumsum(axis=1)


def values(dtype: str) -> np.ndarray:
    return NUMBERS.astype(np.dtype(dtype))


def stored(folder: Path, dtype: str, codecs: list[Any], **more: Any) -> tuple[gzarr.Array, np.ndarray]:
    shape = {"shape": SHAPE, "chunks": CHUNK, **more}
    array = gzarr.create_array(LocalStore(folder), name="a", dtype=dtype, codecs=codecs, **shape)
    with config.set({"cpu.native": False}):
        array[...] = model = values(dtype)
    return array, model.astype(array.dtype)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blocks")


@cache
def made(number: int, layout: str, folder: Path) -> tuple[gzarr.Array, np.ndarray]:
    dtype, codecs = chain(number)
    if layout == "shards":
        return stored(folder / f"{number} in shards", dtype, [ShardingCodec(CHUNK, codecs)], chunks=(260, 400, 10))
    if layout == "memory":
        array, model = made(number, "files", folder)
        return gzarr.open_array(MemoryStore(dict(array.store)), path="a"), model
    return stored(folder / f"{number} {layout}", dtype, codecs, **({"chunks": SMALL} if layout == "small" else {}))


# -- answers ---------------------------------------------------------------------------------------------------------


def random_axis(rng: np.random.Generator, n: int) -> Any:
    low, high = sorted(rng.integers(0, n + 1, 2).tolist())
    some = rng.integers(0, n, rng.integers(1, 60))
    step = int(rng.integers(1, 100))
    choices = [slice(None), slice(low, high), slice(low, high, step), slice(step % n, None, step % 7 + 1)]
    return [*choices, some, np.unique(some), some[:1]][rng.integers(7)]


@pytest.mark.parametrize("number", range(N_COMPRESSED + N_PLAIN + len(ZSTD)))
def test_every_selection_reads_what_numpy_does(number: int, folder: Path, watched: Watched) -> None:
    rng = np.random.default_rng(number)
    for layout in ("files", "small", ("memory", "shards")[number % 2]):
        array, model = made(number, layout, folder)
        for _ in range(6):
            key = tuple(random_axis(rng, n) for n in SHAPE)
            index = np.ix_(*[np.arange(n)[axis] for n, axis in zip(SHAPE, key, strict=True)])
            out = np.empty(model[index].shape, model.dtype)[::-1] if rng.integers(2) else None
            same(array.get_orthogonal_selection(key, out=out), model[index])
        for n in (2, 30, 3000):
            points = tuple(rng.integers(-extent, extent, n) for extent in SHAPE)
            out = np.empty(2 * n, model.dtype)[::2]
            same(array.get_coordinate_selection(points, out=out), model[points])
        starts = rng.integers(0, [200, 200, 6], (9, 3))
        job = job_for(array, starts, (70, 30, 2), range(9), (array.dtype, 3, 3))
        engine.read([job])
        check(job, model, starts, range(9))
    assert watched.done > 0
    assert watched.left == 0


@pytest.mark.parametrize("number", range(N_COMPRESSED + N_PLAIN, N_COMPRESSED + N_PLAIN + len(ZSTD)))
def test_every_length_of_a_beginning(number: int, folder: Path, watched: Watched) -> None:
    """Also where blocks of Zstandard begin and end, and whole chunks after beginnings."""
    array, model = made(number, "files", folder)
    for row in (0, 1, 31, 32, 33, 63, 64, 65, 97, 98, 127, 129):
        same(array[row], model[row])
        same(array[row::-7, 5], model[row::-7, 5])
        same(array[: row + 1], model[: row + 1])
    same(array[...], model)
    assert watched.done > 100
    assert watched.left == 0


#: Of eight blocks: lz4 makes them as many times longer as an element has bytes.
CODECS = [BytesCodec(), BloscCodec("lz4", 5, "shuffle", 4, 1 << 14)]


@pytest.mark.parametrize("dtype", ["<i4", ">i4"])
def test_blocks_that_are_runs_of_the_result(dtype: str, tmp_path: Path, watched: Watched) -> None:
    """They are decoded into it, but for a short one by itself."""
    array = gzarr.array(values(dtype), chunks=(135, *SHAPE[1:]), store=tmp_path, zarr_format=2)
    out = np.zeros((202, *SHAPE[1:]), dtype)
    array.get_basic_selection(np.s_[3:203], out=out[1:201])
    same(out[1:201], values(dtype)[3:203])
    assert not out[0].any()
    assert not out[201].any()
    array.get_basic_selection(np.s_[134:201], out=out[1:68])
    same(out[1:68], values(dtype)[134:201])
    assert (watched.done, watched.left) == (4, 0)


@pytest.mark.parametrize("more", [{}, {"shards": (640, 600)}], ids=["files", "shards"])
def test_rows_of_plain_chunks_are_read_to_their_places(more: dict[str, Any], tmp_path: Path, watched: Watched) -> None:
    model = np.random.default_rng(4).integers(0, 1 << 30, (650, 560), "i4")
    array = gzarr.array(model, chunks=(320, 300), store=tmp_path, compressors=None, **more)
    for rows in (np.s_[:], np.s_[2:640], np.s_[319:321]):
        same(array[rows], model[rows])
    out = np.zeros((1300, 570), "i4")
    array.get_basic_selection(..., out=out[::2, 5:565])
    same(out[::2, 5:565], model)
    out[::2, 5:565] = 0
    assert not out.any()
    assert watched.left == 0


def test_frames_that_are_read_whole(tmp_path: Path, watched: Watched) -> None:
    """Of plain bytes, of one block, of very many, of blocks that cut elements, with a checksum."""
    chains: list[tuple[str, list[Any]]] = [
        ("<i4", [BytesCodec(), BloscCodec("lz4", 0, "noshuffle", 4)]),
        ("<i4", [BytesCodec(), BloscCodec("lz4", 5, "shuffle", 4, 1 << 20)]),
        ("<i4", [BytesCodec(), BloscCodec("zstd", 1, "shuffle", 4, 256)]),
        ("<i4", [BytesCodec(), BloscCodec("zstd", 1, "shuffle", 3, 9999)]),
        ("<i4", [*CODECS, Crc32cCodec()]),
    ]
    for number, (dtype, codecs) in enumerate(chains):
        array, model = stored(tmp_path / str(number), dtype, codecs)
        if number < 4:
            frame = (tmp_path / str(number) / "a" / "c" / "0" / "0" / "0").read_bytes()
            _, _, flags, _, nbytes, blocksize, _ = BLOSC_HEADER.unpack_from(frame)
            assert flags & 2 or blocksize % 4 or not 1 < nbytes / blocksize < 1020
        for key in (np.s_[...], np.s_[3::40, 1:3], np.s_[:, 199:202, 3]):
            same(array[key], model[key])
    assert watched.done > 0
    assert watched.left == 0


def test_blocks_of_which_nothing_is_wanted_are_not_read(tmp_path: Path, watched: Watched) -> None:
    array = gzarr.create_array(LocalStore(tmp_path), shape=(260, 400, 5), chunks=CHUNK, dtype="i4", codecs=CODECS)
    array[...] = model = np.random.default_rng(1).integers(0, 1000, array.shape, "i4")
    nbytes = sum(path.stat().st_size for path in (tmp_path / "c").rglob("*") if path.is_file())
    points, start = ([5, 140, 5], [7, 3, 8], [1, 2, 0]), [(7, 20, 1)]
    job = job_for(array, start, (3, 150, 3), [0], (array.dtype, 1, 1))
    # of four chunks the blocks, or one of the eight blocks of one or two, and a page to know where that is
    for read, low, high in (
        (lambda: same(array[...], model), nbytes, nbytes),
        (lambda: same(array[7], model[7]), 4096, nbytes / 16 + 2 * 4096),
        (lambda: same(array.vindex[points], model[points]), 4096, nbytes / 8 + 2 * 4096),
        (lambda: engine.read([job]), 4096, nbytes / 16 + 2 * 4096),
    ):
        with gzarr.profile() as profile:
            read()
        assert low <= profile.stages["loop"].bytes_in <= high
    check(job, model, start, [0])
    assert watched.left == 0


# -- errors ----------------------------------------------------------------------------------------------------------


def flipped(frame: bytes) -> bytes:
    """Damage in the last block."""
    return frame[:-500] + bytes(255 - byte for byte in frame[-500:])


def test_what_is_not_wanted_is_not_decoded(tmp_path: Path) -> None:
    array, model = stored(tmp_path, *ZSTD[0])
    array.store["a/c/0/0/0"] = flipped(array.store["a/c/0/0/0"])
    same(array[FIRST], model[FIRST])
    with pytest.raises(ChunkError, match="a/c/0/0/0"):
        array[LAST]


@pytest.mark.parametrize("codecs", [[ZstdCodec(1, checksum=True)], [ZstdCodec(1), Crc32cCodec()]])
def test_checksums_are_those_of_all_of_a_chunk(codecs: list[Any], tmp_path: Path) -> None:
    array, _ = stored(tmp_path, "<i4", [BytesCodec(), *codecs])
    array.store["a/c/0/0/0"] = flipped(array.store["a/c/0/0/0"])
    with pytest.raises(ChunkError, match="a/c/0/0/0"):
        array[FIRST]


@pytest.mark.parametrize("damage", [*(lambda b, n=n: b[:-n] for n in (1, 7, 5000, 200_000)), lambda b: b + b"x"])
def test_frames_that_are_cut_off_or_longer_are_damage_wherever_they_are_read(
    damage: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    array, _ = stored(tmp_path, *ZSTD[0])
    array.store["a/c/0/0/0"] = damage(array.store["a/c/0/0/0"])
    with pytest.raises(ChunkError, match="a/c/0/0/0"):
        array[FIRST]


@pytest.mark.parametrize("blocksize", [4004, 1 << 31])
def test_blocks_longer_than_their_chunk_are_damage(blocksize: int, tmp_path: Path) -> None:
    codecs = [BytesCodec(), BloscCodec("zstd", 5, "shuffle", 4)]
    array = gzarr.create_array(LocalStore(tmp_path), data=np.arange(1000, dtype="i4"), chunks=1000, codecs=codecs)
    frame = array.store["c/0"]
    array.store["c/0"] = frame[:8] + blocksize.to_bytes(4, "little") + frame[12:]
    for key in (np.s_[...], np.s_[7:9], [5, 3]):
        with pytest.raises(ChunkError, match="blosc"):
            array[key]
