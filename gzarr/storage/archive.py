"""One open ZIP archive: reading entries in place, adding and dropping them, and finishing the file.

A ZIP archive can only grow while it is open, and its directory is written last. The rules that follow from that:

- nothing is ever written over: new entries lie behind the old directory, and the new directory behind them, so the file
  holds the old archive, complete, until it holds the new one;
- the archive of a process that died, or whose disk was full, is read by its last complete directory: all that was
  stored before the last `Archive.commit` (`ZipStore.flush` or ``close``) is there, and nothing of what came later;
- metadata documents (small, rewritten often) wait in memory and are written with the directory;
- an object that is overwritten or deleted leaves its bytes behind but is dropped from the directory, so an archive
  never lists a key twice (copying the archive leaves these bytes out);
- one store at a time has an archive open for writing, which a lock on the file ensures; a child that was forked
  meanwhile may read, and writes nothing.

Stored (uncompressed) entries are read in place, range by range.

`zipfile` makes headers and directories, compresses and decompresses. It does not write the file, as it puts new entries
over the old directory (a kill then loses the archive), lists entries whose writing has failed, and drops none; nor does
it read it, as its lock lets re-entrant code wait for ever, and reading a range means reading all that is before it.
"""

import io
import os
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from typing import IO

from gzarr.concurrency import Lock, new_lock
from gzarr.errors import StoreError
from gzarr.storage import zip_format
from gzarr.storage.capabilities import Buffer
from gzarr.storage.lock_kinds import fcntl
from gzarr.storage.locks import entering
from gzarr.storage.rules import byte_range, crc32, cut

#: Headers are joined with data of so many bytes, so that one call writes both.
_JOINED_NBYTES = 1 << 16


class ArchiveEntry:
    """An entry of the archive; a new object for each version of a key."""

    __slots__ = ("data_offset", "info")

    def __init__(self, info: zipfile.ZipInfo, data_offset: int | None = None) -> None:
        self.info = info
        self.data_offset = data_offset


