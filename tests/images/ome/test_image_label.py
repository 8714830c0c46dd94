"""What images of labels say of their values."""

from typing import Any

import pytest

from gzarr.errors import MetadataError
from gzarr.images.ome.faults import Fault, Notes
from gzarr.images.ome.image_label import ImageLabel, color_of, new_image_label, parse_image_label


def test_a_rewrite_changes_nothing() -> None:
    document = {
        "colors": [{"label-value": 1, "rgba": [1, 2, 3, 4]}, {"label-value": 2}],
        "properties": [{"label-value": 1, "class": "nucleus"}],
        "source": {"image": "../../", "by": "me"},
        "version": "0.4",
    }
    found = parse_image_label(document, Notes("g"), "image-label")
    assert found is not None
    assert found.colors == {1: (1, 2, 3, 4), 2: None}
    assert found.properties == {1: {"class": "nucleus"}}
    assert found.to_json() == document


def test_new_labels_with_properties_have_colours() -> None:
    made = new_image_label({2: (1, 2, 3)}, {1: {"class": "a"}}, "0.5")
    assert made.colors == {1: color_of(1), 2: (1, 2, 3, 255)}
    assert made.properties == {1: {"class": "a"}, 2: {}}
    assert new_image_label(None, None, "0.4").to_json() == {
        "version": "0.4",
        "colors": [{"label-value": 0, "rgba": [0, 0, 0, 0]}],
        "source": {"image": "../../"},
    }


@pytest.mark.parametrize(
    ("colors", "message"),
    [({1.5: (1, 2, 3)}, "labels are integers"), ({1: (1, 2)}, "a colour is"), ({1: (1, 2, 300)}, "a colour is")],
)
def test_what_is_malformed_in_a_call(colors: Any, message: str) -> None:
    with pytest.raises(MetadataError, match=message):
        new_image_label(colors, None, "0.5")
    with pytest.raises(MetadataError, match="properties: a mapping"):
        new_image_label(None, {1: 5}, "0.5")  # type: ignore[dict-item]


def test_malformed_documents_are_noted() -> None:
    faults: list[Fault] = []
    document = {
        "colors": [{"label-value": 1, "rgba": [1, 2, 3, 400]}, {"label-value": 1}, {"rgba": [0, 0, 0, 0]}, 5],
        "properties": {"1": "nucleus"},
        "source": {"image": 3},
    }
    found = parse_image_label(document, Notes("g", faults.append), "l")
    assert isinstance(found, ImageLabel)
    assert [fault.field for fault in faults] == [
        "l.colors[2].label-value",
        "l.colors[3].label-value",
        "l.colors[0].rgba",
        "l.colors[1].label-value",
        "l.properties",
        "l.source.image",
    ]
    assert parse_image_label(None, Notes("g"), "l") is None
