"""Rules that all stores share: allowed keys, what a range means, values to be stored, how stores are pickled."""

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from gzarr.errors import StoreError
from gzarr.storage.capabilities import Buffer, host_view

#: Documents of Zarr v2 and v3 that describe a node; most are a few kilobytes and change with every attribute.
DOCUMENTS = frozenset({"zarr.json", ".zarray", ".zgroup", ".zattrs", ".zmetadata"})

#: Names that start like this are unfinished files of a `LocalStore`: never listed, never accepted as a key.
TEMPORARY_PREFIX = ".__gzarr_tmp_"

#: Of bytes; libdeflate takes a twentieth of the time.
crc32: Callable[[Any], int] = import_module("deflate" if find_spec("deflate") else "zlib").crc32

# An empty, "." or ".." segment (a leading or trailing slash makes an empty one), a NUL, or a temporary name. On Windows
# a backslash separates directories and a colon names a drive or a stream, so both could leave the root.
_BAD_KEY = re.compile(
    r"(?:^|/)(?:\.{0,2}(?:/|$)|" + re.escape(TEMPORARY_PREFIX) + r")|\0" + (r"|[\\:]" if os.name == "nt" else "")
)


#: What `is_allowed` asks, in words.
KEY_RULE = (
    "expected names joined by single slashes, none of them empty, '.' or '..'"
    f" or beginning with {TEMPORARY_PREFIX!r}, and no NUL"
)

# The second form has a slash in its password, which is to be written as %2F: no port follows the first colon.
_USER = re.compile(r"(?<=://)(?:[^/?#\s]*|[^/?#\s:\[]*:(?!:|\d*(?:[/?#\s'\"]|$))[^\s'\"]*)@")
_VALUE = re.compile(r"([?&][^=&#\s'\"]*=)[^&#\s'\"]+")


def without_secrets(text: str) -> str:
    """A URL, or text with URLs in it, as messages may show it: without users, passwords and values of parameters."""
    return _VALUE.sub(r"\1...", _USER.sub("", text))


def is_allowed(key: str) -> bool:
    """Whether a key, or a name in it, is a plain relative path. Nothing is read, written or looked for elsewhere."""
    # Most keys pass this, which takes a fifth of the time of the regular expression.
    if os.name != "nt" and key and not ("//" in key or "/." in key or "\0" in key or key[0] in "./" or key[-1] == "/"):
        return True
    return not _BAD_KEY.search(key)


def check_key(key: str) -> None:
    """Refuse a key that is not a plain relative path.

    Raises: StoreError naming the key; TypeError if it is not a string.
    """
    if not isinstance(key, str):
        raise TypeError(f"a store key must be a str; got {key!r} of type {type(key).__name__}")
    if not is_allowed(key):
        raise StoreError(f"key {key!r} is not allowed: {KEY_RULE}; rename the node or chunk")


def check_keys(keys: Sequence[str]) -> None:
    """Refuse several keys if one of them is not a plain relative path: as `check_key`, in a tenth of the time."""
    try:
        allowed = is_allowed("/".join(keys))
    except TypeError:
        allowed = False
    if not allowed:
        for key in keys:
            check_key(key)


def check_path(path: str) -> None:
    """Refuse a path (a key, or ``""`` for the root) that is not plain and relative. Raises: StoreError, TypeError."""
    if path:
        check_key(path)


def check_move(source: str, dest: str) -> None:
    """Refuse to move the root, onto the root, or a path into itself. Raises: StoreError, TypeError."""
    if not source or not dest:
        raise StoreError(f"cannot move {source!r} to {dest!r}: the root of a store stays where it is; name a path")
    check_key(source)
    check_key(dest)
    if f"{dest}/".startswith(f"{source}/"):
        raise StoreError(f"cannot move {source!r} to {dest!r}: the destination lies inside the source")


def byte_range(start: int | None, length: int | None, nbytes: int) -> tuple[int, int]:
    """Say which bytes of an object of `nbytes` bytes a `Request` means.

    The range is cut to the object as a Python slice would be, so a suffix longer than the object is all of it.

    Returns: (begin, end) with ``0 <= begin <= end <= nbytes``.
    """
    if start is None:
        return 0, nbytes
    begin = start if start >= 0 else nbytes + start
    end = nbytes if length is None else min(begin + length, nbytes)
    begin = min(max(begin, 0), nbytes)
    return begin, max(begin, end)


