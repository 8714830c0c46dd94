"""Copies OME-Zarr images between versions: 0.4 is stored in Zarr v2, 0.5 and 0.6 in v3."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Unpack

from gzarr.api.groups import open_group
from gzarr.copying.report import TransferReport
from gzarr.copying.settings import TransferKeywords
from gzarr.copying.transfer import destination, transfer
from gzarr.errors import CopyError
from gzarr.hierarchy.group import Group
from gzarr.images.image import open_image
from gzarr.images.ome.documents import Version, as_attributes, to_attributes, version_in, zarr_format_of
from gzarr.indexing.keys import join_path

#: Attributes that OME-Zarr 0.4 has at the top, and 0.5 in "ome".
_OME_FIELDS = ("ome", "multiscales", "omero", "image-label")


def copy_image(
    group: Group, dest: Any, /, version: Version | None = None, **options: Unpack[TransferKeywords]
) -> TransferReport:
    """Copy an image with its labels, to another version of OME-Zarr if one is given.

    Parameters
    ----------
    group : Group
        Of the image, of any version.
    dest : path, URL, store or Group
        Where the copy goes.
    version : {"0.4", "0.5", "0.6"}, optional
        Of the copy. By default that of the image, if ``zarr_format`` has it.
    **options
        Keywords of `gzarr.transfer`.

    Returns
    -------
    TransferReport
        What was done.

    Raises
    ------
    MetadataError
        If the group is no image, or the version lacks its coordinate systems. Nothing is written then.
    CopyError
        If the copy stops.
    """
    source = open_image(group)
    images = {"": source, **{f"labels/{name}": label for name, label in source.labels.items()}}
    zarr_format = options.get("zarr_format") or group.metadata.zarr_format
    if version is not None:
        zarr_format = zarr_format_of(version)
    own = version or version_in(source.version, zarr_format)
    documents = {at: replace(image.metadata, version=own) for at, image in images.items()}
    for document in documents.values():
        document.to_json(own)
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
            found.attrs.put(to_attributes(documents[at], others, zarr_format))
        if len(images) > 1:
            copy["labels"].attrs.put(as_attributes({"labels": list(source.labels)}, zarr_format, own))
    return report
