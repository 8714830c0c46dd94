"""What an image of labels says of its values: colours, properties, the image they were made of.

Source: OME-Zarr 0.4 and 0.5, "image-label" metadata.
"""

import colorsys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gzarr.errors import MetadataError
from gzarr.images.ome.faults import Notes, short

Color: TypeAlias = tuple[int, int, int, int]

#: Where an image of labels finds its image: it lies in "labels" of that.
SOURCE = "../../"
#: The fraction of the circle of hues between one label and the next: labels that follow each other differ most.
_GOLDEN = 0.618033988749895


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageLabel:
    """What is said of labels.

    Attributes
    ----------
    colors : mapping of int to tuple
        Red, green, blue and opacity of labels, from 0 to 255; None where a document names a label without a colour.
    properties : mapping of int to mapping
        Anything else that is known of labels.
    source : str or None
        Path of the image that the labels were made of, from the group of the labels.
    extra : mapping
        Other fields of the metadata.
    """

    colors: Mapping[int, Color | None] = field(default_factory=dict)
    properties: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    source: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As OME-Zarr 0.4 and 0.5 have it."""
        document: dict[str, Any] = dict(self.extra)
        if self.colors:
            document["colors"] = [
                {"label-value": value} | ({} if rgba is None else {"rgba": list(rgba)})
                for value, rgba in self.colors.items()
            ]
        if self.properties:
            document["properties"] = [{"label-value": n, **known} for n, known in self.properties.items()]
        if self.source is not None:
            source = document.get("source")
            document["source"] = {**(source if isinstance(source, Mapping) else {}), "image": self.source}
        return document


def color_of(label: int) -> Color:
    """A colour for a label, always the same; none for the background."""
    if label == 0:
        return (0, 0, 0, 0)
    red, green, blue = colorsys.hsv_to_rgb(label * _GOLDEN % 1, 0.75, 1.0)
    return (round(red * 255), round(green * 255), round(blue * 255), 255)


def new_image_label(
    colors: Mapping[int, Any] | None, properties: Mapping[int, Mapping[str, Any]] | None, version: str
) -> ImageLabel:
    """What a call says of new labels; the same labels have colours and properties, as some readers insist.

    Raises MetadataError for what is no colour, or no label.
    """
    chosen = {_label(value): _rgba(rgba) for value, rgba in (colors or {}).items()}
    known = {_label(value): _known(found) for value, found in (properties or {}).items()}
    if not chosen and not known:
        chosen = {0: color_of(0)}
    elif known:
        values = sorted({*chosen, *known})
        chosen = {value: chosen.get(value) or color_of(value) for value in values}
        known = {value: known.get(value, {}) for value in values}
    extra = {"version": version} if version == "0.4" else {}
    return ImageLabel(colors=chosen, properties=known, source=SOURCE, extra=extra)


def _known(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise MetadataError(f"properties: a mapping of names to values is needed for each label, got {value!r}")
    return dict(value)


def _label(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise MetadataError(f"labels are integers, got {value!r}")
    return int(value)


def _rgba(value: Any) -> Color:
    numbers = tuple(value)
    if len(numbers) == 3:
        numbers += (255,)
    if len(numbers) != 4 or not all(hasattr(n, "__index__") and 0 <= n <= 255 for n in numbers):
        raise MetadataError(f"colors: a colour is red, green, blue and opacity from 0 to 255, got {value!r}")
    red, green, blue, opacity = map(int, numbers)
    return red, green, blue, opacity


def parse_image_label(value: Any, notes: Notes, place: str) -> ImageLabel | None:
    """What a document says of labels; None if it says nothing. Nothing in it keeps an image from being opened."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        notes.error(place, f"must be an object, got {short(value)}", "correct it")
        return ImageLabel()
    colors: dict[int, Color | None] = {}
    for number, item in enumerate(_items(value, "colors", notes, place)):
        rgba = item.get("rgba")
        numbers = isinstance(rgba, list) and len(rgba) == 4 and all(type(n) is int and 0 <= n <= 255 for n in rgba)
        if rgba is not None and not numbers:
            what = f"must be four integers from 0 to 255, got {short(rgba)}"
            notes.error(f"{place}.colors[{number}].rgba", what, "correct it")
        if item["label-value"] in colors:
            what = f"label {item['label-value']} is there twice"
            notes.error(f"{place}.colors[{number}].label-value", what, "keep the last one, which readers take")
        colors[item["label-value"]] = tuple(rgba) if isinstance(rgba, list) and numbers else None
    found = {item["label-value"]: item for item in _items(value, "properties", notes, place)}
    properties = {n: {k: v for k, v in item.items() if k != "label-value"} for n, item in found.items()}
    source = value.get("source")
    image = source.get("image") if isinstance(source, Mapping) else None
    if source is not None and not isinstance(image, str | None):
        notes.error(f"{place}.source.image", f"must be a text, got {short(image)}", "give the path of the image")
        image = None
    extra = {name: other for name, other in value.items() if name not in ("colors", "properties")}
    return ImageLabel(colors=colors, properties=properties, source=image, extra=extra)


def _items(value: Mapping[str, Any], name: str, notes: Notes, place: str) -> list[Mapping[str, Any]]:
    """The items of a list that have an integer for their label; the others are noted."""
    items = value.get(name)
    if items is None:
        return []
    if not isinstance(items, list):
        notes.error(f"{place}.{name}", f"must be a list, got {short(items)}", "correct it")
        return []
    good: list[Mapping[str, Any]] = []
    for number, item in enumerate(items):
        label = item.get("label-value") if isinstance(item, Mapping) else None
        if type(label) is int or (isinstance(label, float) and label.is_integer()):
            good.append({**item, "label-value": int(label)})
        else:
            what = f"must be an integer, got {short(label)}"
            notes.error(f"{place}.{name}[{number}].label-value", what, "correct it")
    return good
