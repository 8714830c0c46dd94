"""Groups and datasets of h5py as sources and destinations of copies. h5py is imported only to make its objects.

HDF5 has features that Zarr lacks: references, soft and external links, groups that contain themselves. Links are
followed if they lead somewhere; everything else is refused with an error that names it, before anything is written.
"""

import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NoReturn

import numpy as np

from gzarr.copying.sources import Source, SourceTree, check_name, of_file, on_host, reading, regular_grid
from gzarr.errors import CopyError
from gzarr.indexing.keys import join_path
from gzarr.indexing.regions import Region
from gzarr.metadata.conventions import ATTRIBUTE, MASK, as_json, decode_mask, enum_attributes, split_enum, split_names
from gzarr.storage.extras import require

#: Attributes by which HDF5 and netCDF-4 tie dimensions to datasets: they become dimension names.
STRUCTURAL = frozenset(
    {"DIMENSION_LIST", "REFERENCE_LIST", "CLASS", "NAME", "DIMENSION_LABELS", "_Netcdf4Dimid", "_Netcdf4Coordinates"}
    | {"_nc3_strict", "_NCProperties", "_NCCOPY"}
)


#: Between the path of a node and the name of its attribute: no name has it.
ATTRIBUTE_MARK = "\0"

#: A group's attribute with further names of what has several in HDF5: paths from the root, by name.
LINKS = "hdf5_links"


def h5py_module() -> Any:
    """The module h5py. Raises MissingExtraError."""
    return require("h5py", "hdf5", "HDF5")


def is_h5(node: Any) -> bool:
    """Whether something is an object of h5py."""
    return type(node).__module__.partition(".")[0] == "h5py"


def place(node: Any) -> str:
    """File and path of an HDF5 object, for messages."""
    return f"{node.file.filename}:{node.name}"


def refuse(name: str, error: CopyError) -> NoReturn:
    """Raise the error: what is done about members and attributes that Zarr cannot have."""
    raise error


def members(
    group: Any, ancestors: frozenset[Any] = frozenset(), odd: Callable[[str, CopyError], object] = refuse
) -> Iterator[tuple[str, Any]]:
    """(name, object) of the members of a group, in h5py's order, with links followed.

    odd: is told of a link that leads nowhere, a group within itself, or a name that Zarr cannot have.
    """
    with reading(place(group)):
        names = list(group)
    for name in names:
        try:
            node = _member(group, name, ancestors)
        except CopyError as error:
            odd(str(name), error)
            continue
        if hasattr(node, "shape") or hasattr(node, "keys"):  # no named datatype, which the datasets that use it repeat
            yield name, node


def _member(group: Any, name: str, ancestors: frozenset[Any]) -> Any:
    check_name(name, place(group))
    try:
        node = group[name]
    except (KeyError, OSError) as error:
        raise CopyError(f"{place(group)}: the link {name!r} leads nowhere: {error}; delete or repair it") from error
    if hasattr(node, "keys") and node.id in ancestors:
        raise CopyError(f"{place(group)}: the link {name!r} leads back to a group that contains it; delete it")
    return node


def ancestors(group: Any) -> frozenset[Any]:
    """The ids of a group and of those above it."""
    ids = [group.id]
    while group.name and group.name != "/":
        group = group.parent
        ids.append(group.id)
    return frozenset(ids)


