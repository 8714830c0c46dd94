"""Images of every mode into Zarr, and several into one array."""

import numpy as np
import pytest
from PIL import Image

import gzarr
from gzarr import convert
from gzarr.errors import CopyError
from gzarr.storage import MemoryStore


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGB", "RGBA", "I;16", "I", "F", "CMYK"])
def test_images_keep_their_pixels_and_mode(tmp_path, mode):
    rng = np.random.default_rng(0)
    suffix = {"F": "tif", "CMYK": "tif", "I": "tif"}.get(mode, "png")
    dtype = {"I;16": "u2", "I": "i4", "F": "f4"}.get(mode, "u1")
    bands = {"LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}.get(mode)
    pixels = rng.integers(0, 200, (6, 9, bands) if bands else (6, 9)).astype(dtype)
    image = Image.fromarray(pixels > 100) if mode == "1" else Image.fromarray(pixels)
    if mode == "CMYK":
        image = Image.frombytes("CMYK", (9, 6), pixels.tobytes())
    assert image.mode == mode
    image.save(tmp_path / f"a.{suffix}", dpi=(72, 72))
    dest = MemoryStore()
    convert.from_image(tmp_path / f"a.{suffix}", dest)
    z = gzarr.open(dest, mode="r")
    assert np.array_equal(z[:], pixels > 100 if mode == "1" else pixels)
    assert z.attrs["mode"] == mode
    assert z.dimension_names == ("y", "x", "c")[: z.ndim]
    if mode not in ("I", "F"):
        convert.to_image(z, tmp_path / f"b.{suffix}")
        with Image.open(tmp_path / f"b.{suffix}") as image:
            assert image.mode == mode
            assert np.array_equal(np.asarray(image), z[...])
            assert round(image.info["dpi"][0]) == 72


def test_a_palette_becomes_colours(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "a.png")
    dest = MemoryStore()
    convert.from_image(tmp_path / "a.png", dest)
    assert gzarr.open(dest, mode="r")[:].tolist() == [[[10, 20, 30], [40, 50, 60]]]


def test_several_images_and_frames_become_one_array(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for i, path in enumerate(paths):
        Image.new("RGB", (5, 3), (i, 0, 0)).save(path)
    dest = MemoryStore()
    convert.from_image(paths, dest)
    z = gzarr.open(dest, mode="r")
    assert (z.shape, z.chunks, z.dimension_names) == ((4, 3, 5, 3), (1, 3, 5, 3), ("t", "y", "x", "c"))
    assert z[:, 0, 0, 0].tolist() == [0, 1, 2, 3]
    frames = [Image.new("L", (4, 4), i * 10) for i in range(3)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    convert.from_image(tmp_path / "a.gif", dest, if_exists="replace")
    assert gzarr.open(dest, mode="r").shape[0] == 3
    Image.new("RGB", (6, 3)).save(paths[2])
    with pytest.raises(CopyError, match=r"2\.png, frame 0, is \(3, 6, 3\)"):
        convert.from_image(paths, MemoryStore())


def test_planes_and_channels_are_found(tmp_path):
    data = np.arange(3 * 4 * 5, dtype="u1").reshape(1, 3, 1, 4, 5)
    z = gzarr.array(data, dimension_names=("t", "c", "z", "y", "x"))
    convert.to_image(z, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert np.array_equal(np.asarray(image), np.moveaxis(data[0, :, 0], 0, -1))
    convert.to_image(np.zeros((1, 5), "u1"), tmp_path / "b.jpg", quality=50)
    with Image.open(tmp_path / "b.jpg") as image:
        assert image.size == (5, 1)


@pytest.mark.parametrize(
    ("data", "name", "match"),
    [
        (np.zeros((4, 5, 6), "u1"), "a.png", "6 samples of uint8"),
        (np.zeros((2, 4, 5, 3), "u1"), "a.png", r"give one plane: array\[0\]"),
        (np.zeros((4, 5), "f4"), "a.png", "no samples of float32"),
        (np.zeros((4, 5), "u1"), "a.xyz", "no format of images"),
        (np.zeros((4, 5, 4), "u1"), "a.jpg", "cannot write mode RGBA"),
    ],
)
def test_what_is_no_image_is_refused(tmp_path, data, name, match):
    with pytest.raises(CopyError, match=match):
        convert.to_image(data, tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_stack_with_a_truncated_image_is_resumed_with_the_whole_one(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(4)]
    for i, path in enumerate(paths):
        Image.fromarray(np.full((64, 64), i, "u1")).save(path, compress_level=0)
    whole = paths[2].read_bytes()
    paths[2].write_bytes(whole[:2000])
    with pytest.raises(CopyError, match=r"2\.png.*resume=True"):
        convert.from_image(paths, tmp_path / "a.zarr")
    paths[2].write_bytes(whole)
    convert.from_image(paths, tmp_path / "a.zarr", resume=True)
    assert gzarr.open(tmp_path / "a.zarr")[:, 0, 0].tolist() == [0, 1, 2, 3]
