"""OME-Zarr's metadata for the levels of an image in another format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gzarr.api.groups import open_group
from gzarr.api.open import open_array
from gzarr.codecs.transpose import TransposeCodec
from gzarr.errors import MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.values import stored_names
from gzarr.images.new_levels import numbers
from gzarr.images.ome.axes import MAX_AXES, letters, new_axes
from gzarr.images.ome.channels import new_channels
from gzarr.images.ome.documents import VERSION_OF, Dataset, Multiscale, to_attributes
from gzarr.images.stored_levels import count_channels
from gzarr.indexing.keys import Coords
from gzarr.metadata.conventions import described_in
from gzarr.metadata.documents import documents
from gzarr.metadata.model import ZarrFormat
from gzarr.storage.wrappers import seen_through
from gzarr.virtual.documents import group_document
from gzarr.virtual.joins import Objects, chunks_of, with_one_chain
from gzarr.virtual.store import Chunks, Contents, LazyTables, Reader, VirtualStore
from gzarr.virtual.tiff_metadata import Description


class _LevelShape(NamedTuple):
    """What the metadata of an image say of a level."""

    shape: Coords
    dtype: np.dtype[Any]
    dimension_names: tuple[str, ...]


def open_levels(node: Array | Group) -> Group:
    """Arrays of another format as the levels of an OME-Zarr image, in place: one array, or those of a group by number.

    Samples of a pixel that come last, as in TIFF, become channels. Raises: MetadataError if an image has no such axes.
    """
    members = [node] if isinstance(node, Array) else [node[str(number)] for number in range(len(node))]
    levels = [member for member in members if isinstance(member, Array)]
    for level in levels:
        if level.ndim > MAX_AXES:
            raise MetadataError(f"{level.store_path} has {level.ndim} axes: an image has 2 to 5")
    names = [letters(stored_names(level.metadata) or (None,) * level.ndim) for level in levels]
    if len(levels) < len(members) or len(set(names)) != 1:
        raise MetadataError(f"{node.store_path}: the levels of an image are arrays of the same axes; open one of them")
    store = VirtualStore(partial(_find, node.attrs.asdict(), levels, names[0]), str(node.store_path))
    return open_group(store, mode="r", device=levels[0].backend)  # type: ignore[arg-type]  # a backend is one


def open_transposed(levels: Sequence[Array], axes: Coords, names: Sequence[str]) -> list[Array]:
    """Arrays with their axes in another order and with names, in place.

    axes: their numbers in the new order. names: in that order.
    """

    def find() -> Contents:
        return _moved_levels(levels, axes, names, lambda _: {})

    store = VirtualStore(find, str(levels[0].store_path))
    return [open_array(store, mode="r", path=str(n), device=level.backend) for n, level in enumerate(levels)]  # type: ignore[arg-type]  # a backend is one


def _find(attributes: Mapping[str, Any], levels: Sequence[Array], names: str) -> Contents:
    """What the image holds. Raises: MetadataError."""
    store = seen_through(levels[0].store)
    said = store.contents.said if isinstance(store, VirtualStore) else None
    axes = tuple(sorted(range(len(names)), key=lambda at: (*"tczyx",).index(names[at]) if names[at] in "tczyx" else -1))
    bands = attributes.get("band_names")  # as from_tiff copies them
    plain = Description(
        channels=tuple([{"label": one} if one else {} for one in bands]) if isinstance(bands, list) else ()
    )
    called = levels[0].path or str(levels[0].store).rpartition("/")[2].partition(".")[0]

    def attributes_of(described: Sequence[_LevelShape]) -> dict[str, Any]:
        return image_attributes(described, said() if said else plain, attributes, 3, called)

    return _moved_levels(levels, axes, [names[axis] for axis in axes], attributes_of)


def _moved_levels(
    levels: Sequence[Array],
    axes: Coords,
    names: Sequence[str],
    attributes_of: Callable[[Sequence[_LevelShape]], Mapping[str, Any]],
) -> Contents:
    """Arrays by number, with their axes in another order and with names, in a group with attributes."""
    found, described, objects = {}, [], Objects()
    levels = list(map(with_one_chain, levels))
    for number, array in enumerate(levels):
        meta = described_in(array.metadata, 3)
        shape, grid = tuple([meta.shape[axis] for axis in axes]), tuple([meta.grid[axis] for axis in axes])
        order = tuple(np.argsort(axes).tolist())
        codecs = meta.codecs if order == tuple(range(len(order))) else (TransposeCodec(order), *meta.codecs)
        meta = replace(meta, shape=shape, grid=grid, codecs=codecs, dimension_names=tuple(names))
        described.append(_LevelShape(shape, array.dtype, tuple(names)))
        found[f"{number}/zarr.json"] = documents(meta, "")[0][1]
    tables = LazyTables({str(n): partial(_moved, level, objects, axes) for n, level in enumerate(levels)})
    group = group_document(attributes_of(described))
    return Contents({"zarr.json": group, **found}, tables, objects.found, tokens=objects.tokens)


def _moved(level: Array, objects: Objects, axes: Coords) -> Chunks:
    """The chunks of an array, with its axes in another order."""
    chunks = chunks_of(level, objects)
    counts = tuple([chunks.counts[axis] for axis in axes])
    if isinstance(chunks, Reader):
        back, read = np.argsort(axes).tolist(), chunks.read
        return chunks._replace(
            counts=counts, read=lambda many: read([tuple([at[axis] for axis in back]) for at in many])
        )
    order = np.arange(chunks.objects.size).reshape(chunks.counts).transpose(axes).ravel()
    inline = {int(row): chunks.inline[at] for row, at in enumerate(order.tolist()) if at in chunks.inline}
    return replace(chunks, counts=counts, objects=chunks.objects[order], places=chunks.places[order], inline=inline)


def image_attributes(
    levels: Sequence[Any], said: Description, stored: Mapping[str, Any], zarr_format: ZarrFormat, name: str
) -> dict[str, Any]:
    """The attributes of an image's group.

    levels: with shape, dtype, and the axes of an image as dimension names. said: what the file says. stored: other
    attributes. name: if the file has none.
    """
    base = levels[0]
    names = "".join(str(axis) for axis in base.dimension_names or ())
    axes = new_axes(names, len(names), {axis: unit for axis, unit in said.units.items() if axis in names})
    scale = numbers({axis: size for axis, size in said.scale.items() if axis in names}, axes, "scale", 1.0)
    datasets = []
    for number, level in enumerate(levels):
        steps = factors(base.shape, level.shape)
        datasets.append(
            Dataset(
                str(number),
                tuple(s * f for s, f in zip(scale, steps, strict=True)),
                tuple(s * (f - 1) / 2 for s, f in zip(scale, steps, strict=True)),
            )
        )
    channels = _channels(said, count_channels(axes, base.shape), np.dtype(base.dtype))
    multiscale = Multiscale(
        axes=axes,
        datasets=tuple(datasets),
        version=VERSION_OF[zarr_format],
        name=said.name or name,
        type="none" if len(levels) == 1 else "unknown",
        metadata={} if len(levels) == 1 else {"description": "the levels of a TIFF file"},
        channels=channels,
    )
    return to_attributes(multiscale, stored, zarr_format)


def factors(base: Sequence[int], shape: Sequence[int]) -> tuple[float, ...]:
    """How many elements of level 0 one element of a level has, by axis: whole numbers, if rounding gives the shape."""
    found = []
    for whole, n in zip(base, shape, strict=True):
        near = max(round(whole / n), 1)
        found.append(float(near) if n in (whole // near, -(-whole // near)) else whole / n)
    return tuple(found)


def _channels(said: Description, count: int, dtype: np.dtype[Any]) -> Any:
    """The channels that a file names."""
    if not said.channels:
        return ()
    given = [{"label": f"Channel {n}", **(said.channels[n] if n < len(said.channels) else {})} for n in range(count)]
    return new_channels(given, count, dtype)