def tree(
    group: Any, *, links: Literal["once", "copy"] = "once", odd: Callable[[str, CopyError], object] = refuse
) -> SourceTree:
    """Everything below an HDF5 group. Raises CopyError.

    With ``links="once"``, what has several names is there once; the attribute `LINKS` of a group has its other names.
    odd: is told the paths of members and attributes (path, `ATTRIBUTE_MARK`, name) that Zarr cannot have and that are
    left out.
    """
    groups: dict[str, dict[str, Any]] = {}
    arrays: dict[str, Source] = {}
    paths: dict[Any, str] = {}
    scales: dict[Any, str | None] = {}

    def odd_attribute(path: str) -> Callable[[str, CopyError], object]:
        return lambda name, error: odd(f"{path}{ATTRIBUTE_MARK}{name}", error)

    soft: deque[tuple[str, str, Any, frozenset[Any]]] = deque()

    def add(path: str, name: str, node: Any, ancestors: frozenset[Any]) -> None:
        below, key = join_path(path, name), identity(node)
        if links == "once" and paths.setdefault(key, below) != below:
            groups[path].setdefault(LINKS, {})[name] = f"/{paths[key]}"
        elif hasattr(node, "shape"):
            try:
                arrays[below] = dataset_source(node, odd=odd_attribute(below), scales=scales)
            except CopyError as error:
                odd(below, error)
        else:
            visit(node, below, ancestors)

    def visit(node: Any, path: str, ancestors: frozenset[Any]) -> None:
        groups[path] = attributes_of(node, odd_attribute(path))
        inside = ancestors | {node.id}
        for name, child in members(node, inside, lambda name, error: odd(join_path(path, name), error)):
            if isinstance(node.get(name, getlink=True), h5py_module().HardLink):
                add(path, name, child, inside)
            else:  # what it leads to may have a name of its own
                soft.append((path, name, child, inside))

    visit(group, "", frozenset())
    while soft:
        add(*soft.popleft())
    return SourceTree(place(group), groups, arrays, files=[group.file.filename])


def identity(node: Any) -> tuple[Any, ...]:
    """What tells an object from all others, in whatever file it is."""
    info = h5py_module().h5o.get_info(node.id)
    return info.fileno, info.addr


def dataset_source(
    dataset: Any,
    *,
    with_attributes: bool = True,
    odd: Callable[[str, CopyError], object] = refuse,
    scales: dict[Any, str | None] | None = None,
) -> Source:
    """An HDF5 dataset as a source. Raises CopyError for element types that Zarr lacks, and for damage.

    odd: is told of attributes that have no form in JSON. scales: of `scale_paths`.
    """
    with reading(place(dataset)):
        names = dimension_names(dataset, {} if scales is None else scales)
        return of_file(_dataset_source(dataset, odd, names, with_attributes=with_attributes))


def _dataset_source(
    dataset: Any,
    odd: Callable[[str, CopyError], object],
    dimension_names: tuple[str | None, ...] | None,
    *,
    with_attributes: bool,
) -> Source:
    if dataset.shape is None:
        raise CopyError(f"{place(dataset)} is an empty dataset, without a shape; delete it or leave it out")
    is_text = _is_text(dataset.dtype)
    dtype = "string" if is_text else _plain_dtype(dataset)
    options: dict[str, Any] = {"chunks": dataset.chunks} if dataset.chunks else {}
    if not is_text:
        options["fill_value"] = dataset.fillvalue
    attributes = attributes_of(dataset, odd) if with_attributes else {}
    names = h5py_module().check_enum_dtype(dataset.dtype)
    if names is not None and with_attributes:
        attributes = {**enum_attributes(names), **attributes}
    mask = attributes.pop(MASK, None)
    if isinstance(mask, list) and len(mask) == 1:
        (mask,) = mask
    return Source(
        name=place(dataset),
        shape=tuple(dataset.shape),
        dtype=dtype,
        itemsize=16 if is_text else max(dataset.dtype.itemsize, 1),
        read=dataset.asstr().__getitem__ if is_text else dataset.__getitem__,
        grid=regular_grid(dataset.shape, dataset.chunks),
        attributes=attributes,
        dimension_names=dimension_names,
        options=options,
        mask_value=mask,
    )


def _is_text(dtype: Any) -> bool:
    text = h5py_module().check_string_dtype(dtype)
    return text is not None and text.length is None


