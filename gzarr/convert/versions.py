"""Copies OME-Zarr images between versions: 0.4 is stored in Zarr v2, 0.5 in v3."""

from __future__ import annotations

from typing import Any, Unpack

from gzarr.api.groups import open_group
from gzarr.copying.report import TransferReport
from gzarr.copying.settings import TransferKeywords
from gzarr.copying.transfer import destination, transfer
from gzarr.errors import CopyError
from gzarr.hierarchy.group import Group
from gzarr.images.image import open_image
from gzarr.images.ome.documents import as_attributes, to_attributes
from gzarr.indexing.keys import join_path

#: Attributes that OME-Zarr 0.4 has at the top, and 0.5 in "ome".
_OME_FIELDS = ("ome", "multiscales", "omero", "image-label")


def copy_image(group: Group, dest: Any, /, **options: Unpack[TransferKeywords]) -> TransferReport:
    """Copy an image with its labels; with another ``zarr_format``, it gets the version of OME-Zarr that this has.

    Parameters
    ----------
    group : Group
        Of the image, of any version.
    dest : path, URL, store or Group
        Where the copy goes.
    **options
        Keywords of `gzarr.transfer`.

    Returns
    -------
    TransferReport
        What was done.

    Raises
    ------
    MetadataError
        If the group is no image.
    CopyError
        If the copy stops.
    """
    source = open_image(group)
    images = {"": source, **{f"labels/{name}": label for name, label in source.labels.items()}}
    zarr_format = options.get("zarr_format") or group.metadata.zarr_format
    keywords: dict[str, Any] = {**options, "zarr_format": zarr_format}
    if zarr_format == 2:
        keywords["dimension_separator"] = "/"
    else:
        names = {join_path(at, one.path): image.axes for at, image in images.items() for one in image.metadata.datasets}
        keywords["each"] = {path: {"dimension_names": axes} for path, axes in names.items()}
    report = transfer(group, dest, **keywords)
    if options.get("dry_run"):
        return report
    with destination(dest, options.get("path")) as (store, where, _):
        copy = open_group(store, "r+", path=where)
        for at, image in images.items():
            found = copy[at] if at else copy
            if not isinstance(found, Group):
                raise CopyError(f"{found.store_path} is no group")
            others = {name: value for name, value in image.group.attrs.items() if name not in _OME_FIELDS}
            found.attrs.put(to_attributes(image.metadata, others, zarr_format))
        if len(images) > 1:
            copy["labels"].attrs.put(as_attributes({"labels": list(source.labels)}, zarr_format))
    return report
