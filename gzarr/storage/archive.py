"""One open ZIP archive: reading entries in place, adding and dropping them, and finishing the file.

A ZIP archive can only grow while it is open, and its directory is written last. The rules that follow from that:

- metadata documents (small, rewritten often) wait in memory and are written once, when the store is closed;
- an object that is overwritten or deleted leaves its bytes behind but is dropped from the directory, so an archive
  never lists a key twice; when the store is closed and these bytes are worth it, an archive with a path is written
  anew without them and replaces the old file in one step;
- an archive that is open for writing becomes valid when it is closed: by hand, by ``with``, by the garbage collector,
  or by the interpreter at its end.

Stored (uncompressed) entries are read in place, range by range. Source: APPNOTE.TXT 6.3.10, sections 4.3.7 (local file
header) and 4.4.
"""
# os.path and open: the store takes what users call a path and gives it back unchanged.
# ruff: noqa: PTH105, PTH108, PTH110, PTH123, PTH202

from __future__ import annotations

import copy
import io
import os
import secrets
import shutil
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from typing import IO, Literal, TypeAlias

try:
    from lzma import LZMAError
except ImportError:  # Python may be built without liblzma; zipfile then refuses such entries itself
    LZMAError = zlib.error  # type: ignore[assignment, misc]

from gzarr.concurrency import new_lock
from gzarr.errors import ContainsNodeError, NodeNotFoundError, StoreError
from gzarr.storage.base import Buffer
from gzarr.storage.rules import byte_range, cut

ZipMode: TypeAlias = Literal["r", "r+", "a", "w", "x"]

_LOCAL_HEADER_NBYTES = 30
_ENCRYPTED, _SIZES_FOLLOW_DATA = 0x1, 0x8  # flag bits, APPNOTE 4.4.4

# An archive is written anew if it is small (then it takes a fraction of a second) or has more than a quarter to lose.
_SMALL_NBYTES = 1 << 26
_COPY_NBYTES = 1 << 22

# What zipfile and the decompressors raise on damaged or unsupported entries.
DAMAGE = (OSError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, RuntimeError, NotImplementedError, ValueError)


class Entry:
    """An entry of the archive; a new object for each version of a key."""

    __slots__ = ("data_offset", "info")

    def __init__(self, info: zipfile.ZipInfo) -> None:
        self.info = info
        self.data_offset: int | None = None


def _data_offset(read: Callable[[int, int], bytes], info: zipfile.ZipInfo) -> int:
    """The offset of an entry's data, which only its local header says. Raises: BadZipFile."""
    header = read(_LOCAL_HEADER_NBYTES, info.header_offset)
    if len(header) < _LOCAL_HEADER_NBYTES or header[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"no local header at byte {info.header_offset}")
    name_nbytes, extra_nbytes = struct.unpack_from("<HH", header, 26)
    return info.header_offset + _LOCAL_HEADER_NBYTES + int(name_nbytes) + int(extra_nbytes)


def _new_info(key: str, compression: int) -> zipfile.ZipInfo:
    now = time.localtime()
    info = zipfile.ZipInfo(key, max((now[0], now[1], now[2], now[3], now[4], now[5]), (1980, 1, 1, 0, 0, 0)))
    info.compress_type = compression
    info.external_attr = 0o644 << 16  # Unix permissions, for those who unpack the archive
    return info


def _without_zip64(extra: bytes) -> bytes:
    """Extra fields of a header without the field for large sizes, which is written anew if needed."""
    others, at = b"", 0
    while at + 4 <= len(extra):
        kind, nbytes = struct.unpack_from("<HH", extra, at)
        if kind != 1:
            others += extra[at : at + 4 + nbytes]
        at += 4 + nbytes
    return others


def _copy_entries(source: zipfile.ZipFile, file: IO[bytes], target: zipfile.ZipFile, out: IO[bytes]) -> None:
    """Copy every listed entry as it is, without decompressing it."""

    def read(nbytes: int, offset: int) -> bytes:
        file.seek(offset)
        return file.read(nbytes)

    for old in sorted(source.infolist(), key=lambda info: info.header_offset):
        info = copy.copy(old)
        info.flag_bits &= ~_SIZES_FOLLOW_DATA  # the header can say them now
        info.extra = _without_zip64(info.extra)
        info.header_offset = out.tell()
        out.write(info.FileHeader())
        file.seek(_data_offset(read, old))
        left = info.compress_size
        while left:
            piece = file.read(min(left, _COPY_NBYTES))
            if not piece:
                raise zipfile.BadZipFile(f"entry {old.filename!r} ends early")
            out.write(piece)
            left -= len(piece)
        target.filelist.append(info)
        target.NameToInfo[info.filename] = info
        target.start_dir = out.tell()


