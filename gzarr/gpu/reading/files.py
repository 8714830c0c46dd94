"""Locates chunks in local files, for readers that bypass the store."""
# Plain os calls, as in the local store: pathlib costs more than the system calls themselves on small files.
# ruff: noqa: PTH116

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import NamedTuple

from gzarr.layout.chunk_layout import Located
from gzarr.storage.base import Request, Store


class Span(NamedTuple):
    """A chunk in a file.

    Attributes
    ----------
    path : str
        Of the file.
    start : int
        First byte.
    nbytes : int
        Number of bytes.
    version : tuple[int, ...]
        Identifies the file's version.
    """

    path: str
    start: int
    nbytes: int
    version: tuple[int, ...]


def locate_spans(store: Store, wanted: Sequence[Located]) -> list[Span | None] | None:
    """Where in files the wanted chunks are, with None for missing chunks; None if the store must be asked instead.

    The store is asked if it has no files, if bytes are already here, or if anything is wrong, so that it raises the
    right error.
    """
    files = store.files
    if files is None:
        return None
    spans: list[Span | None] = []
    known: dict[str, tuple[str, tuple[int, ...] | None]] = {}
    for item in wanted:
        if item is None:
            spans.append(None)
            continue
        if not isinstance(item, Request):
            return None
        file = known.get(item.key)
        if file is None:
            path = files.path(item.key)
            if path is None:
                return None
            try:
                info = os.stat(path)
                if not stat.S_ISREG(info.st_mode):
                    return None
                file = known[item.key] = (path, file_version(info))
            except (FileNotFoundError, NotADirectoryError):
                file = known[item.key] = (path, None)
            except OSError:
                return None
        span = _span_of(item, *file)
        if span is None and (file[1] is not None or item.start is not None):
            return None
        spans.append(span)
    return spans


def file_version(info: os.stat_result) -> tuple[int, ...]:
    """The version of a file: device, inode, size, and time of the last change."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def _span_of(request: Request, path: str, version: tuple[int, ...] | None) -> Span | None:
    """The range of a request; None if the file is missing or too short."""
    if version is None:
        return None
    size = version[2]
    if request.start is None:
        return Span(path, 0, size, version)
    if request.start < 0 or request.length is None or request.length < 0 or request.start + request.length > size:
        return None
    return Span(path, request.start, request.length, version)
