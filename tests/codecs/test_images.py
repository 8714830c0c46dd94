"""Image codecs of imagecodecs, one image a chunk: what is stored is the image file that anybody can open."""

from typing import Any

import imagecodecs
import imagecodecs.numcodecs
import numcodecs.registry
import numpy as np
import pytest

import gzarr
from gzarr.errors import ChunkError

RESOLUTION = (24, 32)


def frames(n: int, dtype: str = "u1", channels: int = 3) -> np.ndarray[Any, Any]:
    """Smooth moving pictures."""
    t, y, x = np.ogrid[:n, : RESOLUTION[0], : RESOLUTION[1]]
    planes = [127 + 120 * np.sin(0.2 * x + c + t) * np.cos(0.1 * y) for c in range(channels)]
    return (np.stack(planes, -1) * (1 if dtype == "u1" else 200)).astype(dtype)


LOSSLESS = {
    "jpegxl": (imagecodecs.numcodecs.Jpegxl(), imagecodecs.jpegxl_decode, "u1"),
    "jpegxl 16 bits": (imagecodecs.numcodecs.Jpegxl(), imagecodecs.jpegxl_decode, "u2"),
    "jpeg2k": (imagecodecs.numcodecs.Jpeg2k(reversible=True, codecformat="jp2"), imagecodecs.jpeg2k_decode, "u1"),
    "jpeg2k 16 bits": (imagecodecs.numcodecs.Jpeg2k(reversible=True), imagecodecs.jpeg2k_decode, "u2"),
    "png": (imagecodecs.numcodecs.Png(), imagecodecs.png_decode, "u1"),
    "png 16 bits": (imagecodecs.numcodecs.Png(), imagecodecs.png_decode, "u2"),
    "webp": (imagecodecs.numcodecs.Webp(lossless=True), imagecodecs.webp_decode, "u1"),
    "qoi": (imagecodecs.numcodecs.Qoi(), imagecodecs.qoi_decode, "u1"),
    "jpegls": (imagecodecs.numcodecs.Jpegls(), imagecodecs.jpegls_decode, "u1"),
}


@pytest.fixture(autouse=True)
def _empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has called imagecodecs.numcodecs.register_codecs: gzarr finds the codec by its id."""
    kept = {k: v for k, v in numcodecs.registry.codec_registry.items() if not k.startswith("imagecodecs_")}
    monkeypatch.setattr(numcodecs.registry, "codec_registry", kept)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", LOSSLESS)
def test_a_chunk_is_an_image(name: str, zarr_format: int) -> None:
    codec, decode, dtype = LOSSLESS[name]
    values = frames(3, dtype)
    store: dict[str, bytes] = {}
    chunks = (1, *RESOLUTION, 3)
    made = gzarr.create_array(
        store, shape=values.shape, chunks=chunks, dtype=dtype, compressor=codec, zarr_format=zarr_format
    )
    made[...] = values
    array = gzarr.open_array(dict(store), "r")
    assert (array[...] == values).all()
    assert (array[1, 3:9, ::2] == values[1, 3:9, ::2]).all()
    assert array.compressor.codec_id == codec.codec_id
    for i, frame in enumerate(values):
        key = f"{i}.0.0.0" if zarr_format == 2 else f"c/{i}/0/0/0"
        assert (decode(store[key]) == frame).all()
    made[2, 5:9] = 0
    values[2, 5:9] = 0
    assert (gzarr.open_array(store)[2] == values[2]).all()


def test_a_lossy_codec_comes_near() -> None:
    values = frames(2)
    codec = {"id": "imagecodecs_jpegxl", "level": 80, "lossless": False, "numthreads": 1}
    array = gzarr.array(values, chunks=(1, *RESOLUTION, 3), compressor=codec, zarr_format=2)
    difference = np.abs(array[...].astype(int) - values)
    assert 0 < difference.mean() < 8
    assert array.nbytes_stored < array.nbytes / 3


def test_a_damaged_image_and_one_of_another_size_are_named() -> None:
    store: dict[str, bytes] = {}
    chunks = (1, *RESOLUTION, 3)
    array = gzarr.array(frames(2), chunks=chunks, store=store, zarr_format=2, compressor=imagecodecs.numcodecs.Png())
    store["0.0.0.0"] = store["0.0.0.0"][:50]
    store["1.0.0.0"] = imagecodecs.png_encode(np.zeros((8, 8, 3), "u1"))
    for i in range(2):
        with pytest.raises(ChunkError, match=rf"'{i}\.0\.0\.0'.*imagecodecs_png"):
            array[i]