def _plain_dtype(dataset: Any) -> np.dtype[Any]:
    """The dtype without the metadata of h5py: an enumeration becomes integers. Raises CopyError."""
    h5py, dtype = h5py_module(), dataset.dtype
    what = ""
    if h5py.check_ref_dtype(dtype) is not None:
        what = "references"
    elif h5py.check_vlen_dtype(dtype) is not None:
        what = "arrays of variable length"
    elif dtype.hasobject or dtype.subdtype is not None:
        what = f"{dtype}"
    if what:
        raise CopyError(f"{place(dataset)} has elements that Zarr lacks: {what}; delete it or copy the others by name")
    return np.dtype(dtype.str) if dtype.names is None else dtype


def dimension_names(dataset: Any, scales: dict[Any, str | None]) -> tuple[str | None, ...] | None:
    """Names of a dataset's axes: their labels, or the names of their dimension scales. scales: of `scale_paths`."""
    paths = scale_paths(dataset, scales)
    names = [axis.label or (path and path.rpartition("/")[2]) for axis, path in zip(dataset.dims, paths, strict=True)]
    if len(names) == 1 and names[0] is None and dataset.is_scale:
        names = [dataset.name.rpartition("/")[2]]
    return tuple(names) if any(names) else None


def scale_paths(dataset: Any, scales: dict[Any, str | None]) -> list[str | None]:
    """The path of each axis's first dimension scale; None if it has none, or if that was deleted.

    scales: those of the file that were found before, as HDF5 searches the whole file for the path of each.
    """
    return [_scale_path(axis, scales) for axis in dataset.dims]


def _scale_path(axis: Any, scales: dict[Any, str | None]) -> str | None:
    try:
        for scale in axis.values():
            key = identity(scale)
            if key not in scales:
                scales[key] = scale.name
            return scales[key]
    except (KeyError, OSError, RuntimeError, ValueError):  # it was deleted, and something else is in its place
        pass
    return None


def attributes_of(node: Any, odd: Callable[[str, CopyError], object] = refuse) -> dict[str, Any]:
    """The attributes of an HDF5 object as JSON values, without those that tie dimensions. Raises CopyError.

    odd: is told of those that have no form in JSON.
    """
    attributes = {}
    with reading(f"the attributes of {place(node)}"):
        names = [name for name in node.attrs if name not in STRUCTURAL]
    for name in names:
        try:
            with reading(f"the attributes of {place(node)}"):
                value = node.attrs[name]
            is_element = name == MASK and isinstance(value, (np.void, np.complexfloating))  # no attribute of the copy
            attributes[name] = value if is_element else _in_json(value)
        except CopyError as error:
            odd(name, error)
        except (TypeError, ValueError) as error:
            what = f"{place(node)}: attribute {name!r} has no form in JSON: {error}"
            refusal = CopyError(f"{what}; delete it, or use gzarr.copy with without_attrs=True")
            refusal.__cause__ = error
            odd(name, refusal)
    return attributes


def _in_json(value: Any) -> Any:
    if isinstance(value, h5py_module().Empty):
        return "" if value.dtype.kind in "SO" else None
    return as_json(value)


# -- to HDF5 -----------------------------------------------------------------------------------------------------


def write_attributes(node: Any, attributes: Mapping[str, Any]) -> None:
    """Set attributes of an HDF5 object; values without an HDF5 type (objects, null, mixed lists) become JSON text."""
    for name, value in attributes.items():
        if isinstance(value, np.ndarray):  # of the type of the elements
            node.attrs.create(name, value, dtype=value.dtype)
            continue
        plain = value if _fits_hdf5(value) else json.dumps(value)
        try:
            node.attrs[name] = plain
        except (TypeError, ValueError, OSError, RuntimeError) as error:
            raise CopyError(f"{place(node)}: cannot set the attribute {name!r}: {error}") from error


def _fits_hdf5(value: Any) -> bool:
    if isinstance(value, list):
        kinds = {type(item) for item in value}
        return len(kinds) <= 1 and kinds <= {bool, int, float, str}
    return isinstance(value, (bool, int, float, str))


