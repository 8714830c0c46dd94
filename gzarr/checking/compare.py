"""Compares two arrays or two hierarchies: members, metadata, and values in regions of bounded size."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gzarr.checking.report import Place, one_line
from gzarr.checking.values import Tolerance, ValueDifferences, compare_values
from gzarr.display.info import number
from gzarr.display.progress import ProgressLike, counted
from gzarr.errors import ChunkError
from gzarr.errors.escaping import as_lines, escaped
from gzarr.indexing.keys import join_path
from gzarr.metadata.conventions import Stated, stated_by, translate
from gzarr.metadata.documents import expect_node, kind_of, members, read_node
from gzarr.metadata.model import ArrayMeta, GroupMeta, NodeMeta


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    Attributes
    ----------
    path : str
        Path of the node below the places that are compared; "" is the place itself.
    what : str
        "member", "kind", "shape", "dtype", "fill_value", "attributes", "dimension_names", "values", "unreadable"; or
        of the layout "chunks", "shards", "codecs", "chunk_key_encoding", "byte_order", "zarr_format".
    a, b : str
        Both sides, in words.
    values : ValueDifferences or None
        How values differ.
    """

    path: str
    what: str
    a: str
    b: str
    values: ValueDifferences | None = None

    def __str__(self) -> str:
        sides = f"{self.a} != {self.b}" if self.b else one_line(self.a) or str(self.values)
        return escaped(f"/{self.path}: {self.what}: {sides}")


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """How two places differ. Prints as a report; true if they are equal.

    Attributes
    ----------
    a, b : str
        Store and path of the two.
    differences : tuple of Difference
        What differs.
    layout : tuple of Difference
        Differences of chunks, codecs and format, which do not count.
    narrays : int
        Number of arrays on both sides.
    nbytes : int
        Decoded bytes that were compared, of one side.

    Examples
    --------
    >>> import gzarr
    >>> a = gzarr.array([1, 2, 3], chunks=1)
    >>> found = gzarr.compare(a, gzarr.array([1, 5, 3], chunks=3))
    >>> found.equal
    False
    >>> found.differences[0].values.first
    (((1,), '2', '5'),)
    """

    a: str
    b: str
    differences: tuple[Difference, ...]
    layout: tuple[Difference, ...]
    narrays: int
    nbytes: int

    @property
    def equal(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    def __bool__(self) -> bool:
        return self.equal

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values.

        Returns
        -------
        dict
            The attributes and ``equal``.
        """
        differences = [asdict(difference) for difference in self.differences]
        for difference in differences:
            if difference["values"] is not None and math.isinf(difference["values"]["largest"] or 0):
                difference["values"]["largest"] = "Infinity"  # which JSON does not have
        return {"equal": self.equal, **asdict(self), "differences": differences}

    def __repr__(self) -> str:
        verdict = number(len(self.differences), "difference") if self.differences else "equal"
        return as_lines(
            [
                f"{self.a} and {self.b}: {number(self.narrays, 'array')}: {verdict}",
                *map(str, self.differences),
                *(f"{difference} (layout)" for difference in self.layout),
            ]
        )


class _Pair(NamedTuple):
    """An array that both sides have."""

    path: str
    a: tuple[Place, ArrayMeta]
    b: tuple[Place, ArrayMeta]


def compare_places(
    a: Place,
    b: Place,
    tolerance: Tolerance,
    progress: ProgressLike = None,
    *,
    strict: bool,
    metadata_only: bool,
    on: Any = None,
    part: tuple[int, int] | None = None,
) -> Comparison:
    """Compare two nodes and all below them. Raises: NodeNotFoundError, MetadataError, StoreError."""
    metas = [expect_node(place.store, place.path, read_node(place.store, place.path)) for place in (a, b)]
    found: list[Difference] = []
    layout: list[Difference] = []
    pairs: list[_Pair] = []
    for path, one, two in _nodes((a, b), "", (metas[0], metas[1])):
        if one is None or two is None:
            present = kind_of(one or two)
            found.append(Difference(path, "member", present if one else "missing", present if two else "missing"))
        elif kind_of(one) != kind_of(two):
            found.append(Difference(path, "kind", kind_of(one), kind_of(two)))
        else:
            found += _metadata(path, one, two)
            layout += _differing(path, _layout(one), _layout(two))
            if isinstance(one, ArrayMeta) and isinstance(two, ArrayMeta):
                pairs.append(_Pair(path, (_below(a, path), one), (_below(b, path), two)))
    wanted = [] if metadata_only else [pair for pair in pairs if pair.a[1].shape == pair.b[1].shape]
    nbytes = sum(pair.a[1].nbytes for pair in wanted)
    with counted(progress, nbytes) as add:
        for pair in wanted:
            try:
                values = compare_values((pair.a, pair.b), tolerance, partial(_add, add, pair.path), on, part)
            except ChunkError as error:
                found.append(Difference(pair.path, "unreadable", str(error), "", None))
                continue
            if values is not None:
                found.append(Difference(pair.path, "values", "", "", values))
    if strict:
        found, layout = [*found, *layout], []
    return Comparison(str(a), str(b), tuple(found), tuple(layout), len(pairs), nbytes)


def _add(add: Callable[[int, str], None], path: str, nbytes: int) -> None:
    add(nbytes, path)


def _below(place: Place, path: str) -> Place:
    return place._replace(path=join_path(place.path, path))


def _nodes(
    places: tuple[Place, Place], path: str, metas: tuple[NodeMeta | None, NodeMeta | None]
) -> Iterator[tuple[str, NodeMeta | None, NodeMeta | None]]:
    """All nodes of two hierarchies: (path, what is there on either side). A node that only one has ends the walk."""
    yield path, *metas
    if not all(isinstance(meta, GroupMeta) for meta in metas):
        return
    below = [
        dict(members(place.store, join_path(place.path, path), meta.zarr_format)) if meta is not None else {}
        for place, meta in zip(places, metas, strict=True)
    ]
    for name in sorted(below[0].keys() | below[1].keys()):
        yield from _nodes(places, join_path(path, name), (below[0].get(name), below[1].get(name)))


# -- metadata ----------------------------------------------------------------------------------------------------------


def _differing(path: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[Difference]:
    for what in one:
        a, b = repr(one[what]), repr(two[what])
        if a != b:  # as they are written: NaN is NaN, and True is not 1
            yield Difference(path, what, a, b)


def _metadata(path: str, one: NodeMeta, two: NodeMeta) -> list[Difference]:
    """Differences of the metadata that count. Of different formats, both are compared in the words of either."""
    if not isinstance(one, ArrayMeta) or not isinstance(two, ArrayMeta):
        return list(_differing(path, {"attributes": _sorted(one.attributes)}, {"attributes": _sorted(two.attributes)}))
    pairs = [(stated_by(one), stated_by(two))]
    if one.zarr_format != two.zarr_format:
        pairs = [(translate(one)[0], stated_by(two)), (stated_by(one), translate(two)[0])]
    return min([list(_differing(path, _described(one, a), _described(two, b))) for a, b in pairs], key=len)


def _described(meta: ArrayMeta, stated: Stated) -> dict[str, Any]:
    """What counts of the metadata of an array."""
    return {
        "shape": meta.shape,
        "dtype": replace(meta.data_type, dtype=meta.data_type.dtype.newbyteorder("=")).name,
        "fill_value": _plain(stated.fill_value),
        "attributes": _sorted(stated.attributes),
        "dimension_names": stated.names if stated.names and any(stated.names) else None,
    }


def _sorted(value: Any) -> Any:
    """JSON values with sorted names."""
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _layout(meta: NodeMeta) -> dict[str, Any]:
    """How a node is stored."""
    if isinstance(meta, GroupMeta):
        return {"zarr_format": meta.zarr_format}
    return {
        "zarr_format": meta.zarr_format,
        "chunks": meta.chunks,
        "shards": meta.object_shape if meta.sharding is not None else None,
        "codecs": list(meta.codecs),
        "chunk_key_encoding": (meta.keys.name, meta.keys.separator),
        "byte_order": meta.data_type.dtype.byteorder,
    }
