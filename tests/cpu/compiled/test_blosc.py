"""The compiled loop makes Blosc frames block by block, byte by byte those of numcodecs with LZ4."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.codecs import BloscCodec
from gzarr.codecs.spec import BytesRepr, Step
from gzarr.config import config
from gzarr.cpu.compiled import encoder, library, source

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


def patterns(size: int, typesize: int) -> dict[str, Any]:
    """Bytes of elements that repeat in different ways, or not at all."""
    rng = np.random.default_rng(typesize)
    n = size * typesize
    walk = np.cumsum(rng.integers(-3, 4, size)).astype("<i8").view("u1").reshape(size, 8)
    return {
        "walk": np.resize(walk[:, : min(typesize, 8)], (size, typesize)).ravel(),
        "equal planes": walk[:, np.arange(typesize) % 2].ravel(),
        "noise": rng.integers(0, 256, n, dtype="u1"),
        "few bits": rng.integers(0, 5, n, dtype="u1"),
        "sparse": np.where(rng.random(n) < 0.1, rng.integers(0, 256, n), 0).astype("u1"),
        "period": np.resize(rng.integers(0, 256, 999, dtype="u1"), n),
        "half": np.concatenate([rng.integers(0, 3, n // 2, dtype="u1"), rng.integers(0, 256, n - n // 2, dtype="u1")]),
        "runs": np.repeat(rng.integers(0, 256, n // 20 + 1, dtype="u1"), 20)[:n],
    }


@pytest.mark.parametrize("typesize", [2, 3, 4, 8, 16, 24])
def test_numcodecs_decodes_what_was_searched(typesize: int) -> None:
    for size in (2048, 9000, 140_000 // typesize):
        for name, data in patterns(size, typesize).items():
            for level in (4, 5):
                frame = encoder.make_frame(encoder.Encoder(level, 1, typesize, cname="zstd"), data, len(data))
                assert (frame is None) == (name == "noise"), name
                if frame is not None:
                    assert numcodecs.blosc.decompress(frame) == data.tobytes(), (name, size, level)


def test_searched_frames_are_not_larger_than_those_of_numcodecs() -> None:
    rng = np.random.default_rng(3)
    field = np.cumsum(rng.integers(-20, 21, 300))[:, None] + np.cumsum(rng.integers(-20, 21, 300))
    noisy = (field + rng.integers(0, 16, field.shape)).astype("<i4")
    for value in (noisy, (noisy / 16).astype("<f4"), noisy.astype("<u2"), rng.poisson(3, field.shape).astype("<i8")):
        ours = encoder.make_frame(encoder.Encoder(5, 1, value.itemsize, cname="zstd"), value.tobytes(), value.nbytes)
        assert ours is not None
        assert len(ours) < 1.01 * len(numcodecs.Blosc("zstd", 5, 1).encode(value))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["<u2", "<i4", "<f8", "<c16"])
def test_the_reference_path_makes_the_same_searched_frames(dtype: str, layout: str, tmp_path: Path) -> None:
    value = LAYOUTS[layout](smooth(dtype, (192, 134)))
    codec = BloscCodec("zstd", 5, "shuffle", blocksize=20_000)
    for native in (True, False):
        with config.set({"cpu.native": native}):
            array = gzarr.create_array(
                tmp_path / str(native), shape=value.shape, chunks=(64, 134), dtype=dtype, compressors=codec
            )
            array[...] = value
            assert np.array_equal(array[...], value)
    for i in range(3):
        ours, theirs = (tmp_path / str(native) / "c" / str(i) / "0" for native in (True, False))
        assert ours.read_bytes() == theirs.read_bytes()


def test_which_frames_the_loop_makes() -> None:
    def made(codec: BloscCodec) -> bool:
        step = Step(replace(codec, typesize=4), BytesRepr(1 << 20, 4), BytesRepr())
        found = source.make_encoder(step, checksum=False)
        assert found is not None
        return found.frame != 0

    assert made(BloscCodec("lz4", 5, "shuffle"))
    assert made(BloscCodec("zstd", 5, "shuffle"))
    assert not made(BloscCodec("zstd", 3, "shuffle"))
    assert not made(BloscCodec("zstd", 5, "noshuffle"))
    assert not made(BloscCodec("zstd", 5, "shuffle", blocksize=1 << 19))
    assert not made(BloscCodec("lz4", 5, "bitshuffle"))
    assert not made(BloscCodec("lz4hc", 5, "shuffle"))
    assert not made(BloscCodec("lz4", 0, "shuffle"))
