"""Large Zstandard frames, which the compiled loop decodes up to the last byte that is wanted: NumPy's values."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.codecs import BytesCodec, Crc32cCodec, TransposeCodec, ZstdCodec
from gzarr.cpu.compiled import library
from gzarr.errors import ChunkError
from gzarr.storage import LocalStore
from tests.cpu.compiled.looping import Watched
from tests.properties.cases import same

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

#: Chunks of 520 kB: four blocks of Zstandard.
SHAPE, CHUNK = (270, 230, 8), (130, 200, 5)
CHAINS: dict[str, tuple[str, list[Any]]] = {
    "zstd": ("<i4", [BytesCodec(), ZstdCodec(1)]),
    "big-endian": (">f8", [BytesCodec("big"), ZstdCodec(3)]),
    "transposed": ("<u2", [TransposeCodec((2, 1, 0)), BytesCodec(), ZstdCodec(1)]),
    "checksums": ("<i4", [BytesCodec(), ZstdCodec(1, checksum=True), Crc32cCodec()]),
}
FIRST, LAST = np.s_[:3], np.s_[127:130]


def values(dtype: str) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 250, SHAPE).astype(dtype)


def stored(folder: Path, dtype: str, codecs: list[Any], **more: Any) -> tuple[gzarr.Array, np.ndarray]:
    shape = {"shape": SHAPE, "chunks": CHUNK, **more}
    array = gzarr.create_array(LocalStore(folder), name="a", dtype=dtype, codecs=codecs, **shape)
    array[...] = values(dtype)
    return array, values(dtype).astype(array.dtype)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("beginnings")


@cache
def made(name: str, folder: Path) -> tuple[gzarr.Array, np.ndarray]:
    return stored(folder / name, *CHAINS[name])


@pytest.mark.parametrize("name", CHAINS)
def test_every_length_of_a_beginning(name: str, folder: Path, watched: Watched) -> None:
    """Also where blocks of Zstandard begin and end, and whole chunks after beginnings."""
    array, model = made(name, folder)
    for row in (0, 1, 31, 32, 33, 63, 64, 65, 97, 98, 127, 129):
        same(array[row], model[row])
        same(array[row::-7, 5], model[row::-7, 5])
        same(array[: row + 1], model[: row + 1])
    same(array[...], model)
    assert watched.done > 100
    assert watched.left == 0


def flipped(frame: bytes) -> bytes:
    """Damage in the last block."""
    return frame[:-500] + bytes(255 - byte for byte in frame[-500:])


def test_what_is_not_wanted_is_not_decoded(tmp_path: Path) -> None:
    array, model = stored(tmp_path, *CHAINS["zstd"])
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


@pytest.mark.parametrize("cut", [1, 7, 5000, 200_000])
def test_a_frame_that_is_cut_off_is_damage_wherever_it_is_read(cut: int, tmp_path: Path) -> None:
    array, _ = stored(tmp_path, *CHAINS["zstd"])
    array.store["a/c/0/0/0"] = array.store["a/c/0/0/0"][:-cut]
    with pytest.raises(ChunkError, match="a/c/0/0/0"):
        array[FIRST]


def test_bytes_behind_a_frame_are_damage_wherever_it_is_read(tmp_path: Path) -> None:
    array, _ = stored(tmp_path, *CHAINS["zstd"])
    array.store["a/c/0/0/0"] = array.store["a/c/0/0/0"] + b"x"
    with pytest.raises(ChunkError, match="a/c/0/0/0"):
        array[FIRST]
