"""Coordinate systems of OME-Zarr 0.6: what transformations do to points, ways between systems, and what is kept."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import ndimage

import gzarr
from gzarr.convert.microscopy import copy_image
from gzarr.errors import MetadataError
from gzarr.images import Image, create_image, create_scene, open_image, open_scene, validate

SYSTEM = {"name": "physical", "axes": [{"name": n, "type": "space", "unit": "micrometer"} for n in "zyx"]}
POINTS = np.array([[0.0, 0, 0], [1, 2, 3], [2.5, 4.25, 1.75]])
TURN = [[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]
SHEAR = [[1.0, 2, 0, 3], [0, 1, 0.5, -1], [0, 0, 2, 4]]

#: Documents of transformations of three axes, and what they do to points.
AFFINE: list[tuple[dict[str, Any], Any]] = [
    ({"type": "identity"}, lambda p: p),
    ({"type": "scale", "scale": [2.0, 0.5, 3]}, lambda p: p * [2, 0.5, 3]),
    ({"type": "translation", "translation": [1.0, -2, 0.5]}, lambda p: p + np.array([1, -2, 0.5])),
    ({"type": "rotation", "rotation": TURN}, lambda p: np.stack([-p[:, 1], p[:, 0], p[:, 2]], axis=1)),
    ({"type": "affine", "affine": SHEAR}, lambda p: p @ np.array(SHEAR)[:, :3].T + np.array(SHEAR)[:, 3]),
    ({"type": "affine", "path": "matrix"}, lambda p: p @ np.array(SHEAR)[:, :3].T + np.array(SHEAR)[:, 3]),
    ({"type": "mapAxis", "mapAxis": [2, 0, 1]}, lambda p: p[:, [2, 0, 1]]),
    (
        {"type": "projectAxis", "droppedInputs": [0], "createdOutputs": [1]},
        lambda p: np.stack([p[:, 1], 0 * p[:, 0], p[:, 2]], axis=1),
    ),
    (
        {
            "type": "sequence",
            "transformations": [
                {"type": "scale", "scale": [2, 2, 2]},
                {"type": "translation", "translation": [1, 1, 1]},
            ],
        },
        lambda p: 2 * p + 1,
    ),
    (
        {
            "type": "byDimension",
            "transformations": [
                {"inputAxes": [2, 0], "outputAxes": [1, 2], "transformation": {"type": "scale", "scale": [10, 100]}},
                {"input_axes": [1], "output_axes": [0], "transformation": {"type": "translation", "translation": [7]}},
            ],
        },
        lambda p: np.stack([p[:, 1] + 7, p[:, 2] * 10, p[:, 0] * 100], axis=1),
    ),
    (
        {
            "type": "bijection",
            "forward": {"type": "scale", "scale": [2.0, 2, 2]},
            "inverse": {"type": "scale", "scale": [0.5, 0.5, 0.5]},
        },
        lambda p: 2 * p,
    ),
]


def image_with(*documents: dict[str, Any], outputs: tuple[str, ...] = ("world",)) -> Image:
    """An image with transformations from its own system to others, and the arrays that these name."""
    image = create_image(shape=(4, 5, 6), dtype="u1", scale=0.5, units="micrometer", version="0.6")
    image.group.create_array("matrix", data=np.array(SHEAR))
    ome = image.group.attrs["ome"]
    item = ome["multiscales"][0]
    ends = {"input": {"name": "physical"}}
    item["coordinateSystems"] += [{**SYSTEM, "name": name} for name in outputs]
    item["coordinateTransformations"] = [
        {**ends, "output": {"name": name}, **one} for name, one in zip(outputs, documents, strict=True)
    ]
    image.group.attrs["ome"] = ome
    return image.reopened()


@pytest.mark.parametrize(
    ("document", "expected"), AFFINE, ids=lambda one: one.get("type") if isinstance(one, dict) else ""
)
def test_points_are_transformed(document: dict[str, Any], expected: Any) -> None:
    image = image_with(document)
    found = image.transform(POINTS, "world")
    np.testing.assert_allclose(found, expected(POINTS))
    matrix = image.matrix("world")
    np.testing.assert_allclose(POINTS @ matrix[:-1, :-1].T + matrix[:-1, -1], found)
    if np.linalg.det(matrix):
        np.testing.assert_allclose(image.transform(found, "physical", source="world"), POINTS, atol=1e-12)
    else:
        with pytest.raises(MetadataError, match="no transformations that can be followed"):
            image.transform(found, "physical", source="world")


@pytest.mark.parametrize(("interpolation", "order"), [("nearest", 0), ("linear", 1), ("cubic", 3), (None, 1)])
@pytest.mark.parametrize("kind", ["displacements", "coordinates"])
@pytest.mark.parametrize("in_group", [False, True])
def test_fields_are_interpolated(kind: str, interpolation: str | None, order: int, in_group: bool) -> None:
    named = {} if interpolation is None else {"interpolation": interpolation}
    image = image_with({"type": kind, "path": "field", **named})
    vectors = np.random.default_rng(0).normal(0, 0.2, (5, 6, 7, 3))
    placed = {"type": "scale", "scale": [1.0, 2, 0.5, 1], "input": {"path": "0"}, "output": {"name": "f"}}
    if in_group:
        group = image.group.create_group("field")
        group.create_array("0", data=vectors)
        group.attrs["ome"] = {"multiscales": [{"datasets": [{"path": "0", "coordinateTransformations": [placed]}]}]}
    else:
        image.group.create_array("field", data=vectors, attributes={"ome": {"coordinateTransformations": [placed]}})
    inside = np.random.default_rng(1).uniform(0, [4, 10, 3], (50, 3))
    places = (inside / [1, 2, 0.5]).T
    oracle = np.stack([ndimage.map_coordinates(vectors[..., n], places, order=order, mode="nearest") for n in range(3)])
    expected = oracle.T + (inside if kind == "displacements" else 0)
    np.testing.assert_allclose(image.transform(inside, "world"), expected, atol=1e-8)
    with pytest.raises(MetadataError, match=f"of type '{kind}', is no matrix"):
        image.matrix("world")


def test_ways_lead_through_several_systems() -> None:
    back = {"type": "scale", "scale": [4.0, 4, 4], "input": {"name": "far"}, "output": {"name": "world"}}
    image = image_with({"type": "translation", "translation": [1.0, 1, 1]}, back, outputs=("world", "far"))
    np.testing.assert_allclose(image.transform(POINTS, "far"), (POINTS + 1) / 4)
    with pytest.raises(MetadataError, match="there is no coordinate system 'mars'; there are 'physical', 'world'"):
        image.transform(POINTS, "mars")
    old = create_image(shape=(4, 4), dtype="u1")
    with pytest.raises(MetadataError, match=r"is OME-Zarr 0.5, which has no coordinate systems: copy it as 0.6"):
        old.transform(POINTS, "world")


def test_what_is_unknown_is_kept_and_written_back() -> None:
    image = image_with({"type": "spline", "knots": [1, 2]}, {"type": "identity"}, outputs=("bent", "world"))
    before = image.group.attrs["ome"]["multiscales"][0]
    image.write_label("cells", np.ones((4, 5, 6), "u1"))
    gzarr.images.build_pyramid(image, 1)
    after = open_image(image.group).group.attrs["ome"]["multiscales"][0]
    for field in ("coordinateSystems", "coordinateTransformations"):
        assert after[field] == before[field]
    assert image.labels["cells"].version == "0.6"
    with pytest.raises(MetadataError, match="transformations of type 'spline' are kept, and cannot be applied"):
        image.transform(POINTS, "bent")
    report = validate(image.group)
    assert report.ok
    assert "'spline' is unknown" in str(report)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"type": "scale", "scale": [1.0, 2]}, "is malformed: scale must be 3 numbers"),
        ({"type": "rotation"}, "lacks 'path'"),
        ({"type": "mapAxis", "mapAxis": [0, 0, 1]}, "no permutation of 3 axes"),
        ({"type": "projectAxis", "droppedInputs": [1]}, "leads to 2 coordinates, but its output has 3 axes"),
        ({"type": "identity", "output": {"name": "mars"}}, "is no coordinate system"),
        ({"type": "byDimension", "transformations": []}, "leads to 0 coordinates"),
    ],
)
def test_validation_tells_malformed_transformations(change: dict[str, Any], what: str) -> None:
    report = validate(image_with(change).group)
    assert what in str(report)
    assert len(report.errors) == 1


def test_levels_in_elements_are_placed_by_the_scale_of_the_image(tmp_path: Path) -> None:
    image = image_with({"type": "scale", "scale": [3.0, 2, 1]})
    ome = image.group.attrs["ome"]
    item = ome["multiscales"][0]
    item["coordinateSystems"][0]["axes"] = [{"name": f"dim_{n}", "type": "array"} for n in range(3)]
    identity = {"type": "identity", "input": "0", "output": "physical"}  # as drafts have it
    item["datasets"][0]["coordinateTransformations"] = [identity]
    image.group.attrs["ome"] = ome
    found = open_image(image.group)
    assert found.axes == ("z", "y", "x")
    assert found.scale() == {"z": 3.0, "y": 2.0, "x": 1.0}
    copy_image(image.group, tmp_path / "old.zarr", "0.5")
    assert open_image(tmp_path / "old.zarr").scale() == found.scale()
    copy_image(image.group, tmp_path / "new.zarr", "0.6")
    assert open_image(tmp_path / "new.zarr").metadata.coordinate_systems == found.metadata.coordinate_systems


def test_copies_between_versions_place_every_level_alike(tmp_path: Path) -> None:
    data = np.arange(32 * 64, dtype="u2").reshape(32, 64)
    image = create_image(
        tmp_path / "0.zarr", data, scale=0.5, translation=3, units="micrometer", version="0.4", levels=2
    )
    zattrs = json.loads((tmp_path / "0.zarr/.zattrs").read_text())
    zattrs["multiscales"][0]["coordinateTransformations"] = [{"type": "scale", "scale": [10.0, 1.0]}]
    (tmp_path / "0.zarr/.zattrs").write_text(json.dumps(zattrs))
    image = open_image(tmp_path / "0.zarr")
    image.write_label("cells", data % 3)
    for number, version in enumerate(("0.6", "0.5", "0.4", "0.6", "0.4"), 1):
        copy_image(gzarr.open_group(tmp_path / f"{number - 1}.zarr"), tmp_path / f"{number}.zarr", version)
        copy = open_image(tmp_path / f"{number}.zarr")
        assert (copy.version, copy.labels["cells"].version) == (version, version)
        assert validate(tmp_path / f"{number}.zarr").ok
        for level in range(3):
            assert copy.scale(level) == image.scale(level)
            assert copy.translation(level) == image.translation(level)


def test_what_older_versions_cannot_say_is_refused(tmp_path: Path) -> None:
    image = image_with({"type": "rotation", "rotation": TURN})
    with pytest.raises(MetadataError, match=r"\['physical', 'world'\], of which OME-Zarr 0.5 has 'physical' alone"):
        copy_image(image.group, tmp_path / "old.zarr", "0.5")
    assert not (tmp_path / "old.zarr").exists()


# -- scenes ------------------------------------------------------------------------------------------------------------


def tiles() -> gzarr.Group:
    group = gzarr.group()
    for number in range(3):
        create_image(group, shape=(10, 20), dtype="u1", scale=0.5, version="0.6", path=f"tiles/{number}")
    return group


def test_scenes_place_images() -> None:
    group = tiles()
    moves = {
        "tiles/0": [0.0, 0.0],
        "tiles/1": [[1.0, 0, 5], [0, 1, 10]],
        "tiles/2": {"type": "mapAxis", "mapAxis": [1, 0]},
    }
    create_scene(group, moves)
    scene = open_scene(group)
    assert (list(scene), scene.coordinate_systems) == (list(moves), ("world",))
    point = [[1.0, 2.0]]
    np.testing.assert_allclose(scene.transform(point, "tiles/1", "world"), [[6, 12]])
    np.testing.assert_allclose(scene.transform(point, "tiles/2", "tiles/1"), [[-3, -9]])
    np.testing.assert_allclose(scene.matrix("world", ("tiles/1", "physical")), [[1, 0, -5], [0, 1, -10], [0, 0, 1]])
    assert scene["tiles/0"].shape == (10, 20)
    report = validate(group)
    assert (report.ok, report.n_images) == (True, 3)
    assert repr(scene).endswith("3 images, coordinate systems world>")


def test_scenes_that_cannot_be_are_refused() -> None:
    group = tiles()
    create_image(group, shape=(8, 8), dtype="u1", path="old")
    for images, message in [
        ({}, "needs at least one image"),
        ({"old": [0, 0]}, "is OME-Zarr 0.5; scenes are of 0.6"),
        ({"tiles/0": [0.0, 0.0, 0.0]}, "translation must be 2 numbers"),
        ({"tiles/0": 3.0}, "a vector, a matrix or a mapping"),
    ]:
        with pytest.raises(MetadataError, match=message):
            create_scene(group, images)
    with pytest.raises(MetadataError, match=r"ome.scene: is missing"):
        open_scene(group)
    create_scene(group, {"tiles/0": [0.0, 0.0]})
    scene = group.attrs["ome"]
    scene["scene"]["coordinateTransformations"][0]["input"]["path"] = "tiles/9"
    group.attrs["ome"] = scene
    assert "no image can be opened at 'tiles/9'" in str(validate(group))
