"""Layouts of arrays to exchange with other implementations. Imports no gzarr."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Layout:
    """How an array is cut.

    Attributes:
        name: to show.
        shape: extents.
        options: keywords of ``create_array``; "filters" and "serializer" hold codecs of the layout itself.
        outer: shape of the chunks of the grid, which are shards in sharded layouts.
    """

    name: str
    shape: tuple[int, ...]
    options: Mapping[str, Any]


def v3(name: str, **configuration: Any) -> dict[str, Any]:
    """A codec as Zarr v3 JSON."""
    return {"name": name, "configuration": configuration}


_INDEX = ({"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"})
_BIG_INDEX = ({"name": "bytes", "configuration": {"endian": "big"}},)


def transpose(*order: int) -> dict[str, Any]:
    """The transpose codec as JSON."""
    return {"name": "transpose", "configuration": {"order": list(order)}}


def sharding(chunk_shape: tuple[int, ...], codecs: Any = None, index: Any = _INDEX, location: str = "end") -> Any:
    """The sharding codec as JSON; ``codecs`` by default the bytes of the elements, in gzip."""

    def make(dtype: np.dtype[Any]) -> dict[str, Any]:
        endian = {"endian": "little"} if dtype.kind == "V" or dtype.itemsize > 1 else {}
        inner = [{"name": "bytes", "configuration": endian}, {"name": "gzip", "configuration": {"level": 1}}]
        if callable(codecs):
            inner = [codecs(dtype)]
        elif codecs is not None:
            inner = [*codecs, *inner]
        return {
            "name": "sharding_indexed",
            "configuration": {
                "chunk_shape": list(chunk_shape),
                "codecs": inner,
                "index_codecs": list(index),
                "index_location": location,
            },
        }

    return make


EDGE = Layout("edge chunks", (11, 13), {"chunks": (4, 5)})


def keys(name: str, separator: str) -> dict[str, str]:
    """A chunk key encoding as ``create_array`` takes it."""
    return {"name": name, "separator": separator}


LAYOUTS_V3 = (
    EDGE,
    Layout("whole chunks", (8, 10), {"chunks": (4, 5)}),
    Layout("one chunk", (11, 13), {"chunks": (11, 13)}),
    Layout("chunk beyond the array", (3, 2), {"chunks": (8, 8)}),
    Layout("line", (17,), {"chunks": (5,)}),
    Layout("cube", (5, 6, 7), {"chunks": (2, 3, 4)}),
    Layout("no dimensions", (), {}),
    Layout("no elements", (0, 5), {"chunks": (2, 2)}),
    Layout("default keys .", (11, 13), {"chunks": (4, 5), "chunk_key_encoding": keys("default", ".")}),
    Layout("v2 keys .", (11, 13), {"chunks": (4, 5), "chunk_key_encoding": keys("v2", ".")}),
    Layout("v2 keys /", (11, 13), {"chunks": (4, 5), "chunk_key_encoding": keys("v2", "/")}),
    Layout("v2 keys, no dimensions", (), {"chunk_key_encoding": keys("v2", "/")}),
    Layout("transposed", (5, 6, 7), {"chunks": (2, 3, 4), "filters": [transpose(2, 0, 1)]}),
    Layout("F order", (11, 13), {"chunks": (4, 5), "filters": [transpose(1, 0)]}),
    Layout("shards", (11, 13), {"chunks": (4, 5), "shards": {"shape": (8, 10), "index_location": "end"}}),
    Layout(
        "shards, index first", (11, 13), {"chunks": (4, 5), "shards": {"shape": (8, 10), "index_location": "start"}}
    ),
    Layout("one shard", (11, 13), {"chunks": (4, 5), "shards": (12, 15)}),
    Layout("shards of cubes", (5, 6, 7), {"chunks": (2, 3, 2), "shards": (4, 6, 4), "filters": [transpose(2, 1, 0)]}),
    Layout("sharded line, keys .", (17,), {"chunks": (2,), "shards": (6,), "chunk_key_encoding": keys("v2", ".")}),
    Layout("shards in chunks", (11, 13), {"chunks": (8, 10), "serializer": sharding((4, 5), index=_BIG_INDEX)}),
    Layout(
        "shards in shards",
        (19, 13),
        {"chunks": (16, 10), "serializer": sharding((8, 10), sharding((4, 5), location="start"))},
    ),
    Layout(
        "transpose before shards",
        (11, 13),
        {"chunks": (8, 8), "filters": [transpose(1, 0)], "serializer": sharding((4, 2))},
    ),
    Layout(
        "transpose in shards",
        (11, 13),
        {"chunks": (8, 10), "serializer": sharding((4, 5), [transpose(1, 0)], location="start")},
    ),
)

LAYOUTS_V2 = (
    EDGE,
    Layout("whole chunks", (8, 10), {"chunks": (4, 5)}),
    Layout("one chunk", (11, 13), {"chunks": (11, 13)}),
    Layout("line", (17,), {"chunks": (5,)}),
    Layout("no dimensions", (), {}),
    Layout("no elements", (0, 5), {"chunks": (2, 2)}),
    Layout("keys /", (11, 13), {"chunks": (4, 5), "chunk_key_encoding": keys("v2", "/")}),
    Layout("F order", (11, 13), {"chunks": (4, 5), "order": "F"}),
    Layout(
        "F order, cube, keys /", (5, 6, 7), {"chunks": (2, 3, 4), "order": "F", "chunk_key_encoding": keys("v2", "/")}
    ),
)
