"""Metadata of images: what is read, what is refused, what survives a rewrite."""

import math
from dataclasses import replace
from typing import Any

import pytest

import gzarr
from gzarr.errors import MetadataError, ReadOnlyError
from gzarr.images import validate
from gzarr.images.ome.documents import read_multiscale, write_multiscale
from gzarr.images.ome.transformations import Transformation

SCALE = {"type": "scale", "scale": [1, 0.5]}
AXES = [{"name": "y", "type": "space", "unit": "micrometer"}, {"name": "x", "type": "space", "unit": "micrometer"}]


def document(**changes: Any) -> dict[str, Any]:
    level = {"path": "0", "coordinateTransformations": [SCALE]}
    return {"name": "a", "type": "mean", "metadata": {}, "axes": AXES, "datasets": [level]} | changes


def group_of(item: Any, version: str = "0.5", **more: Any) -> gzarr.Group:
    attributes = {"multiscales": [item], **more}
    if version == "0.5":
        return gzarr.group(zarr_format=3, attributes={"ome": {"version": "0.5", **attributes}})
    return gzarr.group(zarr_format=2, attributes={"multiscales": [{"version": version, **item}], **more})


def test_what_is_unknown_survives_a_rewrite(version: str) -> None:
    axes = [{**AXES[0], "shade": 1}, AXES[1]]
    level = {"path": "0", "coordinateTransformations": [{"type": "scale", "scale": [1.0, 0.5]}], "kind": "raw"}
    omero = {"channels": [{"color": "FFFFFF", "label": "a", "lut": "fire"}], "rdefs": {"model": "color"}}
    label = {"colors": [{"label-value": 1, "rgba": [1, 2, 3, 4]}], "source": {"image": "../../", "by": "me"}}
    whole = [{"type": "scale", "scale": [1.0, 2.0]}]
    item = document(axes=axes, datasets=[level], flavour="sweet", version=version, coordinateTransformations=whole)
    group = group_of(item, version, omero=omero, mine=7, **{"image-label": label})
    before = group.attrs.asdict()
    write_multiscale(group, read_multiscale(group))
    assert group.attrs.asdict() == before


def test_the_transformation_of_the_image_comes_after_those_of_levels() -> None:
    own = [{"type": "scale", "scale": [1, 2]}, {"type": "translation", "translation": [3, 4]}]
    whole = [{"type": "scale", "scale": [10, 10]}, {"type": "translation", "translation": [1, 2]}]
    item = document(datasets=[{"path": "0", "coordinateTransformations": own}], coordinateTransformations=whole)
    found = read_multiscale(group_of(item))
    assert found.datasets[0].scale == (1.0, 2.0)
    assert found.transformation(0) == Transformation((10.0, 20.0), (31.0, 42.0))


def test_a_translation_before_the_scale_is_scaled() -> None:
    own = [{"type": "translation", "translation": [3, 4]}, {"type": "scale", "scale": [1, 2]}]
    found = read_multiscale(group_of(document(datasets=[{"path": "0", "coordinateTransformations": own}])))
    assert found.datasets[0].translation == (3.0, 8.0)


@pytest.mark.parametrize("version", ["0.1", "0.2", "0.3"])
def test_old_versions_become_0_4(version: str) -> None:
    item: dict[str, Any] = {"datasets": [{"path": "0"}]} | ({"axes": ["y", "x"]} if version == "0.3" else {})
    group = group_of(item, version)
    found = read_multiscale(group)
    assert (found.version, len(found.axes)) == (version, 2 if version == "0.3" else 5)
    write_multiscale(group, replace(found, name="new"))
    again = read_multiscale(group)
    assert (again.version, again.name, again.axes, again.datasets) == ("0.4", "new", found.axes, found.datasets)


def test_one_of_several_images_is_chosen_and_changed_alone() -> None:
    group = gzarr.group(attributes={"ome": {"version": "0.5", "multiscales": [document(), document(name="b")]}})
    assert [read_multiscale(group, which).index for which in (0, "b", -1)] == [0, 1, 1]
    write_multiscale(group, replace(read_multiscale(group, "b"), name="c"))
    assert [item["name"] for item in group.attrs["ome"]["multiscales"]] == ["a", "c"]
    with pytest.raises(MetadataError, match="no image 'b' among multiscales: \\['a', 'c'\\]"):
        read_multiscale(group, "b")


def test_a_read_only_group_is_not_changed() -> None:
    group = gzarr.open_group(group_of(document()).store, "r")
    with pytest.raises(ReadOnlyError):
        write_multiscale(group, read_multiscale(group))


