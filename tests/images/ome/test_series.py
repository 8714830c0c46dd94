"""Groups that hold images but are none: the error names the images."""

import pytest

import gzarr
from gzarr.errors import MetadataError, NodeNotFoundError
from gzarr.images import create_image, create_plate, open_image


def collection(count: int, series: list[str] | None = None) -> gzarr.Group:
    root = gzarr.group(attributes={"ome": {"version": "0.5", "bioformats2raw.layout": 3}})
    for number in range(count):
        create_image(root, shape=(4 + number, 4), dtype="u1", path=str(number) if series is None else series[number])
    if series is not None:
        root.create_group("OME", attributes={"ome": {"version": "0.5", "series": series}})
    return root


def test_images_of_a_collection_are_named_and_chosen() -> None:
    root = collection(3)
    with pytest.raises(MetadataError, match=r"a collection of 3 images: pass series= .*memory.*/0', .*/1', .*/2'"):
        open_image(root)
    assert [open_image(root, series=which).shape[0] for which in (0, 2, -1, "1")] == [4, 6, 6, 5]
    with pytest.raises(MetadataError, match="has no series 3"):
        open_image(root, series=3)
    with pytest.raises(NodeNotFoundError, match="no image at"):
        open_image(root, series="7")


def test_the_series_are_those_of_the_group_ome() -> None:
    root = collection(2, ["b", "a"])
    assert (open_image(root, series=0).group.path, open_image(root, series="a").group.path) == ("b", "a")


def test_the_only_image_of_a_collection_is_opened() -> None:
    assert open_image(collection(1)).group.path == "0"


def test_plates_wells_and_labels_are_no_images() -> None:
    for ome, message in (
        (
            {"plate": {}},
            "is a plate, not an image: use gzarr.images.open_plate, or pass series= with the path of a field",
        ),
        ({"well": {"images": [{"path": "0"}]}}, "is a well of a plate.*one of its fields: .*0'"),
        ({"labels": ["cells"]}, "holds images of labels; open one of: .*cells'"),
    ):
        with pytest.raises(MetadataError, match=message):
            open_image(gzarr.group(attributes={"ome": {"version": "0.5", **ome}}))
    with pytest.raises(MetadataError, match="is no collection of images: leave series=1 out"):
        open_image(gzarr.group(), series=1)


def test_a_field_of_a_plate_is_chosen_by_its_path() -> None:
    plate = create_plate(rows=2, columns=2)
    plate.create_field("B", 1, shape=(4, 5), dtype="u1")
    assert open_image(plate.group, series="B/1/0").shape == (4, 5)
    with pytest.raises(NodeNotFoundError, match=r"no image at .*A/1/0"):
        open_image(plate.group, series="A/1/0")
