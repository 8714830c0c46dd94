"""How the channels of an image are shown: names, colours, ranges of intensities.

Source: OME-Zarr 0.4 and 0.5, "omero" metadata.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from gzarr.errors import MetadataError
from gzarr.images.ome.faults import Notes, short

#: Colours of new channels in turn, unless their labels name one; a single one is white.
_COLORS = ("00FF00", "FF00FF", "00FFFF", "FFFF00", "FF0000", "0000FF", "FFFFFF")
_NAMES = {
    "red": "FF0000",
    "green": "00FF00",
    "blue": "0000FF",
    "white": "FFFFFF",
    "gray": "FFFFFF",
    "cyan": "00FFFF",
    "magenta": "FF00FF",
    "yellow": "FFFF00",
    "orange": "FF8000",
}


class IntensityWindow(NamedTuple):
    """A range of intensities.

    Attributes
    ----------
    start, end : float
        What is shown, from black to full colour.
    min, max : float
        What there can be.
    """

    start: float
    end: float
    min: float
    max: float


@dataclass(frozen=True, slots=True)
class Channel:
    """How a channel is shown.

    Attributes
    ----------
    label : str or None
        Its name.
    color : str or None
        Six hexadecimal digits of red, green and blue.
    window : Window or None
        The range of intensities.
    active : bool or None
        Whether viewers show it at first.
    extra : mapping
        Other fields of the metadata.
    """

    label: str | None = None
    color: str | None = None
    window: IntensityWindow | None = None
    active: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As OME-Zarr 0.4 and 0.5 have it."""
        window = None if self.window is None else self.window._asdict()
        known = {"label": self.label, "color": self.color, "window": window, "active": self.active}
        return {name: value for name, value in known.items() if value is not None} | dict(self.extra)


# -- of documents ------------------------------------------------------------------------------------------------------


def parse_channels(value: Any, notes: Notes, place: str) -> tuple[tuple[Channel, ...], Mapping[str, Any]]:
    """The channels of a document, and the other fields of its "omero". Nothing in it keeps an image from being opened.

    Where the channels are malformed, they stay among the other fields.
    """
    if value is None:
        return (), {}
    if not isinstance(value, Mapping):
        notes.error(place, f"must be an object, got {short(value)}", "correct it, or leave it out")
        return (), {}
    items = value.get("channels")
    if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
        notes.error(f"{place}.channels", f"must be a list of objects, got {short(items)}", "list the channels")
        return (), value
    channels = tuple(_parse_channel(item, notes, f"{place}.channels[{n}]") for n, item in enumerate(items))
    return channels, {name: other for name, other in value.items() if name != "channels"}


def _parse_channel(item: Mapping[str, Any], notes: Notes, place: str) -> Channel:
    """A channel of a document; malformed fields stay among the others, as they are."""
    kept = dict(item)
    found: dict[str, Any] = {}
    for name, kind in (("label", str), ("color", str), ("active", bool)):
        if isinstance(item.get(name), kind):
            found[name] = kept.pop(name)
        elif name in item:
            notes.error(f"{place}.{name}", f"must be of type {kind.__name__}, got {short(item[name])}", "correct it")
    if "color" in found and not _is_hex(found["color"]):
        kept["color"] = found.pop("color")
        notes.error(
            f"{place}.color", f"must be six hexadecimal digits, got {short(kept['color'])}", "write for instance 00FF00"
        )
    if "window" in item:
        window = _parse_window(item["window"], notes, f"{place}.window")
        if window is not None:
            found["window"] = window
            del kept["window"]
    return Channel(**found, extra=kept)


def _is_hex(color: str) -> bool:
    return len(color) == 6 and all(digit in "0123456789abcdefABCDEF" for digit in color)


def _parse_window(value: Any, notes: Notes, place: str) -> IntensityWindow | None:
    names = IntensityWindow._fields
    if not isinstance(value, Mapping) or any(type(value.get(name)) not in (int, float) for name in names):
        notes.error(place, f"must have the numbers {', '.join(names)}, got {short(value)}", "correct it")
        return None
    window = IntensityWindow(*(value[name] for name in names))
    if not window.min <= window.max or not window.start <= window.end:
        notes.error(place, f"has its ends in the wrong order: {short(value)}", "exchange them")
    return None if set(value) - set(names) else window


