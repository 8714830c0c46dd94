"""Which version of OME-Zarr the metadata of a group are of, and which of its images is meant."""

from collections.abc import Mapping
from typing import Any

from gzarr.errors import MetadataError
from gzarr.images.ome.faults import Notes, short

#: What is read in Zarr v2.
_OLD_VERSIONS = ("0.1", "0.2", "0.3", "0.4")


def check_place(attributes: Mapping[str, Any], zarr_format: int, notes: Notes) -> None:
    """Note metadata of one format of Zarr in a group of the other."""
    if zarr_format == 3 and "multiscales" in attributes and "ome" not in attributes:
        what = "metadata of OME-Zarr 0.4 in a group of Zarr v3, which has those of 0.5 under 'ome'"
        notes.fatal("multiscales", what, "move 'multiscales' and 'omero' into 'ome', beside 'version': '0.5'")
    if zarr_format == 2 and "ome" in attributes and "multiscales" not in attributes:
        what = "metadata of OME-Zarr 0.5 in a group of Zarr v2, which has those of 0.4 at the top"
        notes.fatal("ome", what, "move its members to the top of the attributes, with 'version': '0.4'")


def choose(items: list[Any], which: int | str, where: str) -> int:
    """The number of the image that is meant, by number or name. Raises MetadataError."""
    if isinstance(which, int) and -len(items) <= which < len(items):
        return which % len(items)
    names = [item.get("name") for item in items]
    if which in names:
        return names.index(which)
    raise MetadataError(f"{where}: there is no image {which!r} among multiscales: {names}; give a name or a number")


def told_version(found: Mapping[str, Any], item: Mapping[str, Any], zarr_format: int, notes: Notes, place: str) -> str:
    """The version of an image; faults of what says it are noted."""
    if zarr_format == 3:
        version = found.get("version")
        if version is None:
            notes.error("ome.version", "is missing", "write '0.5'")
        elif isinstance(version, str) and version[:3] == "0.6":  # or a draft of it
            return "0.6"
        elif not isinstance(version, str) or version.split("-")[0] != "0.5":
            what = f"OME-Zarr {short(version)} in Zarr v3 cannot be read"
            notes.fatal("ome.version", what, "write the image as version 0.6, or open its arrays with gzarr.open_group")
        return "0.5"
    version = item.get("version")
    if version in _OLD_VERSIONS:
        return str(version)
    axes = item.get("axes")
    guess = (
        "0.2" if axes is None else "0.3" if isinstance(axes, list) and all(isinstance(a, str) for a in axes) else "0.4"
    )
    if version is None:
        notes.warning(f"{place}.version", "is missing", f"write {guess!r}")
    else:
        what = f"OME-Zarr {short(version)} in Zarr v2 cannot be read"
        notes.fatal(
            f"{place}.version", what, "write the image as version 0.4, or open its arrays with gzarr.open_group"
        )
    return guess
