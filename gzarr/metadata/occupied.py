"""Says what is at a path where there is no array and no group, so that none is created over it unasked."""

import json
import os

from gzarr.errors import RESUME, StoreError
from gzarr.indexing.keys import join_path
from gzarr.storage.base import Request, Store
from gzarr.storage.rules import DOCUMENTS

#: Name of the object under the destination of a copy that has not finished: see `gzarr.copying.planning`.
MARK = "gzarr-unfinished-copy.json"
#: Name of the object beside levels, or in an array, that are being computed: see `gzarr.images.pyramid.resuming`.
PROGRESS = "gzarr-unfinished.json"
#: What names begin with of objects that say that a part of a job is done: see `gzarr.scale.parts`.
PART = "gzarr-unfinished-part-"

#: What files begin with, and what to do with them. Files in HDF5, NetCDF, TIFF and the like are opened in place.
_MAGIC = {
    b"PK": "an archive: open it by a name that ends in .zip, or as zip://",
    b"SQLite": "a database: open it with SQLiteStore",
    **dict.fromkeys((b"\x89PNG", b"\xff\xd8\xff"), "an image: convert it with gzarr.convert or 'gzarr convert'"),
}


def occupant(store: Store, path: str, *, nodes_below: bool = True) -> str | None:
    """What is at a path that has no metadata, in words, with the remedy. None if nothing is there.

    With ``nodes_below=False``, a folder of nothing but Zarr nodes counts as nothing. Stores on servers are not listed,
    which could take thousands of requests.
    """
    return unfinished_copy(store, path) or _file(store, path) or _folder(store, path, nodes_below=nodes_below)


def unfinished_copy(store: Store, path: str, *, above: bool = True) -> str | None:
    """The unfinished copy at a path, or with ``above`` also one that contains the path, in words; or None."""
    names = [path]
    while above and names[-1]:
        names.append(names[-1].rpartition("/")[0])
    try:
        marks = store.get_many([Request(join_path(name, MARK)) for name in names])
    except StoreError:  # Icechunk has no keys but those of Zarr
        return None
    for name, data in zip(names, marks, strict=True):
        if data is not None:
            try:
                source = f" of {json.loads(bytes(data))['source']}"
            except (ValueError, TypeError, LookupError):
                source = ""
            where = join_path(str(store), name)
            left = f"copy with {RESUME}, or the parts that are left with part=(k, n), to complete it"
            return f"an unfinished copy{source} is at {where!r}: {left}, or delete it"
    outer = store.enclosing() if above else None
    return None if outer is None else unfinished_copy(outer[0], outer[1].rpartition("/")[0])


def unfinished_run(store: Store, path: str) -> str | None:
    """The name of the function whose unfinished output is at a path; None if there is none, or it cannot be read."""
    try:
        return str(json.loads(bytes(store.get_one(Request(join_path(path, PROGRESS))) or b""))["name"])
    except (StoreError, ValueError, TypeError, LookupError):
        return None


def _file(store: Store, path: str) -> str | None:
    """What to say of a file where a directory is needed."""
    files = store.files
    name = None if files is None else files.prefix(path)
    place = "" if name is None else name.rstrip("/\\")
    while place and not os.path.lexists(place) and os.path.dirname(place) != place:  # noqa: PTH120 - as below
        place = os.path.dirname(place)  # noqa: PTH120
    if not place or os.path.isdir(place):  # noqa: PTH112 - names of stores are strings
        return None
    if not os.path.isfile(place):  # noqa: PTH113
        kind = "a symbolic link to nothing" if os.path.islink(place) else "a device, a pipe or a socket"  # noqa: PTH114
        return f"{place!r} is {kind}; choose another path"
    try:
        with open(place, "rb") as opened:  # noqa: PTH123
            begin = opened.read(8)
    except OSError:
        begin = b""
    what = next((text for magic, text in _MAGIC.items() if begin.startswith(magic)), "")
    kind = "an empty file" if not begin else "a file of no format that gzarr reads"
    return f"{place!r} is a file, not a directory, {what}" if what else f"{place!r} is {kind}; choose another path"


def _is_of_system(name: str) -> bool:
    """Whether systems and tools make files of a name by themselves: .DS_Store, .ipynb_checkpoints, lost+found."""
    return name.startswith(".") or name == "lost+found"


def _folder(store: Store, path: str, *, nodes_below: bool) -> str | None:
    if store.concurrency > 1:
        return None
    objects, children = store.list_dir(path)
    if DOCUMENTS & set(objects):
        return None
    objects, children = ([name for name in names if not _is_of_system(name)] for names in (objects, children))
    if "attributes.json" in objects and store.zarr_format is None:
        return "a folder with 'attributes.json' is there, perhaps N5; open that with N5Store"
    if "snapshots" in children and store.zarr_format is None:
        return "a folder with 'snapshots' is there, perhaps of Icechunk; open that as 'icechunk://' and its path"
    foreign = next(iter(objects), None) or next(
        (name for name in children if not DOCUMENTS & set(store.list_dir(join_path(path, name))[0])), None
    )
    if foreign is not None:
        return (
            f"a folder without Zarr metadata is there, which holds {foreign!r}; choose another path, or create an array"
            " or a group beside it with create_array or create_group"
        )
    if children and nodes_below:
        return (
            f"a folder without Zarr metadata is there, with the node {children[0]!r}: open that, or make the folder a "
            "group with open_group"
        )
    return None