class Archive:
    """The open archive: apart from its store, so that it can outlive a forgotten one and be finished."""

    def __init__(
        self,
        path: str | None,
        file: IO[bytes],
        name: str,
        mode: zip_format.ZipMode,
        compression: int,
        allow_zip64: bool,
    ) -> None:
        directory = zip_format.open_archive(file, mode, name, compression)
        self.path, self.file, self.name = path, file, name
        self.compression, self._allow_zip64 = compression, allow_zip64
        self.writable = mode != "r"
        self._lock = new_lock()
        self._pid = os.getpid()
        self.closed = False
        self.documents: dict[str, bytes] = {}
        self.entries: dict[str, ArchiveEntry] = {}
        # Other entries, such as directories, stay in the archive although they are no objects.
        self._others: list[zipfile.ZipInfo] = []
        for info in directory.infos:
            if info.filename.endswith("/"):
                self._others.append(info)
            else:
                self.drop(info.filename)
                self.entries[info.filename] = ArchiveEntry(info)
        self._comment = directory.comment
        self._start_dir = directory.start
        #: Where the next entry or directory is written.
        self._end = directory.end
        #: Whether the directory must be written; that of a new archive must.
        self._changed = self.writable and directory is zip_format.EMPTY
        self._shared_position = path is None or not hasattr(os, "pread")

    @property
    def turn(self) -> Lock:
        """A lock for changes, one at a time. Raises: StoreError for re-entrant code."""
        return entering(self._lock, f"store {self.name}")

    def find(self, key: str) -> bytes | ArchiveEntry | None:
        """A waiting document or an entry, either of which is a new object with each version; None if there is none."""
        document = self.documents.get(key)
        return self.entries.get(key) if document is None else document

    # -- reading -------------------------------------------------------------------------------------------------

    def _read_at(self, nbytes: int, offset: int) -> bytes:
        """Read bytes of the file. A file object of the user has one position, which threads must share."""
        if not self._shared_position:
            data = os.pread(self.file.fileno(), nbytes, offset)
            while len(data) < nbytes and (more := os.pread(self.file.fileno(), nbytes - len(data), offset + len(data))):
                data += more
            return data
        with self.turn:
            self.file.seek(offset)
            return self.file.read(nbytes)

    def read(self, key: str, entry: ArchiveEntry, start: int | None, length: int | None) -> Buffer:
        """Read the range of a request from an entry. Raises: StoreError naming the key if the entry is damaged."""
        info = entry.info
        try:
            if info.flag_bits & zip_format.ENCRYPTED:
                raise zipfile.BadZipFile("it is encrypted, which is not supported")
            if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
                raise zipfile.BadZipFile(f"its sizes disagree: {info.compress_size} and {info.file_size} bytes")
            if start is None or info.compress_type != zipfile.ZIP_STORED:
                return cut(self._read_whole(entry), start, length)
            begin, end = byte_range(start, length, info.file_size)
            return self._read_raw(entry, begin, end - begin)
        except zip_format.DAMAGE as error:
            raise StoreError(f"store {self.name}, key {key!r}: cannot read the entry: {error}") from error

    def _read_raw(self, entry: ArchiveEntry, begin: int, nbytes: int) -> bytes:
        if entry.data_offset is None:
            offset = zip_format.data_offset(self._read_at, entry.info)
            if offset + entry.info.compress_size > self._start_dir:
                raise zipfile.BadZipFile(f"its {entry.info.compress_size} bytes reach past the end of the entries")
            entry.data_offset = offset
        data = self._read_at(nbytes, entry.data_offset + begin)
        if len(data) < nbytes:
            raise zipfile.BadZipFile(f"the archive ends early: expected {nbytes} bytes, got {len(data)}")
        return data

    def _read_whole(self, entry: ArchiveEntry) -> bytes:
        info = entry.info
        raw = self._read_raw(entry, 0, info.compress_size)
        if info.compress_type == zipfile.ZIP_STORED:  # in 6 us less than by ZipExtFile
            if crc32(raw) != info.CRC:
                raise zipfile.BadZipFile(f"Bad CRC-32 for file {info.filename!r}")
            return raw
        with zipfile.ZipExtFile(io.BytesIO(raw), "r", info) as decompressed:  # which compares the checksum
            data = decompressed.read()
        if len(data) != info.file_size:
            raise zipfile.BadZipFile(f"it has {len(data)} of {info.file_size} bytes")
        return data

    # -- writing -------------------------------------------------------------------------------------------------

    def check_owner(self) -> None:
        """Raise StoreError in a child that was forked from the process that has the archive open."""
        if self._pid != os.getpid():
            raise StoreError(
                f"store {self.name} was opened for writing before this process was forked, and only the parent may"
                " write to it; write to a directory, or merge the results in the parent"
            )

    def append(self, key: str, data: bytes | memoryview) -> None:
        """Write an entry, in the place of an older one, in the caller's turn."""
        info, header, compressed = zip_format.encode_entry(key, data, self.compression)
        self._check_limits(info)
        joined = len(compressed) <= _JOINED_NBYTES
        self._changed = True
        offset = self._write_behind((header + bytes(compressed),) if joined else (header, compressed))
        info.header_offset = offset
        self.entries[key] = ArchiveEntry(info, offset + len(header))

    def _check_limits(self, info: zipfile.ZipInfo) -> None:
        if not self._allow_zip64 and (
            len(self.entries) + len(self._others) >= zipfile.ZIP_FILECOUNT_LIMIT
            or max(self._end, info.file_size, info.compress_size) > zipfile.ZIP64_LIMIT
        ):
            raise zipfile.LargeZipFile("the archive becomes too large without allowZip64")

    def _write_behind(self, parts: Iterable[bytes | memoryview]) -> int:
        """Write some bytes at the end; if that fails, the end is where it was. Returns: their offset."""
        offset = at = self._end
        try:
            for part in parts:
                self._write_at(part, at)
                at += len(part)
        except BaseException:
            with suppress(OSError):
                self.file.truncate(offset)  # makes room on a full disk
            raise
        self._end = at
        return offset

    def _write_at(self, data: bytes | memoryview, offset: int) -> None:
        rest = memoryview(data)
        while rest:
            if self._shared_position:
                self.file.seek(offset)
                n = self.file.write(rest)
                n = len(rest) if n is None else n
            else:
                n = os.pwrite(self.file.fileno(), rest, offset)
            offset += n
            rest = rest[n:]

    def drop(self, key: str) -> None:
        """Forget an entry, whose bytes stay in the archive, in the caller's turn."""
        if key in self.entries:
            self._changed = True
            self.entries.pop(key, None)

    def commit(self) -> None:
        """Write the waiting documents and a directory, with which the archive is complete as it is now.

        In the caller's turn. Raises: whatever fails; the file then holds the archive that it held before.
        """
        self.check_owner()
        if self.path is not None and self.path.lower().endswith(".ozx") and "zarr.json" in self.documents:
            self._comment = zip_format.image_comment(self.documents["zarr.json"], self._comment)
        for key, data in sorted(self.documents.items()):
            self.append(key, data)
            self.documents.pop(key)
        if not self._changed:
            return
        self.file.truncate(self._end)  # a write that failed, or a writer that died, may have left something behind it
        infos = self._others + [entry.info for entry in self.entries.values()]
        self._write_behind((zip_format.directory_bytes(infos, self._comment, self._end, self._allow_zip64),))
        if self._shared_position:
            self.file.flush()
        self._changed = False

    # -- closing -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Finish the archive and close its file. Raises: StoreError."""
        with self.turn:
            if self.closed:
                return
            if self._pid != os.getpid():
                self.closed = True  # a forked child must not finish the archive of its parent
                if self.path is not None:
                    self.file.close()
                return
            try:
                if self.writable:
                    self.commit()
            except (*zip_format.DAMAGE, zipfile.LargeZipFile) as error:
                raise StoreError(
                    f"store {self.name}: cannot finish the ZIP archive: {error}; the file still holds what it held when"
                    " the store was opened or flushed: make room and close the store again"
                ) from error
            self.closed = True
            if self.path is not None:
                if self.writable and fcntl is not None:
                    with suppress(OSError):  # a file system without locks
                        fcntl.flock(self.file, fcntl.LOCK_UN)  # a forked child may hold it, too
                self.file.close()
