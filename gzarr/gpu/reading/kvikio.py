"""Reads files straight into device memory with KvikIO, which uses GPUDirect Storage where that is active.

All reads of a wave (of as many files as may be open) are submitted at once and then awaited; neighbouring chunks of a
shard are one read. File handles stay open for the next waves. Chunks take the `HostReader` if the host must read their
headers (more than a few bytes that are copied back), if the store does not have them in files, or if a file changes
while its wave is read.

Rules, which KvikIO does not enforce (26.10, found by experiment): a handle and a buffer must outlive every read that
was submitted, even if it failed. KvikIO's streams do not wait for others, so the buffer must be idle before a read.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from gzarr.codecs.spec import CodecSpec
from gzarr.concurrency import new_lock
from gzarr.cpu.compiled.fetch import Fetch, Runs
from gzarr.cpu.compiled.tables import Windows
from gzarr.gpu.device.lanes import Lane
from gzarr.gpu.device.memory import OverLimitError
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.reading.files import Span, file_version, locate_spans
from gzarr.gpu.reading.host import Batch, HostReader, Item, Slab, detour_of, spread_out
from gzarr.layout.chunk_layout import Located
from gzarr.storage.base import Request, Store
from gzarr.storage.coalesce import coalesce

#: Handles in the cache, and files of a wave that are open at once. KvikIO opens every file twice, three waves may be
#: read at once, and systems allow 1,024 descriptors by default.
MAX_FILES = 192
MAX_FILES_AT_ONCE = 64
#: Share of a lane for encoded chunks; the rest is for decoding them.
_MAX_SHARE = 0.5


class Future(Protocol):
    """A read under way."""

    def get(self) -> int:
        """Wait for it. Returns: bytes read. Raises: RuntimeError if it failed."""
        ...


class OpenFile(Protocol):
    """A file open for reading into device memory, as `kvikio.CuFile`."""

    def fileno(self) -> int:
        """Its descriptor."""
        ...

    def pread(self, buf: Any, size: int | None = None, file_offset: int = 0) -> Future:
        """Begin a read into a buffer."""
        ...

    def close(self) -> None:
        """Close it."""
        ...


class KvikioReader:
    """Reads into device memory.

    Parameters
    ----------
    open_file : callable
        Opens a file by its path.

    Attributes
    ----------
    files
        Cache of open files.
    failure
        Why the last wave that should have gone straight to the device did not; None if all did.
    """

    name = "kvikio"

    def __init__(self, open_file: Callable[[str], OpenFile]) -> None:
        self.files = FileCache(open_file)
        self.failure: str | None = None
        self._host = HostReader()

    def detour(self, specs: Sequence[CodecSpec]) -> str | None:
        """Why chunks pass through host memory first; None if they do not."""
        return detour_of(specs)

    def read(self, lane: Lane, store: Store, wanted: Sequence[Located], plan: DevicePlan) -> list[Any]:
        """Read located chunks into device memory. Raises: CodecError(index), StoreError."""
        spans = locate_spans(store, wanted) if plan.skips_host else None
        if spans is not None:
            items = self._read_spans(lane, spans, plan.phase)
            if items is not None:
                return items
        return self._host.read(lane, store, wanted, plan)

    def fetch(self, lane: Lane, source: Fetch, wanted: tuple[Windows, Runs], plan: DevicePlan, nbytes: int) -> Batch:
        """Read the chunks of some runs into pinned memory."""
        return self._host.fetch(lane, source, wanted, plan, nbytes)

    def _read_spans(self, lane: Lane, spans: Sequence[Span | None], phase: int) -> list[Any] | None:
        """Read chunks of files; None if that fails, in which case the host reader finds and names the reason."""
        here = [span for span in spans if span is not None]
        reads, parts = _plan(here)
        offsets, total = spread_out(np.array([read.length for read in reads], np.int64), phase)
        limit = lane.memory.limit
        if limit is not None and total > limit * _MAX_SHARE:
            self.failure = f"{total} encoded bytes of a wave take more than half of the {limit} bytes that it may have"
            return None
        try:
            memory = lane.device.empty(total)
        except OverLimitError:
            lane.memory.compact()  # earlier reads have cut it into pieces
            memory = lane.device.empty(total)
        # A kernel of the previous wave, or the filling of new memory, may still run on the lane's stream.
        lane.device.synchronize()
        try:
            self._read_files(memory, reads, offsets.tolist(), {span.path: span.version for span in here})
        except (OSError, RuntimeError) as error:
            self.failure = str(error)
            lane.memory.rewind()
            return None
        slab = Slab(lane.device, None, memory)
        places = iter(parts)
        items: list[Any] = []
        for span in spans:
            if span is None:
                items.append(None)
                continue
            number, inside = next(places)
            items.append(Item(slab, int(offsets[number]) + inside, span.nbytes))
        return items

    def _read_files(
        self, memory: Any, reads: Sequence[Any], offsets: Sequence[int], versions: dict[str, tuple[int, ...]]
    ) -> None:
        """Read ranges of files to positions in device memory, a limited number of files at once."""
        by_path: dict[str, list[tuple[int, int, int]]] = {}
        for (path, start, nbytes), at in zip(reads, offsets, strict=True):
            by_path.setdefault(path, []).append((start, nbytes, at))
        paths = list(by_path)
        for first in range(0, len(paths), MAX_FILES_AT_ONCE):
            some = paths[first : first + MAX_FILES_AT_ONCE]
            with self.files.open({path: versions[path] for path in some}) as files:
                _read_at_once(memory, ((files[path], *piece) for path in some for piece in by_path[path]))


class FileCache:
    """A cache of files that are open for reading, least recently used first out. Files in use are never closed.

    If a file was replaced, its version differs from that of the open one, which is not used again.
    """

    def __init__(self, open_file: Callable[[str], OpenFile], max_files: int = MAX_FILES) -> None:
        self._open_file = open_file
        self._max_files = max_files
        self._lock = new_lock()
        self._cached: OrderedDict[str, _Handle] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cached)

    @contextmanager
    def open(self, versions: dict[str, tuple[int, ...]]) -> Iterator[dict[str, OpenFile]]:
        """Open files, by path and version, for a while.

        Raises: OSError or RuntimeError if one cannot be opened or has another version by now.
        """
        held: dict[str, _Handle] = {}
        try:
            for path, version in versions.items():
                held[path] = self._hold(path, version)
            yield {path: handle.file for path, handle in held.items()}
        finally:
            self._let_go(held.values())

    def close(self) -> None:
        """Close all files; those in use are closed when their users are done."""
        with self._lock:
            handles = list(self._cached.values())
            self._cached.clear()
            idle = [handle for handle in handles if handle.retire()]
        for handle in idle:
            handle.file.close()

    def _hold(self, path: str, version: tuple[int, ...]) -> _Handle:
        with self._lock:
            cached = self._cached.get(path)
            if cached is not None and cached.version() == version:
                cached.users += 1
                self._cached.move_to_end(path)
                return cached
        made = _Handle(self._open_file(path))
        made.users = 1
        if made.version() != version:
            made.file.close()
            raise OSError(f"{path} was replaced while it was opened")
        with self._lock:
            old = self._cached.pop(path, None)
            self._cached[path] = made
            idle = old is not None and old.retire()
        if idle and old is not None:
            old.file.close()
        return made

    def _let_go(self, handles: Iterable[_Handle]) -> None:
        closing = []
        with self._lock:
            for handle in handles:
                handle.users -= 1
                if handle.retired and handle.users == 0:
                    closing.append(handle)
            while len(self._cached) > self._max_files:
                _, oldest = self._cached.popitem(last=False)
                if oldest.retire():
                    closing.append(oldest)
        for handle in closing:
            handle.file.close()


class _Handle:
    """An open file, and the number of waves that use it."""

    def __init__(self, file: OpenFile) -> None:
        self.file = file
        self.users = 0
        self.retired = False

    def version(self) -> tuple[int, ...]:
        """The version of the open file, even if its path now names another one."""
        return file_version(os.fstat(self.file.fileno()))

    def retire(self) -> bool:
        """Exclude it from further use. Returns: whether it is unused, so that the caller must close it."""
        self.retired = True
        return self.users == 0


def _plan(spans: Sequence[Span]) -> tuple[list[Any], list[tuple[int, int]]]:
    """Merge reads of chunks that are near each other in a file.

    Returns: requests, whose keys are paths, and for each span its request and its position in the request.
    """
    merged, parts = coalesce([Request(span.path, span.start, span.nbytes) for span in spans])
    return merged, [(number, 0 if part is None else part[0]) for number, part in parts]


def _read_at_once(memory: Any, reads: Iterable[tuple[OpenFile, int, int, int]]) -> None:
    """Begin all reads, each (file, first byte, number of bytes, target), then wait for all of them.

    Raises: the error of the first read that failed, after all have ended.
    """
    under_way: list[tuple[Future, Any, int]] = []
    errors: list[BaseException] = []
    try:
        for file, start, nbytes, at in reads:
            if nbytes:
                piece = memory[at : at + nbytes]
                under_way.append((file.pread(piece, nbytes, start), piece, nbytes))
    finally:
        while under_way:
            future, piece, nbytes = under_way[-1]
            try:
                done = future.get()
                if done != nbytes:
                    errors.append(OSError(f"expected {piece.nbytes} bytes, got {done}"))
            except BaseException as error:  # noqa: BLE001 - raised again below; an interrupt must not cut this short
                errors.append(error)
                if not isinstance(error, Exception):
                    continue  # the read was not awaited: once more
            under_way.pop()
    if errors:
        raise next((error for error in errors if not isinstance(error, Exception)), errors[0])
