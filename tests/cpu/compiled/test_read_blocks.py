"""Large Blosc frames, of which the compiled loop reads the blocks that are wanted: NumPy's values, and no more bytes.

Damage and lies are tried a second time in a process in which the loop is built with AddressSanitizer and UBSan.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gzarr
from gzarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, TransposeCodec
from gzarr.config import config
from gzarr.cpu.codecs.frames import BLOSC_HEADER
from gzarr.cpu.compiled import library
from gzarr.errors import GzarrError
from gzarr.storage import LocalStore
from tests.cpu.compiled.looping import Recorder, Watched, read_is_refused_or_left
from tests.properties.cases import same

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

#: Chunks of 260 kB and more, with edges on every axis.
SHAPE, CHUNK = (270, 230, 8), (130, 200, 5)
CNAMES, SHUFFLES = ("blosclz", "lz4", "lz4hc", "zlib", "zstd"), ("noshuffle", "shuffle", "bitshuffle")
#: Elements of 2 to 16 bytes, some in the other byte order, some that are no numbers.
DTYPES = ("<i4", ">f8", "<i2", "S3", ">c16", "S16", "<c8", "S5", "<M8[s]")
N_COMPRESSED, N_PLAIN = 30, 12
#: Of blocks, as multiples of an element. The last block of a chunk is a short one, perhaps of a few elements, or none.
BLOCKS = (1, 4096, 10_000, 13, 65_000, 128_999, 26_000)


def chain(number: int) -> tuple[str, list[Any]]:
    """A dtype and codecs: every compressor with every shuffle, in all sorts of blocks and orders of axes."""
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


def values(dtype: str) -> np.ndarray:
    numbers = np.random.default_rng(2).integers(0, 40, SHAPE).cumsum(axis=1)
    return numbers.astype("i8").astype(np.dtype(dtype))


def stored(folder: Path, dtype: str, codecs: list[Any], **more: Any) -> tuple[gzarr.Array, np.ndarray]:
    shape = {"shape": SHAPE, "chunks": CHUNK, **more}
    array = gzarr.create_array(LocalStore(folder), name="a", dtype=dtype, codecs=codecs, **shape)
    with config.set({"cpu.native": False}):
        array[...] = values(dtype)
    return array, values(dtype).astype(array.dtype)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("blocks")


@cache
def made(number: int, folder: Path) -> tuple[gzarr.Array, np.ndarray]:
    return stored(folder / str(number), *chain(number))


# -- answers ---------------------------------------------------------------------------------------------------------


def random_axis(rng: np.random.Generator, n: int) -> Any:
    low, high = sorted(rng.integers(0, n + 1, 2).tolist())
    some = rng.integers(0, n, rng.integers(1, 60))
    step = int(rng.integers(1, 100))
    choices = [slice(None), slice(low, high), slice(low, high, step), slice(step % n, None, step % 7 + 1)]
    return [*choices, some, np.unique(some), some[:1]][rng.integers(7)]


@pytest.mark.parametrize("number", range(N_COMPRESSED + N_PLAIN))
def test_lists_and_steps_read_what_numpy_does(number: int, folder: Path, watched: Watched) -> None:
    array, model = made(number, folder)
    rng = np.random.default_rng(number)
    for _ in range(12):
        key = tuple(random_axis(rng, n) for n in SHAPE)
        index = np.ix_(*[np.arange(n)[axis] for n, axis in zip(SHAPE, key, strict=True)])
        out = np.empty(model[index].shape, model.dtype)[::-1] if rng.integers(2) else None
        same(array.get_orthogonal_selection(key, out=out), model[index])
    assert watched.done > 0
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
def test_rows_of_plain_chunks_are_read_to_where_they_belong(
    more: dict[str, Any], tmp_path: Path, watched: Watched
) -> None:
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
    for key, low, high in ((np.s_[...], nbytes, nbytes), (np.s_[7], 4096, nbytes / 16 + 2 * 4096)):
        with gzarr.profile() as profile:
            same(array[key], model[key])
        # of four chunks the blocks, or one of the eight blocks of two, and a page to know where that is
        assert low <= profile.stages["loop"].bytes_in <= high
    assert watched.left == 0


# -- errors ----------------------------------------------------------------------------------------------------------

READS: list[Callable[[gzarr.Array], Any]] = [
    lambda z: z[...],
    lambda z: z[130:200, :50],
    lambda z: z[7],
    lambda z: z.oindex[[3, 129, 5], :, [7, 0]],
]


def outcome(array: gzarr.Array, read: Callable[[gzarr.Array], Any]) -> Any:
    """What a read gives, or the error that it raises, as something to compare."""
    try:
        return read(array).tobytes()
    except GzarrError as error:
        return type(error), str(error), vars(error).get("chunk_coords"), vars(error).get("codec")


def damaged(data: bytes, how: st.DataObject) -> bytes:
    kind = how.draw(st.sampled_from(["cut", "longer", "flip", "header", "starts"]))
    if kind == "cut":
        return data[: how.draw(st.integers(0, len(data) - 1))]
    if kind == "longer":
        return data + b"more"
    changed = bytearray(data)
    _, _, _, _, nbytes, blocksize, _ = BLOSC_HEADER.unpack_from(data)
    if kind == "starts":
        at = BLOSC_HEADER.size + 4 * how.draw(st.integers(0, -(-nbytes // blocksize) - 1))
        number = struct.unpack_from("<i", data, at)[0] + how.draw(st.integers(-40, 40))
        number = how.draw(st.sampled_from([number, 0, 1 << 31, len(data), len(data) - 1, 16, (1 << 32) - 1]))
        changed[at : at + 4] = struct.pack("<I", number & 0xFFFFFFFF)
        return bytes(changed)
    at = how.draw(st.integers(0, BLOSC_HEADER.size - 1 if kind == "header" else len(data) - 1))
    changed[at] ^= how.draw(st.integers(1, 255))
    return bytes(changed)


@settings(max_examples=60)
@given(data=st.data())
def test_tables_that_lie_are_refused_or_left(folder: Path, data: st.DataObject) -> None:
    """Every number of every table but those that say where the result is may be anything."""
    array, _ = made(data.draw(st.integers(0, 2)), folder)
    recorder, out = Recorder(), np.zeros((90, 230, 8), array.dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "loop", lambda: recorder)
        if data.draw(st.booleans()):
            array.get_orthogonal_selection(([3, 5, 4, 269], slice(None), slice(None)), out=out[:4])
        else:
            array.get_basic_selection(np.s_[::3], out=out)
    read_is_refused_or_left(data, recorder.calls)