def _repack(path: str) -> None:
    """Write a finished archive anew without the bytes that its directory does not list, and replace it.

    Raises: whatever fails; the archive is then as it was.
    """
    temporary = f"{path}.{secrets.token_hex(8)}.tmp"
    try:
        with open(path, "rb") as file, open(temporary, "xb") as out:
            with zipfile.ZipFile(file) as source, zipfile.ZipFile(out, "w") as target:
                target.comment = source.comment
                _copy_entries(source, file, target, out)
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def open_file(path: str, mode: ZipMode, name: str) -> IO[bytes]:
    """Open the file of an archive. Raises: NodeNotFoundError, ContainsNodeError, StoreError."""
    try:
        if mode == "a":
            try:
                return open(path, "r+b")
            except FileNotFoundError:
                return open(path, "x+b")
        return open(path, {"r": "rb", "r+": "r+b", "w": "w+b", "x": "x+b"}[mode])
    except FileNotFoundError as error:
        remedy = "check it, or use mode 'a' to create it" if mode in ("r", "r+") else "make its folder first"
        raise NodeNotFoundError(f"store {name}: the path {path!r} does not exist; {remedy}") from error
    except FileExistsError as error:
        raise ContainsNodeError(f"store {name}: {path!r} exists; mode 'x' only makes new archives") from error
    except OSError as error:
        raise StoreError(f"store {name}: cannot open {path!r} with mode {mode!r}: {error.strerror or error}") from error


def open_archive(file: IO[bytes], mode: ZipMode, name: str, compression: int, allow_zip64: bool) -> zipfile.ZipFile:
    """Read or begin the archive in a file. Raises: ContainsNodeError, StoreError."""
    if not file.seekable():
        raise StoreError(f"store {name}: the file object cannot seek, which a ZIP archive needs; give it a real file")
    nbytes = file.seek(0, io.SEEK_END)
    if mode == "x" and nbytes:
        raise ContainsNodeError(f"store {name}: the file object is not empty; mode 'x' only makes new archives")
    begins = mode in ("w", "x") or (mode == "a" and not nbytes)
    if not begins and not zipfile.is_zipfile(file):
        raise StoreError(
            f"store {name}: this is not a ZIP archive (its {nbytes} bytes have no archive directory, which is written"
            " last); check that it is the right file and was closed by its writer"
        )
    try:
        file.seek(0)
        if begins:
            file.truncate()
        kind: Literal["r", "w", "a"] = "w" if begins else "r" if mode == "r" else "a"
        return zipfile.ZipFile(file, kind, compression, allow_zip64)
    except DAMAGE as error:
        raise StoreError(f"store {name}: cannot open the ZIP archive: {error}") from error


