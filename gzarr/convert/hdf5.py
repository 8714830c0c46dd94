"""Converts HDF5 files to Zarr and back, with h5py (the extra ``hdf5``)."""

import io
import os
from collections.abc import Mapping
from typing import Any, Literal, Unpack

from gzarr.convert.writing import node_of, of_files, replacing, write
from gzarr.copying import copy, copy_all, hdf5
from gzarr.copying.planning import Hdf5Keywords, TransferKeywords, axis_names
from gzarr.copying.report import TransferReport
from gzarr.copying.sources import SourceTree, from_array, reading
from gzarr.errors import CopyError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.indexing.keys import join_path


@of_files
def from_hdf5(
    source: Any,
    dest: Any,
    *,
    group: str = "/",
    links: Literal["once", "copy"] = "once",
    **options: Unpack[TransferKeywords],
) -> TransferReport:
    """Convert an HDF5 file, or a group or dataset in it, to Zarr.

    Chunks, fill values, attributes and dimension names stay; compressors are Zarr's defaults. Enumerations become
    integers, with their names in the attribute ``enum``, and in ``flag_values`` and ``flag_meanings``. External links
    are followed. References, empty datasets and groups that contain themselves are refused.

    Parameters
    ----------
    source : path, h5py.File, h5py.Group or h5py.Dataset
        The file, or an object in it.
    dest : path, URL, store or Group
        Where the Zarr node goes.
    group : str, default "/"
        Path in the file of the group or dataset to convert.
    links : {"once", "copy"}
        What has several names, by hard or soft links, is converted once; the attribute ``hdf5_links`` of a group lists
        its other names, and `to_hdf5` restores them. Or it is copied under each name.
    **options
        Keywords of `gzarr.transfer`.

    Returns
    -------
    TransferReport
        What was done.

    Raises
    ------
    CopyError
        If the file cannot be read, has something that Zarr lacks, or the copy stops.
    MissingExtraError
        If h5py is missing.

    Examples
    --------
    >>> import h5py, tempfile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> with h5py.File(f"{folder}/a.h5", "w") as file:
    ...     file["x"] = [1, 2, 3]
    >>> report = gzarr.convert.from_hdf5(f"{folder}/a.h5", f"{folder}/a.zarr")
    >>> gzarr.open(f"{folder}/a.zarr")["x"][:].tolist()
    [1, 2, 3]
    """
    if links not in ("once", "copy"):
        raise ValueError(f"links must be 'once' or 'copy', got {links!r}")
    if hdf5.is_h5(source):
        with reading(hdf5.place(source)):
            tree = _tree(source[group] if group != "/" and hasattr(source, "keys") else source, links)
        return write(tree, dest, **options)
    with reading(f"{os.fspath(source)!r} as HDF5"):
        file = hdf5.h5py_module().File(source, "r")
    with file:
        with reading(f"{os.fspath(source)!r} as HDF5"):
            if group not in file:
                raise CopyError(f"{os.fspath(source)!r} has no group or dataset {group!r}")
            tree = _tree(file[group], links)
        return write(tree, dest, **options)


def _tree(node: Any, links: Literal["once", "copy"]) -> SourceTree:
    if hasattr(node, "keys"):
        return hdf5.tree(node, links=links)
    one = hdf5.dataset_source(node)
    return SourceTree(one.name, {}, {"": one}, files=[node.file.filename])


def to_hdf5(
    source: Any, path: str | os.PathLike[str], *, overwrite: bool = False, **create_kws: Unpack[Hdf5Keywords]
) -> None:
    """Write an array, or a group with everything in it, to an HDF5 file.

    An array becomes a dataset of its name, or "data" if it has none. Names of axes become labels, and arrays of one
    axis that have its name become dimension scales. Attributes without an HDF5 type become JSON text.

    Parameters
    ----------
    source : Array, Group, path or URL
        What is written.
    path : str or path
        Path of the file, which appears when it is complete.
    overwrite : bool, default False
        Whether to replace an existing file.
    **create_kws
        Keywords of ``h5py.Group.create_dataset``, such as ``chunks`` and ``compression``, which is gzip by default.

    Raises
    ------
    CopyError
        If the file exists, cannot be written, or HDF5 lacks an element type.
    MissingExtraError
        If h5py is missing.

    Examples
    --------
    >>> import h5py, tempfile, gzarr
    >>> folder = tempfile.mkdtemp()
    >>> gzarr.convert.to_hdf5(gzarr.ones(3), f"{folder}/a.h5", compression="lzf")
    >>> h5py.File(f"{folder}/a.h5")["data"][:].tolist()
    [1.0, 1.0, 1.0]
    """
    node = node_of(source, path)
    h5py = hdf5.h5py_module()
    with replacing(path, overwrite=overwrite) as partial, _FileForHDF5(partial, "w+b") as raw:
        with h5py.File(raw, "w") as file:
            if isinstance(node, Group):
                copy_all(node, file, log=raw.check, **create_kws)
                _restore_links(node, file)
                arrays = {name: one for name, one in node.members(None) if isinstance(one, Array)}
            else:
                arrays = {node.basename or "data": node}
                copy(node, file, name=next(iter(arrays)), log=raw.check, **create_kws)
            names = {name: axis_names(from_array(array)) for name, array in arrays.items()}
            for name in names:
                _name_axes(file, name, names)
        raw.check()


def _restore_links(root: Group, file: Any) -> None:
    """Give what the attribute `hdf5.LINKS` of a group says the names that it had."""
    groups = {"/": root, **{path: one for path, one in root.members(None) if isinstance(one, Group)}}
    for path, group in groups.items():
        links = group.attrs.get(hdf5.LINKS)
        if not isinstance(links, Mapping):
            continue
        del file[path].attrs[hdf5.LINKS]
        for name, target in links.items():
            if target in file and name not in file[path]:
                file[path][name] = file[target]


def _name_axes(file: Any, path: str, names: Mapping[str, tuple[str | None, ...]]) -> None:
    """Label the axes of a dataset, and attach their dimension scales, in its group or the nearest one above it."""
    dataset = file[path]
    for axis, name in enumerate(names[path]):
        if name is None:
            continue
        dataset.dims[axis].label = name
        scale, above = join_path(path.rpartition("/")[0], name), path.rpartition("/")[0]
        while names.get(scale) != (name,) and above:
            above = above.rpartition("/")[0]
            scale = join_path(above, name)
        if names.get(scale) != (name,):
            continue
        if not file[scale].is_scale:
            file[scale].make_scale(name)
        if scale != path:
            dataset.dims[axis].attach_scale(file[scale])


class _FileForHDF5(io.FileIO):
    """A file that keeps errors of writing until `check` raises them.

    If HDF5 cannot write (a full disk), it cannot close its file either, and crashes the process at exit. So HDF5 never
    sees an error; the file is deleted.
    """

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        """Write everything, or keep the error."""
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view) and self.failure is None:
            try:
                done += super().write(view[done:]) or 0
            except OSError as error:
                self.failure = error
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Change the size, or keep the error."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.failure = self.failure or error
            return size or 0

    def check(self, _line: str = "") -> None:
        """Raise CopyError if writing failed. Called for every line that a copy logs, and at the end."""
        if self.failure is not None:
            raise CopyError(
                f"cannot write {os.fspath(self.name)!r}: {self.failure}; no file was made"
            ) from self.failure
