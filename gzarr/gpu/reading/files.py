"""Locates chunks in local files, and reads them straight into their places in a slab, bypassing the store.

If anything is wrong (a file is too short, cannot be read, or changes meanwhile), the store is asked instead, which
raises the right error.
"""
# Plain os calls, as in the local store: pathlib costs more than the system calls themselves on small files.
# ruff: noqa: PTH116

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gzarr.concurrency import Pool, run_in_threads
from gzarr.cpu.threads import thread_count
from gzarr.layout.chunk_layout import Located
from gzarr.storage.base import Request, Store
from gzarr.storage.coalesce import MAX_GAP_NBYTES

#: Smaller reads run on one thread, as in the CPU backend: handing work over costs as much as copying this much.
_MIN_THREADED_NBYTES = 1 << 20
_pool = Pool()
#: Most pieces of one system call (Linux: UIO_MAXIOV).
_MAX_PIECES = 1024


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


class _FileReads(NamedTuple):
    """Pieces of one file in its order: (first byte, number of bytes, position in the slab)."""

    path: str
    version: tuple[int, ...]
    pieces: list[tuple[int, int, int]]


def _by_file(spans: Sequence[Span], offsets: Sequence[int]) -> list[_FileReads]:
    files: dict[str, _FileReads] = {}
    for span, offset in zip(spans, offsets, strict=True):
        reads = files.setdefault(span.path, _FileReads(span.path, span.version, []))
        reads.pieces.append((span.start, span.nbytes, offset))
    for reads in files.values():
        reads.pieces.sort()
    return list(files.values())


def read_spans(target: memoryview, spans: Sequence[Span], offsets: Sequence[int]) -> bool:
    """Read chunks of files to positions in a slab, on several threads if that pays.

    Returns: False if a file cannot be read, or has changed since it was located; the slab then holds anything.
    """
    if not hasattr(os, "preadv"):
        return False
    files = _by_file(spans, offsets)
    total = sum(span.nbytes for span in spans)
    n_threads = min(thread_count(), total // _MIN_THREADED_NBYTES)
    if n_threads < 2:
        return all(_read_file(target, reads) for reads in files)
    shares = list(_shares(files, total // n_threads))
    failed: list[str] = []

    def read(share: list[_FileReads]) -> None:
        failed.extend(reads.path for reads in share if failed or not _read_file(target, reads))

    run_in_threads(read, shares, min(n_threads, len(shares)), _pool)
    return not failed


def _shares(files: Sequence[_FileReads], nbytes: int) -> Iterator[list[_FileReads]]:
    """Split the pieces into shares of at least ``nbytes``. A file may be cut between its pieces."""
    share: list[_FileReads] = []
    size = 0
    for reads in files:
        pieces: list[tuple[int, int, int]] = []
        for piece in reads.pieces:
            pieces.append(piece)
            size += piece[1]
            if size >= nbytes:
                yield [*share, reads._replace(pieces=pieces)]
                share, size, pieces = [], 0, []
        if pieces:
            share.append(reads._replace(pieces=pieces))
    if share:
        yield share


def _read_file(target: memoryview, reads: _FileReads) -> bool:
    """Read the pieces of one file. Returns: whether this succeeded and the file has not changed."""
    try:
        fd = os.open(reads.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        if file_version(os.fstat(fd)) != reads.version:
            return False
        return all(_read_run(fd, target, start, pieces) for start, pieces in _runs(reads.pieces))
    except OSError:
        return False
    finally:
        os.close(fd)


def _runs(pieces: Sequence[tuple[int, int, int]]) -> list[tuple[int, list[tuple[int, int]]]]:
    """Pieces that are read together: (first byte, [(number of bytes, position in the slab, or -1 for a gap)])."""
    runs: list[tuple[int, list[tuple[int, int]]]] = []
    end = -1
    for start, nbytes, place in pieces:
        gap = start - end
        if not runs or not 0 <= gap <= MAX_GAP_NBYTES or len(runs[-1][1]) > _MAX_PIECES - 2:
            runs.append((start, []))
        elif gap:
            runs[-1][1].append((gap, -1))
        runs[-1][1].append((nbytes, place))
        end = start + nbytes
    return runs


def _read_run(fd: int, target: memoryview, start: int, pieces: Sequence[tuple[int, int]]) -> bool:
    gaps = memoryview(bytearray(max((nbytes for nbytes, place in pieces if place < 0), default=0)))
    views = [gaps[:nbytes] if place < 0 else target[place : place + nbytes] for nbytes, place in pieces]
    views = [view for view in views if view.nbytes]
    while views:
        done = os.preadv(fd, views, start)
        if done == 0:
            return False  # the file ends too early
        start += done
        while views and done >= views[0].nbytes:
            done -= views.pop(0).nbytes
        if done:
            views[0] = views[0][done:]
    return True
