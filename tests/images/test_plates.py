"""Plates hold wells in rows and columns, and wells images; what is written is what the specification says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import MetadataError
from gzarr.images import create_plate, open_image, open_plate
from gzarr.images.ome.plate_documents import Acquisition, Field, new_names


def test_a_plate_is_found_again(tmp_path: Path, version: Any) -> None:
    plate = create_plate(tmp_path / "p.ome.zarr", rows=2, columns=[1, 2, "x7"], name="screen", version=version)
    picture = np.arange(12, dtype="u2").reshape(3, 4)
    plate.create_field("B", "x7", picture, scale=0.5, units="micrometer")
    plate.create_field("B", "x7", picture + 1, field="late")
    plate.create_field("A", 2, picture + 2)
    found = open_plate(tmp_path / "p.ome.zarr", "r")
    assert (found.name, found.rows, found.columns, found.version) == ("screen", ("A", "B"), ("1", "2", "x7"), version)
    assert list(found) == ["A/2", "B/x7"]
    well = found["B/x7"]
    assert (len(well), well.row, well.column) == (2, "B", "x7")
    assert [field.path for field in well.fields] == ["0", "late"]
    np.testing.assert_array_equal(well[0][0][...], picture)
    np.testing.assert_array_equal(well["late"][0][...], picture + 1)
    assert [image.shape for image in well[:]] == [(3, 4)] * 2
    assert well[0].scale() == {"y": 0.5, "x": 0.5}
    assert repr(found).endswith("p.ome.zarr 2 x 3, 2 wells with fields>")
    assert repr(well) == "<Well B/x7 of 2 fields>"


def test_the_documents_are_those_of_the_specification(tmp_path: Path) -> None:
    for version in ("0.4", "0.5"):
        plate = create_plate(tmp_path / version, 1, 2, acquisitions=["day", {"id": 7, "starttime": 5}], version=version)
        for number in (0, 7, 7):
            plate.create_field("A", 2, shape=(4, 4), dtype="u1", acquisition=number)
        document = {
            "name": version.removesuffix(".zarr"),
            "rows": [{"name": "A"}],
            "columns": [{"name": "1"}, {"name": "2"}],
            "wells": [{"path": "A/2", "rowIndex": 0, "columnIndex": 1}],
            "acquisitions": [
                {"id": 0, "name": "day", "maximumfieldcount": 1},
                {"id": 7, "name": "7", "maximumfieldcount": 2, "starttime": 5},
            ],
            "field_count": 3,
        }
        images = [{"path": str(n), "acquisition": run} for n, run in enumerate((0, 7, 7))]
        group, well = gzarr.open_group(tmp_path / version, "r"), gzarr.open_group(tmp_path / version, "r", path="A/2")
        if version == "0.5":
            assert group.attrs.asdict() == {"ome": {"version": "0.5", "plate": document}}
            assert well.attrs.asdict() == {"ome": {"version": "0.5", "well": {"images": images}}}
        else:
            assert group.attrs.asdict() == {"plate": {"version": "0.4", **document}}
            assert well.attrs.asdict() == {"well": {"images": images, "version": "0.4"}}
        assert plate.acquisitions[1] == Acquisition(id=7, name="7", maximumfieldcount=2, starttime=5)
        assert plate["A/2"].fields[0] == Field("0", 0)


def test_what_others_wrote_in_the_documents_stays() -> None:
    plate = create_plate(rows=1, columns=1)
    plate.create_field("A", 1, shape=(4, 4), dtype="u1")
    ome = plate.group.attrs["ome"]
    ome["plate"]["vendor"] = {"a": 1}
    plate.group.attrs.put({"other": 2, "ome": ome})
    well = plate.group["A/1"]
    images = [{"path": "0", "focus": 3.5}]
    well.attrs["ome"] = {"version": "0.5", "well": {"images": images, "b": 1}}
    plate.create_field("A", 1, shape=(4, 4), dtype="u1")
    attributes = open_plate(plate.group).group.attrs.asdict()
    assert attributes["other"] == 2
    assert attributes["ome"]["plate"]["vendor"] == {"a": 1}
    assert plate["A/1"].group.attrs["ome"]["well"] == {"images": [*images, {"path": "1"}], "b": 1}


def test_the_only_acquisition_need_not_be_named() -> None:
    plate = create_plate(rows=1, columns=1, acquisitions=["day"])
    plate.create_field("A", 1, shape=(4, 4), dtype="u1")
    assert plate["A/1"].fields == (Field("0", 0),)


def test_rows_are_called_as_in_a_spreadsheet() -> None:
    names = new_names(705, "rows", letters=True)
    assert (names[0], names[25], names[26], names[701], names[702], names[704]) == ("A", "Z", "AA", "ZZ", "AAA", "AAC")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rows": 0}, "rows: names that differ"),
        ({"rows": ["a", "A"]}, "rows: names that differ, in more than case"),
        ({"columns": ["1/2"]}, "columns: names are letters and digits, got '1/2'"),
        ({"version": "0.3"}, "version: '0.3' is not written"),
        ({"acquisitions": [{"id": 1}, {"id": 1}]}, "each needs an id of its own"),
        ({"acquisitions": [5]}, "expected names or mappings"),
        ({"acquisitions": [{"id": "x"}]}, r"acquisitions\[0\].id: must be a number"),
    ],
)
def test_malformed_plates_are_not_made(options: dict[str, Any], message: str) -> None:
    store = gzarr.MemoryStore()
    with pytest.raises(MetadataError, match=message):
        create_plate(store, **options)
    assert not list(store)


def test_malformed_fields_are_not_made() -> None:
    plate = create_plate(rows=2, columns=2, acquisitions=["a", "b"])
    options = {"shape": (4, 4), "dtype": "u1"}
    for args, more, message in (
        (("C", 1), {}, "has no row 'C': it has A, B"),
        (("A", 3), {}, "has no column '3': it has 1, 2"),
        (("A", 1), {}, r"acquisition must be one of \[0, 1\], got None"),
        (("A", 1), {"acquisition": 2}, r"acquisition must be one of \[0, 1\], got 2"),
        (("A", 1), {"acquisition": 0, "field": "a b"}, "field: names are letters and digits, got 'a b'"),
    ):
        with pytest.raises(MetadataError, match=message):
            plate.create_field(*args, **options, **more)
    assert len(plate) == 0
    plate.create_field("A", 1, acquisition=0, **options)
    with pytest.raises(gzarr.ContainsGroupError, match="A/1/0"):
        plate.create_field("A", 1, acquisition=0, field="0", **options)
    with pytest.raises(KeyError, match="no well"):
        plate["A/2"]
    with pytest.raises(KeyError, match="'9' is no field"):
        plate["A/1"]["9"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (5, r"ome.plate: must be an object, got 5"),
        ({"rows": [], "columns": []}, r"ome.plate.wells: must be a list of objects, got None"),
        ({"rows": "AB", "columns": []}, r"ome.plate.rows: must be a list of objects, got 'AB'"),
        (
            {"rows": [{"name": "A"}], "columns": [{"name": "1"}], "wells": [{"path": "A/2"}]},
            r"ome.plate.wells\[0\].path: 'A/2' is no row and column of the plate",
        ),
    ],
)
def test_malformed_documents_are_refused(document: Any, message: str) -> None:
    group = gzarr.group()
    group.attrs["ome"] = {"version": "0.5", "plate": document}
    with pytest.raises(MetadataError, match=message):
        open_plate(group)


def test_other_groups_are_no_plates() -> None:
    with pytest.raises(MetadataError, match="is no plate"):
        open_plate(gzarr.group())
    image = gzarr.images.create_image(shape=(4, 4), dtype="u1")
    with pytest.raises(MetadataError, match="is an image: use open_image"):
        open_plate(image.group)
    plate = create_plate(rows=1, columns=1)
    plate.create_field("A", 1, shape=(4, 4), dtype="u1")
    with pytest.raises(MetadataError, match=r"is a plate, not an image: use gzarr.images.open_plate"):
        open_image(plate.group)
    with pytest.raises(ValueError, match="mode must be 'r' or 'r\\+'"):
        open_plate(plate.group, "w")