def cut(value: bytes | memoryview, start: int | None, length: int | None) -> bytes | memoryview:
    """The part of a whole object that a `Request` means; a view, not a copy."""
    if start is None:
        return value
    begin, end = byte_range(start, length, len(value))
    return memoryview(value)[begin:end]


def cut_suffix(suffix: Buffer, start: int, length: int | None) -> Buffer:
    """The part that a `Request` with a negative start means of the last ``-start`` bytes of an object, or of all."""
    if length is None:
        return suffix
    return cut(host_view(suffix), 0, max(length - (-start - len(suffix)), 0))


def byte_view(key: str, value: Any) -> bytes | memoryview:
    """View a value to be stored as one-dimensional bytes, without a copy if possible.

    Raises: TypeError naming the key if the value does not hold bytes (an int, a str, a list, a device array).
    """
    if type(value) is bytes:
        return value
    try:
        view = memoryview(value)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"key {key!r}: expected bytes, bytearray, memoryview or a uint8 NumPy array; got {type(value).__name__}"
        ) from error
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
    return view.tobytes()


def as_bytes(key: str, value: Any) -> bytes:
    """Make immutable bytes of a value to be stored; `bytes` are not copied. Raises: TypeError naming the key."""
    if type(value) is bytes:
        return value
    if isinstance(value, np.ndarray):
        # Also what a buffer cannot describe, such as datetime64, which zarr 2 may have left in a user's dict.
        return value.tobytes()
    return bytes(byte_view(key, value))


def refuse_normalizing(store: str, normalize_keys: bool) -> None:
    """Refuse the argument `normalize_keys` of zarr 2. store: the name of its class. Raises: StoreError."""
    if normalize_keys:
        raise StoreError(f"{store}: normalize_keys=True is not supported: two keys must not become one; leave it out")


def under(keys: Iterable[str], path: str) -> Iterator[str]:
    """The keys that lie under a path."""
    prefix = f"{path}/" if path else ""
    return (key for key in keys if key.startswith(prefix))


def children(keys: Iterable[str], path: str) -> tuple[list[str], list[str]]:
    """Names directly under a path, among some keys of a store that has no directories.

    Returns: (objects, sub-paths), both sorted. A key that is not allowed leads to no sub-path: the rest of it counts as
    the name of an object.
    """
    nskip = len(path) + 1 if path else 0
    objects: set[str] = set()
    paths: set[str] = set()
    for key in under(keys, path):
        rest = key[nskip:]
        name, slash, _ = rest.partition("/")
        if slash and (name in paths or is_allowed(name)):
            paths.add(name)
        else:
            objects.add(rest)
    return sorted(objects), sorted(paths)


def listing(objects: Iterable[str], paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """What `children` returns, of names that a library or a server has listed.

    A sub-path that is not allowed becomes an object whose name ends with a slash.
    """
    allowed = set(filter(is_allowed, paths))
    return sorted({*objects, *(f"{name}/" for name in set(paths) - allowed)}), sorted(allowed)


def pickled(store: Any, owner: type[Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Say how a store is pickled: for ``__reduce__``.

    The copy has the same class, and all attributes that are not bound to this process. A subclass takes arguments that
    nobody knows here, so the copy is not made by calling it.

    Parameters
    ----------
    store : Store
        The store.
    owner : type
        The class of gzarr whose ``__init__`` makes locks and connections anew.
    *args, **kwargs
        Its arguments.
    """
    carried = {name: value for name, value in vars(store).items() if name not in owner._process_bound}  # noqa: SLF001
    return _unpickled, (type(store), owner, args, kwargs, carried)


def _unpickled(kind: Any, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any], carried: dict[str, Any]) -> Any:
    store = kind.__new__(kind)
    owner.__init__(store, *args, **kwargs)
    vars(store).update(carried)
    return store


#: Pauses before another try to replace a file: on Windows, that fails while somebody reads it.
_PAUSES_S = tuple(0.001 * 2**n for n in range(10)) if sys.platform == "win32" else ()


def replace_file(temporary: str, path: str) -> None:
    """Put a file in the place of another: on Windows, as soon as nobody has that one open, within a second."""
    for pause in _PAUSES_S:
        try:
            os.replace(temporary, path)  # noqa: PTH105 - as everywhere in stores
        except PermissionError:
            time.sleep(pause)
        else:
            return
    os.replace(temporary, path)  # noqa: PTH105
