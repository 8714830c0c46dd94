"""What is read in place: the paths, URLs and objects that name it. What opens it stands above stores."""
# os.path: URLs and paths are taken apart as text and given back unchanged.
# ruff: noqa: PTH112, PTH113

import os
import re
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from gzarr.errors import StoreError
from gzarr.storage.base import Store

#: Options of what is read in place (`gzarr.hierarchy.keywords.ElsewhereKeywords`).
ELSEWHERE = frozenset(("virtual_containers", "branch", "tag", "snapshot"))
ICECHUNK = "icechunk"
#: How the names of files of other formats end, of which a URL may name one: asking the server takes a round trip.
_FILE = re.compile(r"\.(?:nc|nc4|cdf|h5|hdf5|he5|tif|tiff|svs|npy|fits|json|parq|parquet)(?=/|$)", re.IGNORECASE)
#: A folder of references in Parquet.
_REFERENCES = re.compile(r".*?\.parq(?:uet)?(?=/|$)", re.IGNORECASE)
_HOMES = {"commits": "icechunk", "open_icechunk": "icechunk", "open_dataset": "opening", "open_virtual": "opening"}
_HOMES["open_levels"] = _HOMES["open_transposed"] = "ome_levels"


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function that opens what is read in place."""
    return getattr(import_module(f"gzarr.virtual.{_HOMES[name]}"), name)(*args, **kwargs)


def open_named(path: str, options: Mapping[str, Any], places: Any, *, is_url: bool) -> tuple[Store, str] | None:
    """The store over a file of another format that a path or URL names, and the path in it; None if it is none.

    options: of the server of a URL. places: that references may lead to. Raises: StoreError, CopyError.
    """
    at = _FILE.search(path) if is_url else None
    file = _file_in(path) if not is_url else path[: at.end()] if at else None
    store = None if file is None else call("open_virtual", file, options, places)
    return None if file is None or store is None else (store, path[len(file) :].strip("/"))


def without_places(path: str, options: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
    """The options of a place without ``virtual_containers``, and these. Raises: StoreError for a version."""
    rest = {name: value for name, value in options.items() if name != "virtual_containers"}
    if not ELSEWHERE.isdisjoint(rest):
        raise StoreError(f"{path!r}: branch, tag and snapshot are of Icechunk's repositories: '{ICECHUNK}://{path}'")
    return rest, options.get("virtual_containers")


def open_object(value: Any, options: Mapping[str, Any], *, read_only: bool) -> Store | None:
    """The store over a repository or session of Icechunk, or a dataset of VirtualiZarr; None for others."""
    found: Store | None = None
    if is_instance(value, "icechunk", "Repository", "Session"):
        found = call("open_icechunk", value, read_only=read_only, **options)[0]
    elif is_instance(value, "xarray", "Dataset"):
        found = call("open_dataset", value, **options)
    return found


def is_repository(place: Any) -> bool:
    """Whether a place is a repository of Icechunk, or the URL of one, which is changed by committing versions."""
    is_url = isinstance(place, (str, os.PathLike)) and os.fspath(place).startswith(f"{ICECHUNK}://")
    return is_url or is_instance(place, "icechunk", "Repository")


def is_instance(value: object, module: str, *names: str) -> bool:
    """Whether a value is an instance of some classes of a library, if that is imported."""
    library = sys.modules.get(module)
    return library is not None and isinstance(value, tuple(getattr(library, name, ()) for name in names))


def _file_in(path: str) -> str | None:
    """The beginning of a path that names a file, if one does: of a format that is read in place, perhaps."""
    folder = _REFERENCES.match(path) if ".parq" in path.lower() else None
    if folder and os.path.isfile(f"{folder[0]}/.zmetadata"):
        return folder[0]
    while path and not os.path.isdir(path):
        if os.path.isfile(path):
            return path
        path = path.rpartition("/")[0]
    return None