class Archive:
    """The open archive: apart from its store, so that it can outlive a forgotten one and be finished."""

    def __init__(
        self, path: str | None, file: IO[bytes], zip_file: zipfile.ZipFile, name: str, compression: int
    ) -> None:
        self.path, self.file, self.zip, self.name, self.compression = path, file, zip_file, name, compression
        self.writable = zip_file.mode != "r"
        self.lock = new_lock()
        self.pid = os.getpid()
        self.closed = False
        self.dead_nbytes = 0
        self.documents: dict[str, bytes] = {}
        self.entries: dict[str, Entry] = {}
        # Other entries, such as directories, stay in the archive although they are no objects.
        self.others: list[zipfile.ZipInfo] = []
        for info in zip_file.infolist():
            if info.filename.endswith("/"):
                self.others.append(info)
            else:
                self.drop(info.filename)
                self.entries[info.filename] = Entry(info)
        #: Whether the directory must be written; that of a new archive must.
        self.changed = zip_file.mode == "w"
        self.shared_position = path is None or not hasattr(os, "pread")

    def read_at(self, nbytes: int, offset: int) -> bytes:
        """Read bytes of the file. A file object of the user has one position, which threads must share."""
        if not self.shared_position:
            data = os.pread(self.file.fileno(), nbytes, offset)
            while len(data) < nbytes and (more := os.pread(self.file.fileno(), nbytes - len(data), offset + len(data))):
                data += more
            return data
        with self.lock:
            self.file.seek(offset)
            return self.file.read(nbytes)

    def read(self, key: str, entry: Entry, start: int | None, length: int | None) -> Buffer:
        """Read the range of a request from an entry. Raises: StoreError naming the key if the entry is damaged."""
        info = entry.info
        try:
            if info.flag_bits & _ENCRYPTED:
                raise zipfile.BadZipFile("it is encrypted, which is not supported")
            if info.compress_type == zipfile.ZIP_STORED and info.compress_size != info.file_size:
                raise zipfile.BadZipFile(f"its sizes disagree: {info.compress_size} and {info.file_size} bytes")
            if start is None or info.compress_type != zipfile.ZIP_STORED:
                return cut(self._read_whole(entry), start, length)
            begin, end = byte_range(start, length, info.file_size)
            return self._read_raw(entry, begin, end - begin)
        except DAMAGE as error:
            raise StoreError(f"store {self.name}, key {key!r}: cannot read the entry: {error}") from error

    def _read_raw(self, entry: Entry, begin: int, nbytes: int) -> bytes:
        if entry.data_offset is None:
            entry.data_offset = _data_offset(self.read_at, entry.info)
        if entry.data_offset + entry.info.compress_size > self.zip.start_dir:
            raise zipfile.BadZipFile(f"its {entry.info.compress_size} bytes reach past the end of the entries")
        data = self.read_at(nbytes, entry.data_offset + begin)
        if len(data) < nbytes:
            raise zipfile.BadZipFile(f"the archive ends early: expected {nbytes} bytes, got {len(data)}")
        return data

    def _read_whole(self, entry: Entry) -> bytes:
        info = entry.info
        if info.compress_type == zipfile.ZIP_STORED:
            data = self._read_raw(entry, 0, info.file_size)
        elif info.compress_type == zipfile.ZIP_DEFLATED:
            # Bounded by the size that the directory gives, so a hostile entry cannot fill the memory.
            data = zlib.decompressobj(-15).decompress(self._read_raw(entry, 0, info.compress_size), info.file_size + 1)
        else:
            with self.lock:
                data = self.zip.read(info)
        if len(data) != info.file_size or zlib.crc32(data) != info.CRC:
            raise zipfile.BadZipFile(f"its checksum is wrong ({len(data)} of {info.file_size} bytes)")
        return data

    def append(self, key: str, data: bytes | memoryview) -> None:
        """Write an entry, in the place of an older one. The caller holds the lock."""
        end = self.zip.start_dir
        info = _new_info(key, self.compression)
        self.changed = True
        self.zip.NameToInfo.pop(key, None)  # zipfile warns of two entries with one name
        try:
            self.zip.writestr(info, data)
            self.file.flush()  # reads go past the buffer
        except BaseException:
            # Cut off what was written of it; its ZipInfo, if any, is not among ours and goes when we finish.
            self.zip.start_dir = end
            self.file.seek(end)
            self.file.truncate()
            raise
        self.drop(key)
        self.entries[key] = Entry(info)

    def drop(self, key: str) -> None:
        """Forget an entry, whose bytes stay in the archive. The caller holds the lock."""
        entry = self.entries.pop(key, None)
        if entry is not None:
            self.changed = True
            self.dead_nbytes += _LOCAL_HEADER_NBYTES + len(key) + entry.info.compress_size

    def close(self) -> None:
        """Finish the archive and close its file. Raises: StoreError."""
        with self.lock:
            if self.closed:
                return
            self.closed = True
            if self.writable and self.pid != os.getpid():
                self.zip.fp = None  # a forked child must not finish the archive of its parent
                self._close_file()
                return
            try:
                try:
                    self._finish()
                finally:
                    self._close_file()
                if self._worth_repacking():
                    _repack(str(self.path))
            except (*DAMAGE, zipfile.LargeZipFile) as error:
                raise StoreError(f"store {self.name}: cannot finish the ZIP archive: {error}") from error

    def _finish(self) -> None:
        for key, data in sorted(self.documents.items()):
            self.append(key, data)
        self.documents.clear()
        if self.changed:
            self.zip.filelist[:] = self.others + [entry.info for entry in self.entries.values()]
            self.zip.comment = self.zip.comment  # tells zipfile to write the directory even if nothing was added
        self.zip.close()
        if self.changed:
            self.file.truncate()  # a failed write may have left something behind the end

    def _close_file(self) -> None:
        if self.path is not None:
            self.file.close()

    def _worth_repacking(self) -> bool:
        if self.path is None or not self.writable or not self.dead_nbytes:
            return False
        if any(entry.info.flag_bits & _ENCRYPTED for entry in self.entries.values()):
            return False  # their headers are part of the encryption
        total = os.path.getsize(self.path)
        return total < _SMALL_NBYTES or 4 * self.dead_nbytes > total