# -- of calls ----------------------------------------------------------------------------------------------------------


def new_channels(channels: Any, count: int, dtype: np.dtype[Any]) -> tuple[Channel, ...]:
    """The channels that a call means: names, mappings or `Channel` objects, completed with colours and windows.

    Parameters
    ----------
    channels : sequence or None
        One item for each channel; None for none.
    count : int
        How many channels the image has.
    dtype : numpy.dtype
        Of the data: integers are shown over their whole range, others from 0 to 1.

    Raises
    ------
    MetadataError
        If they do not fit the image.
    """
    if channels is None:
        return ()
    if isinstance(channels, str) or not isinstance(channels, Sequence) or len(channels) != count:
        raise MetadataError(f"channels: a list of {count} is needed, one for each channel, got {channels!r}")
    full = full_window(dtype)
    made = []
    for number, item in enumerate(channels):
        channel = _new_channel(item, full)
        in_turn = "FFFFFF" if count == 1 else _COLORS[number % len(_COLORS)]
        color = channel.color or _NAMES.get((channel.label or "").lower(), in_turn)
        window = full if channel.window is None else channel.window
        active = True if channel.active is None else channel.active
        made.append(replace(channel, color=_color(color), window=window, active=active))
    return tuple(made)


def full_window(dtype: np.dtype[Any]) -> IntensityWindow:
    """The range of a data type; from 0 to 1 if it has none."""
    if dtype.kind not in "iu":
        return IntensityWindow(0.0, 1.0, 0.0, 1.0)
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return IntensityWindow(low, high, low, high)


def lacks_window(item: Any) -> bool:
    """Whether an item of a call's channels leaves the range of intensities open."""
    return (item.get("window") if isinstance(item, Mapping) else getattr(item, "window", None)) is None


def shown_range(values: np.ndarray[Any, Any], window: IntensityWindow) -> IntensityWindow:
    """A window that shows all of some values; the one given if they are all equal."""
    finite = values if values.dtype.kind in "iub" else values[np.isfinite(values)]
    low, high = (finite.min().item(), finite.max().item()) if finite.size else (0, 0)
    if not low < high:
        return window
    if values.dtype.kind in "iu":
        return window._replace(start=low, end=high)
    return IntensityWindow(low, high, low, high)


def _new_channel(item: Any, full: IntensityWindow) -> Channel:
    if isinstance(item, Channel):
        return item
    if isinstance(item, str):
        return Channel(item)
    if not isinstance(item, Mapping):
        raise MetadataError(f"channels: expected names or mappings with label, color and window, got {item!r}")
    known = {name: item[name] for name in ("label", "color", "active") if item.get(name) is not None}
    for name, kind in (("label", str), ("color", str), ("active", bool)):
        if not isinstance(known.get(name, kind()), kind):
            raise MetadataError(f"channels: {name} must be of type {kind.__name__}, got {known[name]!r}")
    extra = {name: value for name, value in item.items() if name not in ("label", "color", "active", "window")}
    return Channel(**known, window=_new_window(item.get("window"), full), extra=extra)


def _new_window(value: Any, full: IntensityWindow) -> IntensityWindow | None:
    if value is None or isinstance(value, IntensityWindow):
        return value
    if isinstance(value, Mapping):
        found = {name: np.asarray(number).item() for name, number in {**full._asdict(), **value}.items()}
        known = set(found) == set(IntensityWindow._fields) and all(type(n) in (int, float) for n in found.values())
        if not known or not -math.inf < found["start"] <= found["end"] < math.inf:
            raise MetadataError(f"channels: a window has start and end in order, min and max, got {value!r}")
        return IntensityWindow(**found)
    try:
        start, end = map(float, value)
    except (TypeError, ValueError) as error:
        raise MetadataError(f"channels: a window is (start, end), got {value!r}") from error
    if not (math.isfinite(start) and math.isfinite(end) and start <= end):
        raise MetadataError(f"channels: a window is two numbers in order, got {value!r}")
    return IntensityWindow(start, end, min(full.min, start), max(full.max, end))


def _color(color: str) -> str:
    digits = _NAMES.get(color.lower(), color.removeprefix("#")).upper()
    if not _is_hex(digits):
        names = ", ".join(_NAMES)
        raise MetadataError(f"channels: a colour is six hexadecimal digits or one of {names}, got {color!r}")
    return digits
