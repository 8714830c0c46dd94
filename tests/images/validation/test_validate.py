"""Validation finds what is planted: in metadata, in arrays, in labels, in chunks. Sound images have no faults."""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import MetadataError
from gzarr.identity.runs import Run
from gzarr.images import create_image, create_plate, open_image, validate
from gzarr.images.ome.documents import change_attributes
from gzarr.images.pyramid.resuming import begin

Ome = dict[str, Any]


def make(path: Any, version: Any = "0.5", *, labels: bool = True) -> gzarr.Group:
    """A sound image of 3 levels with channels and labels."""
    rng = np.random.default_rng(0)
    data = np.sort(rng.integers(100, 200, (2, 16, 21), "u2"), axis=-1)
    image = create_image(
        path, data, axes="cyx", scale=0.5, units="um", channels=["a", "b"], version=version, chunks=(1, 8, 8)
    )
    _add_levels(image.group, data, version)
    if labels:
        listed = {"labels": ["cells"]}
        ome = {"ome": {"version": "0.5", **listed}} if version == "0.5" else listed
        parent = image.group.create_group("labels", attributes=ome)
        mask = create_image(parent, data[0] // 50, path="cells", scale=0.5, units="um", version=version, chunks=(8, 8))
        _add_levels(mask.group, data[0] // 50, version)
        edit(mask.group, lambda ome: ome.update({"image-label": {"source": {"image": "../../"}}}))
    return image.group


def _add_levels(group: gzarr.Group, data: Any, version: str) -> None:
    for number in (1, 2):
        data = data[..., ::2, ::2]
        names = ["c", "y", "x"][-data.ndim :]
        keywords: Any = {"dimension_names": names} if version == "0.5" else {"dimension_separator": "/"}
        group.create_array(str(number), data=data, chunks=(1, 8, 8)[-data.ndim :], **keywords)

    def add(ome: Ome) -> None:
        (first,) = ome["multiscales"][0]["datasets"]
        (scale,) = first["coordinateTransformations"]
        axes = range(len(scale["scale"]))
        for number in (1, 2):
            values = [v if axis == len(axes) - 3 else v * 2**number for axis, v in enumerate(scale["scale"])]
            item = {"path": str(number), "coordinateTransformations": [{"type": "scale", "scale": values}]}
            ome["multiscales"][0]["datasets"].append(item)

    edit(group, add)


def edit(group: gzarr.Group, change: Callable[[Ome], Any]) -> None:
    def changed(stored: dict[str, Any]) -> dict[str, Any]:
        change(stored["ome"] if group.zarr_format == 3 else stored)
        return stored

    change_attributes(group.store, group.path, group.metadata.zarr_format, changed)


@pytest.fixture(params=["0.4", "0.5"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> gzarr.Group:
    return make(tmp_path / "cell.zarr", request.param)


def test_a_sound_image_has_no_faults(group: gzarr.Group) -> None:
    found = validate(group, data=True)
    assert (found.faults, found.ok, found.n_images) == ((), True, 2)
    assert str(found) == f"{group.store_path}: 2 images, 0 errors, 0 warnings"
    assert open_image(group).validate() == validate(group)
    found.raise_for_errors()


def level(number: int, value: Any) -> Callable[[Ome], Any]:
    def change(ome: Ome) -> None:
        ome["multiscales"][0]["datasets"][number]["coordinateTransformations"] = value

    return change


def scale(number: int, *values: Any) -> Callable[[Ome], Any]:
    return level(number, [{"type": "scale", "scale": list(values)}])


def item(**values: Any) -> Callable[[Ome], Any]:
    return lambda ome: ome["multiscales"][0].update(values)


def axes(*names: str) -> Callable[[Ome], Any]:
    kinds = {"c": "channel", "t": "time"}
    return item(axes=[{"name": n, "type": kinds.get(n, "space"), "unit": "micrometer"} for n in names])


def channels(change: Callable[[Any], Any]) -> Callable[[Ome], Any]:
    return lambda ome: change(ome["omero"]["channels"])


SCALE = {"type": "scale", "scale": [1.0, 0.5, 0.5]}
#: What is changed in the metadata of a sound image, the severity of the fault, its field and what it says.
PLANTED: dict[str, tuple[Callable[[Ome], Any], str, str, str]] = {
    "two scales": (level(0, [SCALE, SCALE]), "error", "datasets[0].coordinateTransformations", "must be a scale, then"),
    "scale against shapes": (scale(1, 1, 0.5, 0.5), "error", "datasets[1].coordinateTransformations", "'y' is 1 times"),
    "shift": (
        level(1, [{"type": "scale", "scale": [1, 1, 1]}, {"type": "translation", "translation": [0, 0, 9]}]),
        "warning",
        "datasets[1].coordinateTransformations",
        "translation of axis 'x' moves the level by 9",
    ),
    "axes unordered": (axes("y", "x", "c"), "error", "axes", "then the channel or another axis, then space"),
    "too few axes": (axes("y", "x"), "fatal", "datasets[0]", "the shape (2, 16, 21), of 3 axes"),
    "level missing": (
        lambda ome: ome["multiscales"][0]["datasets"][2].update(path="7"),
        "fatal",
        "datasets[2].path",
        "is missing",
    ),
    "levels unordered": (
        lambda ome: ome["multiscales"][0]["datasets"].reverse(),
        "fatal",
        "datasets[1]",
        "larger than",
    ),
    "no name": (lambda ome: ome["multiscales"][0].pop("name"), "warning", "multiscales[0].name", "is missing"),
    "unit unknown": (
        lambda ome: ome["multiscales"][0]["axes"][1].update(unit="um"),
        "warning",
        "axes[1].unit",
        "'um' is no unit of space",
    ),
    "too few channels": (channels(lambda c: c.pop()), "error", "omero.channels", "lists 1 channels, the image has 2"),
    "no colour": (channels(lambda c: c[1].update(color="red")), "error", "channels[1].color", "six hexadecimal digits"),
    "window": (channels(lambda c: c[0]["window"].update(start=9, end=1)), "error", "channels[0].window", "wrong order"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_of_metadata_are_found(group: gzarr.Group, name: str) -> None:
    change, severity, field, what = PLANTED[name]
    edit(group, change)
    found = [f for f in validate(group.store).faults if f.severity == severity and what in f.what]
    assert [(fault.path, fault.field.endswith(field)) for fault in found][:1] == [(str(group.store_path), True)]
    assert all(fault.remedy for fault in found)
    if severity == "fatal":
        with pytest.raises(MetadataError, match="multiscales"):
            open_image(group.store)
    else:
        open_image(group.store)


def replaced(path: str, **keywords: Any) -> Callable[[gzarr.Group], Any]:
    def change(group: gzarr.Group) -> None:
        old = group[path]
        names = (
            {"dimension_names": old.metadata.dimension_names}
            if group.zarr_format == 3
            else {"dimension_separator": "/"}
        )
        shape = keywords.get("shape", old.shape)
        data = np.broadcast_to(np.zeros((), old.dtype), shape) if "shape" in keywords else old[...]
        data = data.astype(keywords.get("dtype", old.dtype))
        names = {} if data.ndim != old.ndim and group.zarr_format == 3 else names
        group.create_array(path, data=data, overwrite=True, **names)

    return change


def begun(group: gzarr.Group) -> None:
    begin(group.store, group.path, name="build_pyramid", run=Run(), plan={}, resume=False)


#: What is changed in the arrays and groups: the path of the fault, its severity and what it says.
BROKEN: dict[str, tuple[Callable[[gzarr.Group], Any], str, str, str]] = {
    "level of other type": (replaced("1", dtype="f4"), "", "fatal", "has the data type float32, level 0 has uint16"),
    "level of other rank": (replaced("1", shape=(8, 11)), "", "fatal", "has the shape (8, 11), of 2 axes"),
    "level larger than level 0": (replaced("2", shape=(2, 4, 22)), "", "fatal", "larger than (2, 16, 21) of level 0"),
    "level larger than the one before": (
        replaced("2", shape=(2, 9, 6)),
        "",
        "error",
        "larger than (2, 8, 11) of the level",
    ),
    "level is a group": (lambda g: g.create_group("1", overwrite=True), "", "fatal", "level 1, '1', is a group"),
    "float labels": (replaced("labels/cells/0", dtype="f4"), "labels/cells", "fatal", "labels of type float32"),
    "labels elsewhere": (
        replaced("labels/cells/0", shape=(16, 20)),
        "labels/cells",
        "warning",
        "axis 'x' has 20 elements",
    ),
    "unfinished build": (begun, "", "warning", "an unfinished build_pyramid is here"),
    "label gone": (lambda g: g.__delitem__("labels/cells"), "labels", "error", "no image of labels is at 'cells'"),
    "label not listed": (
        lambda g: g.move("labels/cells", "labels/nuclei"),
        "labels",
        "warning",
        "'nuclei' is not listed",
    ),
    "no image-label": (
        lambda g: edit(g["labels/cells"], lambda ome: ome.pop("image-label")),
        "labels/cells",
        "error",
        "is missing in an image of labels",
    ),
    "source gone": (
        lambda g: edit(g["labels/cells"], lambda ome: ome.update({"image-label": {"source": {"image": "../x"}}})),
        "labels/cells",
        "warning",
        "no image is at '../x'",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_planted_faults_of_arrays_are_found(group: gzarr.Group, name: str) -> None:
    change, path, severity, what = BROKEN[name]
    change(group)
    found = [fault for fault in validate(group).faults if what in fault.what]
    place = f"{group.store_path}/{path}".rstrip("/")
    assert [(fault.path, fault.severity) for fault in found][:1] == [(place, severity)], validate(group)


def emptied(group: gzarr.Group) -> None:
    meta = group["2"].metadata
    group.create_array("2", shape=meta.shape, dtype="u2", overwrite=True, dimension_names=meta.dimension_names)


def test_levels_that_lost_something_are_a_warning(tmp_path: Path) -> None:
    """As those of slide scanners: one element in two, stored with loss."""
    rng = np.random.default_rng(0)
    picture = np.cumsum(rng.normal(0, 2, (256, 256)), axis=1).clip(-90, 90) + 128
    image = create_image(tmp_path / "slide.zarr", picture.astype("u1"), axes="yx", levels=1)
    image[1][...] = (picture[::2, ::2] + rng.normal(0, 6, (128, 128))).clip(0, 255)
    found = validate(image, data=True)
    assert found.ok
    assert "level 1 differs from level 0" in {fault.what.split(",")[0] for fault in found.warnings}


def test_planted_faults_of_data_are_found_when_chunks_are_read(tmp_path: Path) -> None:
    group = make(tmp_path / "cell.zarr")
    group["1"][1, :, 2:5] = 5000
    emptied(group)
    damaged = next((tmp_path / "cell.zarr/labels/cells/0/c").rglob("1"))
    (damaged if damaged.is_file() else damaged / "0").write_bytes(b"damaged")
    assert validate(group).ok
    found = validate(group, data=True)
    assert [(fault.path.removeprefix(f"{group.store_path}/"), fault.what.split(":")[0]) for fault in found.errors] == [
        ("1", "level 1 does not show level 0 at (0, 0, 0)"),
        ("2", "level 2 is empty"),
        ("labels/cells/0", found.errors[2].what.split(":")[0]),
    ]
    assert found.errors[2].field.startswith("labels/cells/0/c/")
    with pytest.raises(MetadataError, match=r"has 3 errors: .*does not show.*is empty"):
        found.raise_for_errors()
    assert [fault["severity"] for fault in found.to_json()["faults"]] == ["error"] * 3


@pytest.mark.parametrize("method", ["min", "max", "mean", "first"])
def test_levels_of_any_method_show_the_one_before(tmp_path: Path, method: str) -> None:
    data = (np.random.default_rng(1).normal(size=(50, 61)) + np.arange(61)).astype("f4")
    image = create_image(tmp_path / "a", data, units="um", chunks=(16, 16))
    cut = data[:50, :60].reshape(25, 2, 30, 2)
    small = cut[:, 0, :, 0] if method == "first" else getattr(cut, method)(axis=(1, 3))
    image.group.create_array("1", data=small, dimension_names=("y", "x"))
    more = {"path": "1", "coordinateTransformations": [{"type": "scale", "scale": [2.0, 2.0]}]}
    edit(image.group, lambda ome: ome["multiscales"][0]["datasets"].append(more))
    assert validate(tmp_path / "a", data=True).ok
    image.group["1"][...] = np.roll(small, 9)
    assert not validate(tmp_path / "a", data=True).ok


def test_collections_and_plates_are_walked(tmp_path: Path) -> None:
    root = gzarr.open_group(
        tmp_path / "all.zarr", "w", attributes={"ome": {"version": "0.5", "bioformats2raw.layout": 3}}
    )
    for number in (0, 1):
        create_image(root, shape=(4, 4), dtype="u1", path=str(number))
    found = validate(root)
    assert (found.n_images, found.ok, len(found.warnings)) == (2, True, 4)
    root.create_group("OME", attributes={"ome": {"version": "0.5", "series": [5]}})
    (error,) = validate(root).errors
    assert (error.path, error.field) == (f"{root.store_path}/OME", "ome.series")
    plate = create_plate(tmp_path / "plate.zarr", rows=2, columns=2, acquisitions=["one"])
    plate.create_field("A", "1", np.ones((4, 4), "u1"), units="um", acquisition=0)
    assert validate(tmp_path / "plate.zarr", data=True).faults == ()
    edit(plate.group, lambda ome: ome["plate"]["wells"].append({"path": "B/2", "rowIndex": 0, "columnIndex": 1}))
    edit(plate.group["A/1"], lambda ome: ome["well"]["images"].append({"path": "7", "acquisition": 3}))
    assert [(fault.severity, fault.field, fault.what) for fault in validate(tmp_path / "plate.zarr").faults] == [
        ("error", "ome.plate.wells[1].path", "'B/2' is not at the rowIndex and columnIndex (0, 1)"),
        ("error", "ome.well.images[1].acquisition", "3 is none of the acquisitions of the plate, [0]"),
        ("error", "ome.well.images", "no group is at '7'"),
        ("error", "ome.plate.wells", "no group is at 'B/2'"),
    ]


def test_fields_lie_below_their_well() -> None:
    well = gzarr.group(attributes={"ome": {"version": "0.5", "well": {"images": [{"path": "../../B/1/0"}]}}})
    assert validate(well).errors[0].field == "ome.well.images[0].path"


@pytest.mark.parametrize("run", [{}, {"id": []}])
def test_an_acquisition_without_a_number_is_told(run: dict[str, Any]) -> None:
    plate = {"rows": [{"name": "A"}], "columns": [{"name": "1"}], "wells": [], "acquisitions": [run]}
    found = validate(gzarr.group(attributes={"ome": {"version": "0.5", "plate": plate}}))
    assert [fault.field for fault in found.errors] == ["ome.plate.acquisitions[0].id"]


def test_what_is_no_image_is_one_error() -> None:
    found = validate(gzarr.group(attributes={"ome": 3}))
    assert [fault.field for fault in found.faults] == ["ome.multiscales"]
    assert [fault.severity for fault in validate(gzarr.group(attributes={"multiscales": [{}]})).faults] == ["fatal"] * 2


def test_a_malformed_array_hides_no_other(tmp_path: Path) -> None:
    group = make(tmp_path / "cell.zarr", labels=False)
    (tmp_path / "cell.zarr/1/zarr.json").write_text("{")
    edit(group, channels(lambda c: c.pop()))
    found = validate(group)
    assert [fault.path.rpartition("/")[2] for fault in found.errors] == ["1", "cell.zarr"]


def _places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, item in items for found in _places(item, (*place, key)))]


WRONG = [None, -1.5, "", "../..", "a\0b", [], {}, True, math.nan, 10**400, [None], {"a": 1}, "\ud800", "gone"]


def test_whatever_metadata_say_the_error_is_of_gzarr_and_validation_tells_it(version: str) -> None:
    group = make(gzarr.MemoryStore(), version)
    rng = np.random.default_rng(7)
    sound = json.dumps(group.attrs.asdict())
    for *outer, last in _places(json.loads(sound))[1:]:
        for choice in rng.choice(len(WRONG), 2, replace=False):
            wrong = inner = json.loads(sound)
            for key in outer:
                inner = inner[key]
            if WRONG[choice] == "gone":
                del inner[last]
            else:
                inner[last] = WRONG[choice]
            change_attributes(group.store, "", group.metadata.zarr_format, partial(_instead, wrong))
            found = validate(group.store)
            try:
                open_image(group.store)
            except gzarr.errors.GzarrError:
                assert not found.ok, (outer, last, WRONG[choice])


def _instead(wrong: dict[str, Any], _: dict[str, Any]) -> dict[str, Any]:
    return wrong


def test_unfinished_labels_are_to_be_finished_not_listed(tmp_path: Path) -> None:
    image = create_image(tmp_path / "a.zarr", np.zeros((8, 8), "u1"))
    image.write_label("other", np.zeros((8, 8), "u1"))
    image.group.create_group("labels/cells")
    begin(image.group.store, "labels/cells", name="write_label", run=Run(), plan={}, resume=False)
    (fault,) = [fault for fault in validate(image).faults if "cells" in str(fault)]
    assert "unfinished" in str(fault)
    assert "resume=True" in fault.remedy
