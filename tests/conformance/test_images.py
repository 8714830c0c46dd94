"""OME-Zarr between gzarr and others: their validators accept what it writes, and each opens what the other writes."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.convert import from_tiff
from gzarr.convert.microscopy import copy_image
from gzarr.images import ImageWriter, create_image, map_overlap, open_image
from tests.conformance import image_peers

for _name in image_peers.CHECKS:
    pytest.importorskip(_name)

Values = np.ndarray[Any, Any]


def values(shape: tuple[int, ...], dtype: str) -> Values:
    return np.random.default_rng(0).integers(0, 100, shape).astype(dtype)


def plane(path: Path, version: Any) -> None:
    """One level, no units."""
    create_image(path, values((70, 50), "f4"), version=version, levels=0)


def volume(path: Path, version: Any) -> None:
    """Ragged ends, and voxels that are no cubes."""
    create_image(
        path,
        values((21, 45, 50), "i2"),
        version=version,
        scale={"z": 2.0, "y": 0.5, "x": 0.25},
        translation={"z": -10.0, "y": 3.0},
        units="micrometer",
        chunks=(8, 16, 16),
        levels=3,
    )


def movie(path: Path, version: Any) -> None:
    """All axes, and channels that say more and less."""
    create_image(
        path,
        values((2, 3, 4, 32, 24), "u1"),
        version=version,
        scale={"t": 5.0, "z": 2.0},
        units={"t": "second", "x": "nanometer"},
        channels=["red", {"label": "green", "color": "00FF00", "window": {"start": 3, "end": 90}}, "blue"],
        name="a movie",
        levels=1,
        method="nearest",
    )


def channels(path: Path, version: Any) -> None:
    """Shards in 0.5."""
    shards = (1, 64, 64) if version != "0.4" else None
    layout = {"axes": "cyx", "chunks": (1, 16, 16), "shards": shards}
    levels = {"levels": 2, "factors": [2, 3], "method": "median"}
    create_image(path, values((2, 100, 90), "u2"), version=version, channels=["a", "b"], **layout, **levels)


def filtered(path: Path, version: Any) -> None:
    """The levels come from the filter's own pass."""
    image = create_image(None, values((40, 70, 50), "f4"), version=version, scale=2.0, units="nanometer", levels=0)
    map_overlap(lambda block: block / 2, image, path, depth=3, levels=2)


def acquired(path: Path, version: Any) -> None:
    """Frames that came one after the other."""
    options = {"axes": "tcyx", "channels": ["a", "b"], "scale": {"y": 0.5, "x": 0.5}, "units": "micrometer"}
    with ImageWriter(path, shape=(2, 64, 48), dtype="u2", version=version, levels=2, **options) as writer:
        for frame in values((5, 2, 64, 48), "u2"):
            writer.append(frame)


def converted(path: Path, version: Any) -> None:
    """An OME-TIFF with a pyramid and two channels."""
    tifffile = pytest.importorskip("tifffile")
    data = values((2, 128, 96), "u2")
    size = {
        "PhysicalSizeX": 0.5,
        "PhysicalSizeXUnit": "\N{MICRO SIGN}m",
        "PhysicalSizeY": 0.5,
        "PhysicalSizeYUnit": "\N{MICRO SIGN}m",
    }
    with tifffile.TiffWriter(path.with_suffix(".ome.tif"), ome=True) as file:
        channels = {"axes": "CYX", "Channel": {"Name": ["nuclei", "actin"]}, **size}
        file.write(data, tile=(32, 32), subifds=1, metadata=channels)
        file.write(data[:, ::2, ::2], tile=(32, 32), subfiletype=1)
    zarr_format = 2 if version == "0.4" else 3
    made = path if version != "0.6" else path.with_suffix(".05.zarr")
    from_tiff(path.with_suffix(".ome.tif"), made, ome=True, zarr_format=zarr_format)
    if version == "0.6":
        copy_image(gzarr.open_group(made), path, version)


PRODUCTS: list[Callable[[Path, Any], None]] = [plane, volume, movie, channels, filtered, acquired, converted]


@pytest.mark.parametrize("version", ["0.4", "0.5", "0.6"])
@pytest.mark.parametrize("write", PRODUCTS, ids=lambda write: write.__name__)
def test_validators_accept_what_gzarr_writes(write: Any, version: str, tmp_path: Path) -> None:
    write(tmp_path / "made.zarr", version)
    assert image_peers.objections(tmp_path / "made.zarr", version) == []


def test_every_validator_sees_a_scale_of_the_wrong_length(tmp_path: Path) -> None:
    path = tmp_path / "made.zarr"
    volume(path, "0.5")
    document = path / "zarr.json"
    stored = json.loads(document.read_text())
    stored["attributes"]["ome"]["multiscales"][0]["datasets"][1]["coordinateTransformations"][0]["scale"] = [1.0, 1.0]
    document.write_text(json.dumps(stored))
    assert {problem.partition(":")[0] for problem in image_peers.objections(path, "0.5")} == set(image_peers.CHECKS)


