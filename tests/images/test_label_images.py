"""Images of labels beside their image: how they are listed, and how new ones are written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.errors import ContainsGroupError, MetadataError, ReadOnlyError
from gzarr.images import Image, build_pyramid, create_image, open_image
from gzarr.images.label_images import label_names

MASK = (np.add.outer(np.arange(32), np.arange(40)) // 16).astype("u2")


def picture(path: Path | None = None, version: Any = "0.5", levels: int = 2) -> Image:
    """An image of two channels with smaller levels."""
    data = np.broadcast_to(MASK * 100, (2, 32, 40))
    image = create_image(
        path, shape=data.shape, dtype="u2", axes="cyx", scale=0.5, units="um", version=version, chunks=(1, 8, 8)
    )
    image[0][...] = data
    return build_pyramid(image, levels=levels) if levels else image


def test_labels_are_a_mapping_of_images() -> None:
    image = create_image(shape=(4, 4), dtype="u1")
    assert (dict(image.labels), label_names(image.group)) == ({}, [])
    labels = image.group.create_group("labels", attributes={"ome": {"version": "0.5", "labels": ["cells", "deep/er"]}})
    for name in ("cells", "deep/er"):
        create_image(labels, np.ones((4, 4), "u4"), path=name)
    assert list(image.labels) == ["cells", "deep/er"]
    assert isinstance(image.labels["deep/er"], Image)
    assert image.labels["cells"].dtype == np.dtype("u4")
    with pytest.raises(KeyError, match="'nuclei' is none of the labels of"):
        image.labels["nuclei"]


def test_labels_have_the_levels_of_their_image(tmp_path: Path, version: str) -> None:
    image = picture(tmp_path / "a.zarr", version)
    labels = image.write_label("cells", MASK, colors={1: (255, 0, 0)}, properties={2: {"class": "x"}}, chunks=(8, 8))
    assert (labels.is_labels, labels.axes, labels.dtype, labels.name) == (True, ("y", "x"), np.dtype("u2"), "cells")
    assert [level.shape for level in labels] == [level.shape[1:] for level in image]
    for number in range(3):
        assert labels.scale(number) == {name: image.scale(number)[name] for name in "yx"}
        assert labels.translation(number) == {name: image.translation(number)[name] for name in "yx"}
    np.testing.assert_array_equal(labels[0][...], MASK)
    assert set(np.unique(labels[2][...])) <= set(np.unique(MASK))
    found = open_image(tmp_path / "a.zarr").labels["cells"].metadata.image_label
    assert found is not None
    assert (found.source, list(found.colors), found.properties) == ("../../", [1, 2], {1: {}, 2: {"class": "x"}})
    assert image.validate(data=True).faults == ()


def test_labels_of_a_function() -> None:
    image = picture()
    labels = image.write_label("bright", lambda block: block > 100)
    assert (labels.axes, labels.dtype, len(labels)) == (image.axes, np.dtype("u1"), 3)
    np.testing.assert_array_equal(labels[0][...], image[0][...] > 100)
    labels = image.write_label("signed", lambda block: block.astype("i8") // 100, dtype="u1")
    assert labels.dtype == np.dtype("u1")
    assert list(image.labels) == ["bright", "signed"]


@pytest.mark.parametrize("shape", [(2, 32, 40), (1, 32, 40), (2, 1, 40), (32, 40)])
def test_labels_may_be_the_same_along_an_axis(shape: tuple[int, ...]) -> None:
    labels = picture(levels=1).write_label("cells", np.ones(shape, "u1"))
    assert labels.shape == shape
    assert len(labels) == 2


def test_labels_deeper_down_name_their_image() -> None:
    image = picture(levels=0)
    labels = image.write_label("by/hand", MASK)
    assert list(image.labels) == ["by/hand"]
    assert labels.metadata.image_label is not None
    assert labels.metadata.image_label.source == "../../../"
    assert image.validate().faults == ()


def test_labels_are_replaced_only_if_told() -> None:
    image = picture(levels=0)
    image.write_label("cells", MASK)
    image.write_label("others", MASK)
    with pytest.raises(ContainsGroupError, match=r"already stored at .*cells.; pass overwrite=True to"):
        image.write_label("cells", MASK)
    image.write_label("cells", MASK[:1], overwrite=True)
    assert list(image.labels) == ["others", "cells"]
    assert image.labels["cells"].shape == (1, 40)


def test_labels_that_were_not_finished_are_gone_on_with() -> None:
    image = picture(levels=1)
    calls: list[int] = []

    def broken(block: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise RuntimeError("power cut")
        return block > 100

    with pytest.raises(RuntimeError, match="power cut"):
        image.write_label("cells", broken, chunks=(1, 8, 8), max_nbytes=20_000, resume="over 100")
    assert list(image.labels) == []
    with pytest.raises(ContainsGroupError, match="an unfinished write_label: call it again with resume=True"):
        image.write_label("cells", lambda block: block > 100)
    labels = image.write_label("cells", broken, chunks=(1, 8, 8), max_nbytes=20_000, resume="over 100")
    np.testing.assert_array_equal(labels[0][...], image[0][...] > 100)


def failing(block: Any) -> Any:
    return block[:, :4]


@pytest.mark.parametrize(
    ("data", "keywords", "error", "message"),
    [
        (MASK.astype("f4"), {}, MetadataError, "must be integers, got float32"),
        (lambda block: block / 2, {}, MetadataError, "must be integers, got float64"),
        (MASK[:-1], {}, ValueError, "labels of shape .31, 40. do not lie over"),
        (MASK, {"method": "mean"}, ValueError, "would make labels of no object"),
        (MASK, {"colors": {1: "red"}}, MetadataError, "a colour is"),
        (MASK, {"chunk": 3}, TypeError, "did you mean 'chunks'"),
        (failing, {}, ValueError, "must return labels of shape .*for the block 0:1, 0:8, 0:8 of"),
        (MASK + 300, {"dtype": "u1"}, ValueError, "must be integers that fit uint8, got uint16"),
        (MASK, {"levels": 9}, ValueError, "ask for fewer levels"),
        (lambda block: block.astype("i4") + 300, {"dtype": "u1"}, ValueError, "that fit uint8, got int32"),
    ],
)
def test_what_are_no_labels(data: Any, keywords: Any, error: type[Exception], message: str) -> None:
    image = picture(levels=1)
    with pytest.raises(error, match=message):
        image.write_label("cells", data, **keywords)
    assert list(image.labels) == []


def test_an_image_that_is_read_only_gets_no_labels(tmp_path: Path) -> None:
    picture(tmp_path / "a.zarr", levels=0)
    image = open_image(tmp_path / "a.zarr", "r")
    with pytest.raises(ReadOnlyError):
        image.write_label("cells", MASK)
    assert "labels" not in gzarr.open_group(tmp_path / "a.zarr")