def level(**changes: Any) -> dict[str, Any]:
    return {"datasets": [{"path": "0", "coordinateTransformations": [SCALE]} | changes]}


def scaled(*values: Any) -> dict[str, Any]:
    return level(coordinateTransformations=[{"type": "scale", "scale": list(values)}])


@pytest.mark.parametrize(
    ("changes", "field", "what"),
    [
        (scaled(1), "datasets[0].coordinateTransformations[0].scale", "2 numbers, one for each of ['y', 'x'], got [1]"),
        (scaled(1, 0), "datasets[0].coordinateTransformations[0].scale", "must be numbers > 0, got [1, 0]"),
        (scaled(-1, 1), "datasets[0].coordinateTransformations[0].scale", "must be numbers > 0, got [-1, 1]"),
        (scaled(1, math.nan), "datasets[0].coordinateTransformations[0].scale", "must be numbers > 0, got [1, nan]"),
        (scaled(1, "2"), "datasets[0].coordinateTransformations[0].scale", "2 numbers"),
        (level(coordinateTransformations=None), "datasets[0].coordinateTransformations", "is missing"),
        (level(coordinateTransformations=[]), "datasets[0].coordinateTransformations", "has no scale"),
        (level(coordinateTransformations=[SCALE, {"type": "affine"}]), "[1].type", "must be 'scale' or 'translation'"),
        (
            level(coordinateTransformations=[SCALE, {"type": "translation", "translation": [math.inf, 0]}]),
            "coordinateTransformations[1].translation",
            "must be finite numbers",
        ),
        (level(coordinateTransformations=[{"type": "scale", "path": "s"}]), "[0].scale", "stored as an array"),
        (level(path=3), "datasets[0].path", "must be a text"),
        ({"datasets": []}, "datasets", "must be a list of levels"),
        ({"datasets": level()["datasets"] * 2}, "datasets[1].path", "'0' is there twice"),
        ({"axes": None}, "axes", "must be a list of axes"),
        ({"axes": [AXES[0], AXES[0]]}, "axes", "'y' is there more than once"),
        ({"axes": [{"name": "t", "type": "time"}, {"name": "c", "type": "channel"}]}, "axes", "of type 'space'"),
        ({"axes": [AXES[0], {"type": "space"}]}, "axes[1].name", "must be a text"),
        ({"axes": [AXES[0], {"name": "x", "type": 1}]}, "axes[1].type", "must be a text"),
    ],
)
def test_malformed_metadata_are_one_error_with_group_and_field(changes: Any, field: str, what: str) -> None:
    group = group_of(document(**changes))
    with pytest.raises(MetadataError) as caught:
        read_multiscale(group)
    message = str(caught.value)
    assert message.startswith(f"{group.store_path}: ome.multiscales[0].")
    assert field in message
    assert what in message
    found = [fault for fault in validate(group).faults if what in fault.what]
    assert [(fault.severity, fault.path, field in fault.field) for fault in found[:1]] == [
        ("fatal", str(group.store_path), True)
    ]
    assert found[0].remedy


def test_metadata_of_the_other_format_are_refused() -> None:
    with pytest.raises(MetadataError, match=r"multiscales: metadata of OME-Zarr 0\.4 in a group of Zarr v3"):
        read_multiscale(gzarr.group(zarr_format=3, attributes={"multiscales": [document()]}))
    with pytest.raises(MetadataError, match=r"ome: metadata of OME-Zarr 0\.5 in a group of Zarr v2"):
        read_multiscale(gzarr.group(zarr_format=2, attributes={"ome": {"multiscales": [document()]}}))


@pytest.mark.parametrize(("version", "place"), [("0.7", "ome.version"), ("9", "ome.version")])
def test_later_versions_are_refused(version: str, place: str) -> None:
    group = gzarr.group(attributes={"ome": {"version": version, "multiscales": [document()]}})
    with pytest.raises(MetadataError, match=f"{place}: OME-Zarr '{version}' in Zarr v3 cannot be read"):
        read_multiscale(group)
    with pytest.raises(MetadataError, match="cannot be read"):
        read_multiscale(group_of(document(), "0.6"))


@pytest.mark.parametrize("attributes", [{}, {"ome": {}}, {"ome": 3}, {"ome": {"multiscales": []}}])
def test_what_is_no_image(attributes: Any) -> None:
    with pytest.raises(MetadataError, match="multiscales"):
        read_multiscale(gzarr.group(attributes=attributes))
