"""Reads files straight into device memory with KvikIO, which uses GPUDirect Storage where that is active.

All reads of a batch (of as many files as may be open) are submitted at once and then awaited; neighbouring chunks of a
shard are one read. Batches take the `HostReader` if the host must read the headers of chunks (more than a few bytes
that are copied back), if few bytes are wanted of each file, or if a file changes while its batch is read. What is not
read by tables passes through the host.

cuFile reads zeros from file systems that it does not know (tmpfs) without an error. So the beginning of the first file
of every file system is compared with what the host reads. A file system where they differ is read on the host from then
on, and `KvikioReader.note` says so.

Rules, which KvikIO does not enforce (26.10, found by experiment): a handle and a buffer must outlive every read that
was submitted, even if it failed. KvikIO's streams do not wait for others, so the buffer must be idle before a read.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.spec import CodecSpec
from gzarr.concurrency import Pool, run_in_threads
from gzarr.cpu.compiled.shards import LEFT, UNCHECKED, Shard
from gzarr.gpu.codecs.batch import Streams, spread_out
from gzarr.gpu.device.memory import OverLimitError
from gzarr.gpu.device.pipeline_slots import PipelineSlot
from gzarr.gpu.device.protocol import Device, Table
from gzarr.gpu.native.fetch import LEFT as LEFT_CHUNK
from gzarr.gpu.native.fetch import MISSING, Fetch, Wanted
from gzarr.gpu.pipeline.placement import DevicePlan
from gzarr.gpu.reading.host import HostReader, host_round_trip_of
from gzarr.indexing.selection import Indices
from gzarr.layout.chunk_layout import MISSING as NO_PLACE
from gzarr.storage.coalesce import MAX_GAP_NBYTES
from gzarr.storage.local_files import FileVersion

#: Bytes wanted of a file from which it pays to open it: opening and registering it with cuFile takes 1 ms, or 3 ms in
#: compatibility mode (measured by czarr's author on an H100), in which a drive reads 7 to 20 MB. On 16 threads, opening
#: files of 8 MiB takes some tenth of the time of reading them.
MIN_FILE_NBYTES = 8 << 20
#: Files that a batch has open at once, each with two descriptors, and threads that open them.
_OPEN_AT_ONCE, _N_THREADS = 64, 16
_pool = Pool()
#: Share of a pipeline slot for encoded chunks; the rest is for decoding them.
_MAX_SHARE = 0.5
#: Bytes of the first file of a file system that are compared: a page.
_COMPARED_NBYTES = 4096


class Ranges(NamedTuple):
    """Ranges of files.

    Attributes
    ----------
    versions : dict
        The files' versions, by their paths.
    files : Table
        Position in it of the file of each range.
    starts, sizes : Table
        First byte and number of bytes of each range.
    """

    versions: dict[str, tuple[int, ...]]
    files: Table
    starts: Table
    sizes: Table


class KvikioReader(HostReader):
    """Reads into device memory.

    Parameters
    ----------
    open_file : callable
        Opens a file by its path for reading into device memory, as `kvikio.CuFile`.
    min_file_nbytes : int
        Bytes wanted of a file, on average, from which files are opened.

    Attributes
    ----------
    failure
        Why the last batch that should have gone straight to the device did not; None if all did.
    """

    name = "kvikio"

    def __init__(self, open_file: Callable[[str], Any], min_file_nbytes: int = MIN_FILE_NBYTES) -> None:
        self._open_file = open_file
        self.failure: str | None = None
        self._min_file_nbytes = min_file_nbytes
        self._is_sound: dict[int, bool] = {}  # by the numbers of file systems (st_dev)

    @property
    def note(self) -> str:
        """What has turned out while files were read, as a phrase; "" if nothing has."""
        bad = [f"{os.major(n)}:{os.minor(n)}" for n, sound in self._is_sound.copy().items() if not sound]
        if not bad:
            return ""
        return f"files of device {', '.join(bad)} are read on the host, as KvikIO read other bytes than the host"

    def host_round_trip(self, specs: Sequence[CodecSpec]) -> str | None:
        """Why chunks pass through host memory first; None if they do not."""
        return host_round_trip_of(specs)

    def fetch(
        self, pipeline_slot: PipelineSlot, source: Fetch, wanted: Wanted, plan: DevicePlan, nbytes: int
    ) -> Streams:
        """Read chunks into device memory, or into pinned memory if that is faster."""
        batch = self._fetch(pipeline_slot, source, wanted, plan.phase, nbytes) if plan.skips_host else None
        return super().fetch(pipeline_slot, source, wanted, plan, nbytes) if batch is None else batch

    def _fetch(
        self, pipeline_slot: PipelineSlot, source: Fetch, wanted: Wanted, phase: int, nbytes: int
    ) -> Streams | None:
        """Read chunks of files into device memory; None if the host reader should read them.

        Whatever goes wrong, it does too, or finds and names the reason.
        """
        paths = list(map(source.file, wanted.keys(source)))
        if nbytes < self._min_file_nbytes * len(paths):
            return None
        located = _locate(paths, wanted)
        if located is None:
            return None
        versions, files, starts, sizes = located
        rows = np.flatnonzero(sizes >= 0)
        firsts: dict[str, int] = {}  # chunks of a file of another format may be apart
        files = np.array([firsts.setdefault(path, number) for number, path in enumerate(paths)])[files]
        used, numbers = np.unique(files[rows], return_inverse=True)
        here = {paths[i]: versions[i] for i in used.tolist()}
        if not rows.size or not all(self._is_sound.get(version[0], True) for version in here.values()):
            return None
        runs, run, inside = merged(Ranges(here, numbers, starts[rows], sizes[rows]))
        begins, total = spread_out(runs.sizes, phase)
        memory = self._read(pipeline_slot, runs, begins, total)
        if memory is None:
            return None
        offsets = np.full(sizes.size, -1)
        offsets[rows] = begins[run] + inside
        return Streams(None, memory, offsets, sizes)

    def _read(self, pipeline_slot: PipelineSlot, runs: Ranges, offsets: Table, total: int) -> Array | None:
        """Read ranges to positions in a new staging buffer; None if that failed. total: bytes of the buffer."""
        limit = pipeline_slot.memory.limit
        if limit is not None and total > limit * _MAX_SHARE:
            self.failure = f"{total} encoded bytes of a batch take more than half of the {limit} bytes that it may have"
            return None
        try:
            memory = pipeline_slot.device.empty(total)
        except OverLimitError:
            pipeline_slot.memory.compact()  # earlier reads have cut it into pieces
            try:
                memory = pipeline_slot.device.empty(total)
            except OverLimitError as error:  # others have taken the memory; the host uploads what fits
                self.failure = str(error)
                return None
        # A kernel of the previous batch, or the filling of new memory, may still run on the pipeline slot's stream.
        pipeline_slot.device.synchronize()
        try:
            self._read_files(pipeline_slot.device, memory, runs, offsets)
        except (OSError, RuntimeError) as error:
            self.failure = str(error)
            pipeline_slot.memory.rewind()
            return None
        return memory

    def _read_files(self, device: Device, memory: Any, runs: Ranges, offsets: Table) -> None:
        """Read ranges of files, which are sorted, to positions in device memory; a limited number of files at once."""
        size = _OPEN_AT_ONCE
        versions = list(runs.versions.items())
        cuts = np.searchsorted(runs.files, np.arange(0, len(versions) + size, size)).tolist()
        pieces = list(zip(*(column.tolist() for column in (*runs[1:], offsets)), strict=True))
        for first, (begin, end) in zip(range(0, len(versions), size), pairwise(cuts), strict=False):
            some = dict(versions[first : first + size])
            with self._opened(some) as opened:
                self._compare(device, memory, opened, some)
                files = list(opened.values())
                _read_at_once(memory, ((files[number - first], *piece) for number, *piece in pieces[begin:end]))

    @contextmanager
    def _opened(self, versions: dict[str, tuple[int, ...]]) -> Iterator[dict[str, Any]]:
        """Open files, by path and version, for a while. Raises: OSError, also if one has another version by now."""
        files: dict[str, Any] = {}

        def open_one(path: str) -> None:
            files[path] = self._open_file(path)
            if file_version(os.fstat(files[path].fileno())) != versions[path]:
                raise OSError(f"{path} was replaced while it was opened")

        try:
            run_in_threads(open_one, versions, min(len(versions), _N_THREADS), _pool)
            yield {path: files[path] for path in versions}
        finally:
            for file in files.values():
                file.close()

    def _compare(
        self, device: Device, memory: Any, files: dict[str, Any], versions: dict[str, tuple[int, ...]]
    ) -> None:
        """Compare what KvikIO and the host read of a file of each file system of which nothing is known.

        Raises: OSError if they differ, or if only zeros could be compared.
        """
        unknown = set()
        for path, version in versions.items():
            number, nbytes = version[0], min(version[2], _COMPARED_NBYTES, int(memory.nbytes))
            if number not in self._is_sound:
                expected = os.pread(files[path].fileno(), nbytes, 0)
                if not any(expected):  # zeros are what a wrong read gives, too
                    unknown.add(number)
                    continue
                _read_at_once(memory, [(files[path], 0, nbytes, 0)])
                self._is_sound[number] = device.download(memory[:nbytes]).tobytes() == expected
            if not self._is_sound[number]:  # as this batch has found, or another one meanwhile
                raise OSError(f"{path}: KvikIO read other bytes than the host: {self.note}")
        if not all(self._is_sound.get(number) for number in unknown):
            raise OSError("files begin with zeros, which do not show whether KvikIO reads what is in them")


def _locate(paths: Sequence[str], wanted: Wanted) -> tuple[list[tuple[int, ...]], Indices, Indices, Indices] | None:
    """Find chunks in files, without reading them; None if anything is odd.

    Returns: the versions of the files, none of a missing one; and for every chunk the number of its file, its first
    byte and its size, `MISSING` for a missing one, `LEFT_CHUNK` for one that the reference path has to read.
    """
    try:
        versions = list(map(_version, paths))
    except OSError:
        return None
    known, numbers = np.array([version[2] if version else MISSING for version in versions]), np.arange(len(paths))
    if wanted.shards is None:
        return versions, numbers, np.zeros_like(numbers), known
    rows, bounds, shards = wanted.shards
    if not all(map(_is_same, shards, versions)):
        return None
    files, (starts, sizes) = numbers.repeat(np.diff(bounds)), rows.astype(np.int64).T
    left = np.array([shard.state == LEFT for shard in shards])[files]
    inside = (starts >= 0) & (sizes >= 0) & (sizes <= known[files] - starts)
    if not (inside | left | (rows[:, 0] == NO_PLACE)).all():
        return None
    return versions, files, starts, np.where(left, LEFT_CHUNK, sizes)


def file_version(info: os.stat_result) -> tuple[int, ...]:
    """The version of a file: device, inode, size, and time of the last change."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns


def _version(path: str) -> tuple[int, ...]:
    """The version of a file; none if it is missing. Raises: OSError if it is no file that can be read."""
    try:
        info = os.stat(path)  # noqa: PTH116 - pathlib costs more than the system call itself
    except (FileNotFoundError, NotADirectoryError):
        return ()
    if not stat.S_ISREG(info.st_mode):
        raise OSError(f"{path} is no regular file")
    return file_version(info)


def _is_same(shard: Shard, version: tuple[int, ...]) -> bool:
    """Whether a file is as the places of its chunks say."""
    if isinstance(shard.token, FileVersion):
        return version[1:] == shard.token[:3]
    return shard.state == LEFT or bool(version) == (shard.state == UNCHECKED)


def merged(ranges: Ranges) -> tuple[Ranges, Table, Table]:
    """Merge ranges that are near each other in a file.

    Returns: the ranges to read, sorted by file and start; the one that each given range is in, and where.
    """
    files, starts, sizes = ranges.files, ranges.starts, ranges.sizes
    order = np.lexsort((starts, files))
    files, starts, ends = files[order], starts[order], (starts + sizes)[order]
    # Ends that only grow, from file to file too: ranges may lie in each other.
    file_nbytes = int(ends.max(initial=0)) + MAX_GAP_NBYTES + 1
    reach = np.maximum.accumulate(ends + files * file_nbytes)
    is_first = np.ones(files.size, np.bool_)
    is_first[1:] = starts[1:] + files[1:] * file_nbytes - reach[:-1] > MAX_GAP_NBYTES
    firsts = np.flatnonzero(is_first)
    lasts = np.append(firsts[1:], files.size) - 1 if firsts.size else firsts
    begins = starts[firsts]
    lengths = reach[lasts] - files[firsts] * file_nbytes - begins
    number = np.cumsum(is_first) - 1
    run, inside = np.empty_like(number), np.empty_like(starts)
    run[order], inside[order] = number, starts - begins[number]
    return Ranges(ranges.versions, files[firsts], begins, lengths), run, inside


def _read_at_once(memory: Any, reads: Iterable[tuple[Any, int, int, int]]) -> None:
    """Begin all reads, each (file, first byte, number of bytes, target), then wait for all of them.

    Raises: the error of the first read that failed, after all have ended.
    """
    under_way: list[tuple[Any, Any, int]] = []
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
