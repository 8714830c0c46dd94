"""The compiled loop makes Blosc frames block by block, byte by byte those of numcodecs."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.codecs import BloscCodec, BytesCodec
from gzarr.codecs.spec import BytesRepr, Step
from gzarr.cpu.compiled import library, source

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

#: 3 x 2 chunks whose blocks end within rows.
SHAPE, CHUNK = (150, 134), (50, 67)
LAYOUTS: dict[str, Any] = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "reversed": lambda model: np.ascontiguousarray(model[::-1, ::-1])[::-1, ::-1],
    "spread": lambda model: np.repeat(np.repeat(model, 2, 0), 3, 1)[::2, ::3],
    "swapped": lambda model: model.astype(model.dtype.newbyteorder()),
    "row": lambda model: np.broadcast_to(model[0], model.shape),
}


def smooth(dtype: str, shape: tuple[int, int] = SHAPE) -> Any:
    """Values whose upper bytes compress, and whose lowest ones do not."""
    rng = np.random.default_rng(5)
    field = np.cumsum(rng.integers(-9, 10, shape), 0) + rng.integers(0, 256, shape)
    return (field + 1j * field).astype(dtype) if dtype[1] == "c" else (field + 70_000).astype(dtype)


@pytest.mark.parametrize("blocksize", [0, 1024])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["<u2", "<i4", "<f8", "<c16"])
def test_frames_are_those_of_numcodecs(dtype: str, layout: str, order: Any, blocksize: int, tmp_path: Path) -> None:
    value = LAYOUTS[layout](smooth(dtype))
    codec = BloscCodec("lz4", 5, "shuffle", blocksize=blocksize)
    array = gzarr.create_array(
        tmp_path, shape=SHAPE, chunks=CHUNK, dtype=dtype, compressors=codec, order=order, zarr_format=2
    )
    array[...] = value
    theirs = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE, blocksize)
    for i in range(3):
        chunk = value[50 * i : 50 * i + 50, 67:].astype(dtype).ravel(order)
        assert (tmp_path / f"{i}.1").read_bytes() == theirs.encode(chunk)


@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle"])
@pytest.mark.parametrize("level", range(1, 10))
def test_zstd_frames_are_those_of_numcodecs(level: int, shuffle: Any, tmp_path: Path) -> None:
    noise = np.random.default_rng(level).integers(0, 1 << 40, SHAPE)
    for dtype, blocksize in (("<i8", 0), ("<f4", 4096), ("<c16", 0)):
        codec = BloscCodec("zstd", level, shuffle, blocksize=blocksize)
        theirs = numcodecs.Blosc("zstd", level, codec.shuffle == "shuffle", blocksize)
        value = LAYOUTS["spread"](smooth(dtype))
        value[:20] = noise[:20]
        array = gzarr.create_array(tmp_path / dtype, shape=SHAPE, chunks=CHUNK, dtype=dtype, compressors=codec)
        array[...] = value
        for i, j in np.ndindex(3, 2):
            chunk = np.ascontiguousarray(value[50 * i : 50 * i + 50, 67 * j : 67 * j + 67])
            assert (tmp_path / dtype / f"c/{i}/{j}").read_bytes() == theirs.encode(chunk)


@pytest.mark.parametrize("cname", ["lz4", "zstd"])
@pytest.mark.parametrize("nbytes", [96, 9600, 288_000])
def test_headers_are_those_of_numcodecs(nbytes: int, cname: str) -> None:
    for level, shuffle, typesize, blocksize in product((1, 5, 9), (0, 1, 2), (3, 4, 16), (0, 4096)):
        theirs = numcodecs.Blosc(cname, level, shuffle, blocksize).encode(np.zeros(nbytes // typesize, f"V{typesize}"))
        assert library.blosc_header((level, shuffle, typesize, nbytes), cname, blocksize) == theirs[:12]


@pytest.mark.parametrize("cname", ["lz4", "zstd"])
def test_large_frames_are_written_while_they_are_made(cname: Any, tmp_path: Path) -> None:
    value = np.random.default_rng(2).integers(0, 1 << 31, (1500, 600), dtype="<i4")
    value[:500] >>= 16  # the second chunk becomes larger in the middle, the third one at once
    value[500:900] = 7
    array = gzarr.create_array(
        tmp_path, shape=(1500, 601), chunks=(500, 600), dtype="i4", compressors=BloscCodec(cname, 1, "shuffle")
    )
    array[:, :600] = value
    for i in range(3):
        chunk = value[500 * i : 500 * i + 500]
        assert (tmp_path / f"c/{i}/0").read_bytes() == numcodecs.Blosc(cname, 1, 1).encode(chunk)


def test_which_frames_the_loop_makes() -> None:
    def made(codec: BloscCodec) -> bool:
        step = Step(replace(codec, typesize=4), BytesRepr(1 << 20, 4), BytesRepr())
        found = source.make_encoder(step, checksum=False)
        assert found is not None
        return found.frame != 0

    assert made(BloscCodec("lz4", 5, "shuffle"))
    assert made(BloscCodec("zstd", 5, "shuffle"))
    assert made(BloscCodec("zstd", 9, "noshuffle"))
    assert not made(BloscCodec("zstd", 5, "bitshuffle"))
    assert not made(BloscCodec("lz4", 5, "bitshuffle"))
    assert not made(BloscCodec("lz4hc", 5, "shuffle"))
    assert not made(BloscCodec("lz4", 0, "shuffle"))


def test_blocks_that_cut_numbers_of_the_other_byte_order(tmp_path: Path) -> None:
    codecs = [BytesCodec("big"), BloscCodec("zstd", 2, "shuffle", typesize=3)]
    array = gzarr.create_array(tmp_path, shape=(720, 504), chunks=(180, 126), dtype="f4", codecs=codecs)
    array[...] = model = np.arange(720 * 504, dtype="f4").reshape(720, 504)
    np.testing.assert_array_equal(array[...], model)