@pytest.mark.parametrize("version", ["0.4", "0.5", "0.6"])
def test_validators_accept_labels(version: str, tmp_path: Path) -> None:
    path = tmp_path / "made.zarr"
    volume(path, version)
    image = open_image(path)
    image.write_label("cells", values(image.shape, "u2"))
    image.write_label(
        "few", values(image.shape, "u1") // 50, colors={1: (255, 0, 0, 255)}, properties={1: {"kind": "nucleus"}}
    )
    assert image_peers.objections(path, version) == []
    assert image_peers.objections(path / "labels/cells", version) == []
    assert image_peers.objections(path / "labels/few", version) == []


@pytest.mark.parametrize("version", ["0.4", "0.5"])
def test_validators_accept_collections(version: Any, tmp_path: Path) -> None:
    path = tmp_path / "made.zarr"
    with ImageWriter(
        path, positions=["left", "right"], shape=(40, 50), dtype="u2", axes="tyx", version=version
    ) as writer:
        for name in ("left", "right", "left", "right"):
            writer.append(values((40, 50), "u2"), position=name)
    assert (
        image_peers.by_ome_zarr_pyramid(path, version) == image_peers.by_ome_zarr_io(path, version) == []
    )  # the others know none
    assert image_peers.objections(path / "left", version) == image_peers.objections(path / "right", version) == []


@pytest.mark.parametrize(
    ("reader", "version"), [(name, v) for name in image_peers.READERS for v in ("0.4", "0.5")] + [("ngff_zarr", "0.6")]
)
@pytest.mark.parametrize("write", PRODUCTS, ids=lambda write: write.__name__)
def test_others_read_what_gzarr_writes(write: Any, version: str, reader: str, tmp_path: Path) -> None:
    path = tmp_path / "made.zarr"
    write(path, version)
    image, seen = open_image(path), image_peers.READERS[reader](path, version)
    assert seen.axes == image.axes
    assert len(seen.levels) == len(image)
    for level, (scale, translation, found) in enumerate(seen.levels):
        assert scale == pytest.approx(image.scale(level))
        assert translation == pytest.approx(image.translation(level))
        np.testing.assert_array_equal(found, image[level][...])


@pytest.mark.parametrize(("writer", "version"), image_peers.WRITERS)
def test_gzarr_reads_what_others_write(writer: str, version: str, tmp_path: Path) -> None:
    path, data = tmp_path / "theirs.zarr", values((2, 6, 40, 50), "u2")
    with image_peers.quiet():
        image_peers.WRITERS[writer, version](path, data, version)
    image, seen = open_image(path, "r"), image_peers.READERS["zarr" if version < "0.6" else writer](path, version)
    assert (image.version, image.axes) == (version, tuple("czyx"))
    assert image.units["z"] == image.units["x"] == image_peers.UNIT
    assert image.scale() == image_peers.SCALE
    np.testing.assert_array_equal(image[0][...], data)
    assert len(image) == len(seen.levels)
    for level, (scale, translation, found) in enumerate(seen.levels):
        assert scale == image.scale(level)
        assert translation == image.translation(level)
        np.testing.assert_array_equal(found, image[level][...])


@pytest.mark.parametrize("version", ["0.5", "0.6"])
def test_images_are_written_as_one_file_of_rfc_9(version: Any, tmp_path: Path) -> None:
    data = np.arange(64 * 48, dtype="u2").reshape(64, 48)
    made = create_image(tmp_path / "cells.ozx", data, version=version, levels=1)
    made.write_label("cells", data % 3)
    made.group.store.close()
    image = open_image(tmp_path / "cells.ozx")
    np.testing.assert_array_equal(image[0][...], data)
    assert list(image.labels) == ["cells"]
    with zipfile.ZipFile(tmp_path / "cells.ozx") as archive:
        names = archive.namelist()
        assert json.loads(archive.comment) == {
            "ome": {"version": version, "zipFile": {"centralDirectory": {"jsonFirst": True}}}
        }
    n_documents = sum(name.endswith("zarr.json") for name in names)
    assert names[:4] == ["zarr.json", "0/zarr.json", "1/zarr.json", "labels/zarr.json"]
    assert all(name.endswith("zarr.json") for name in names[:n_documents])
    copy_image(gzarr.open_group(tmp_path / "cells.ozx", "r"), tmp_path / "copy.ozx")
    import ngff_zarr
    from ngff_zarr import rfc9_zip

    assert rfc9_zip.read_ozx_version(tmp_path / "copy.ozx") == version
    assert rfc9_zip.read_ozx_json_first(tmp_path / "copy.ozx")
    with image_peers.quiet():
        theirs = ngff_zarr.from_ngff_zarr(tmp_path / "copy.ozx", validate=True)
    np.testing.assert_array_equal(np.asarray(theirs.images[0].data), data)