def storage_of(dataset: Any) -> dict[str, Any]:
    """Keywords of ``create_dataset`` that store a dataset like this one."""
    keywords = {name: getattr(dataset, name) for name in ("compression", "compression_opts", "shuffle", "fletcher32")}
    return keywords if dataset.chunks else {"chunks": None, "compression": None, "compression_opts": None}


def create_dataset(group: Any, name: str, source: Source, keywords: Mapping[str, Any]) -> Any:
    """Create a dataset like a source, chunked and compressed as zarr 2 does. Raises CopyError."""
    array = source.array
    dtype, wrap = _hdf5_dtype(source)
    chunks = array.chunks if array is not None else source.options.get("chunks")
    options: dict[str, Any] = {"chunks": chunks or True, "compression": "gzip", "compression_opts": 1}
    options |= {"shuffle": False, **keywords}
    if "compression" in keywords and "compression_opts" not in keywords:
        del options["compression_opts"]
    if options["chunks"] is None:
        options = {k: v for k, v in options.items() if v}
    elif isinstance(options["chunks"], tuple):
        options["chunks"] = tuple(max(min(c, n), 1) for c, n in zip(options["chunks"], source.shape, strict=True))
    if not source.shape or 0 in source.shape:  # HDF5 has neither chunks nor filters for these
        chunked_only = ("chunks", "compression", "compression_opts", "shuffle")
        options = {k: v for k, v in options.items() if k not in chunked_only}
    fill = array.fill_value if array is not None else source.options.get("fill_value")
    if fill is not None and not wrap and "fillvalue" not in keywords:
        options["fillvalue"] = fill
    try:
        return group.create_dataset(name, shape=source.shape, dtype=dtype, **options)
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise CopyError(f"cannot create {name!r} in {place(group)} for {source.name}: {error}") from error


def _hdf5_dtype(source: Source) -> tuple[Any, bool]:
    """The dtype of a copy in HDF5, and whether its kind differs from the source's. Raises CopyError."""
    h5py = h5py_module()
    variable = "string" if isinstance(source.dtype, str) and source.dtype == "string" else ""
    if source.array is not None:
        variable = source.array.metadata.data_type.variable
    if variable == "string" or (not variable and np.dtype(source.dtype).kind == "U"):
        return h5py.string_dtype(), True
    if variable:
        raise CopyError(f"{source.name} has elements of type {variable!r}, which h5py cannot store; leave it out")
    dtype = np.dtype(source.dtype)
    names = split_enum(source.attributes, dtype)[1]
    if names is not None:
        return h5py.enum_dtype(names, dtype), False
    return (h5py.opaque_dtype(dtype), True) if dtype.kind in "mM" else (dtype, False)


def plain_attributes(source: Source) -> dict[str, Any]:
    """The attributes of a copy in HDF5: without those that its type says, with ``_FillValue`` as a number."""
    array = source.array
    if array is None:
        return dict(source.attributes)
    attributes = split_enum(source.attributes, array.dtype)[0]
    mask = decode_mask(attributes.pop(MASK, None), array.dtype)
    if array.zarr_format == 2 and ATTRIBUTE in attributes and array.fill_value is not None:
        mask = array.fill_value  # xarray takes it for missing data
    if mask is not None and array.dtype.kind not in "mM":  # HDF5 has no such type
        attributes[MASK] = str(mask) if array.dtype.kind in "UTO" else np.array(mask, array.dtype)
    return split_names(attributes, None, len(source.shape))[0]


def write_region(dataset: Any, region: Region, data: Any) -> None:
    """Write a region, from the host or a device."""
    data = on_host(data)
    if data.dtype.kind == "U":
        data = data.astype(object)
    elif data.dtype.kind in "mM":
        data = data.astype(h5py_module().opaque_dtype(data.dtype))
    dataset[region] = data
