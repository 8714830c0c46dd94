"""The files of ZIP archives: opening them, headers, compressed entries, directories, and where the last one ends.

Source: APPNOTE.TXT 6.3.10, sections 4.3.7 (local file header), 4.3.12 (central directory), 4.3.14 to 4.3.16 (end
records) and 4.4.
"""

# open: the store takes what users call a path and gives it back unchanged.
# ruff: noqa: PTH123

import gc
import io
import json
import os
import struct
import sys
import time
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, Any, Literal, NamedTuple, TypeAlias

try:
    from lzma import LZMAError
except ImportError:  # Python may be built without liblzma; zipfile then refuses such entries itself
    LZMAError = zlib.error  # type: ignore[assignment, misc]

from gzarr.errors import ContainsNodeError, NodeNotFoundError, StoreError
from gzarr.errors.escaping import escaped
from gzarr.storage.lock_kinds import fcntl
from gzarr.storage.rules import crc32

LOCAL_HEADER_NBYTES = 30
ENCRYPTED, UTF_8 = 0x1, 0x800  # flag bits, APPNOTE 4.4.4
_END = struct.Struct("<4s4H2LH")
_END_SIGNATURE = b"PK\x05\x06"
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
#: Bytes that are searched for an end record at a time: few at first, since it usually comes last.
_FIRST_BLOCK_NBYTES, _BLOCK_NBYTES = 1 << 10, 1 << 22
#: What zipfile and the decompressors raise on damaged or unsupported entries.
DAMAGE = (OSError, zipfile.BadZipFile, zlib.error, LZMAError, EOFError, RuntimeError, NotImplementedError, ValueError)

#: Longest version that a comment is written with: a comment holds 64 KiB.
_LONGEST_VERSION = 100

#: Reads so many bytes from an offset on.
ReadAt = Callable[[int, int], bytes]


#: How a store opens an archive.
ZipMode: TypeAlias = Literal["r", "r+", "a", "w", "x"]
_FLAGS = {"r+": 0, "a": os.O_CREAT, "w": os.O_CREAT, "x": os.O_CREAT | os.O_EXCL}


class Directory(NamedTuple):
    """What the directory of an archive lists.

    Attributes
    ----------
    infos : list of zipfile.ZipInfo
        The entries.
    comment : bytes
        The comment of the archive.
    start : int
        Where the directory begins, and so where its entries have ended.
    end : int
        Where the archive ends.
    nbytes : int
        Size of the file. What lies behind the end was written by a process that did not finish.
    """

    infos: list[zipfile.ZipInfo]
    comment: bytes
    start: int
    end: int
    nbytes: int


EMPTY = Directory([], b"", 0, 0, 0)


class _Behind(io.BytesIO):
    """A file in memory that lies behind the first bytes of another one."""

    def __init__(self, start: int) -> None:
        super().__init__()
        self._start = start

    def tell(self) -> int:
        return super().tell() + self._start

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return super().seek(offset - self._start if whence == io.SEEK_SET else offset, whence) + self._start


def read_directory(file: IO[bytes]) -> Directory | None:
    """Read the directory of the last complete archive in a file; None if there is none. Raises: one of DAMAGE."""

    def read(nbytes: int, offset: int) -> bytes:
        file.seek(offset)
        return file.read(nbytes)

    nbytes = file.seek(0, io.SEEK_END)
    place = _last_directory(read, nbytes)
    if place is None:
        if not zipfile.is_zipfile(file):
            return None
        with zipfile.ZipFile(file) as archive:
            return Directory(archive.infolist(), archive.comment, archive.start_dir, nbytes, nbytes)
    start, end = place
    with zipfile.ZipFile(io.BytesIO(read(end - start, start))) as archive:
        infos = archive.infolist()
        for info in infos:  # which are counted from the first byte that was given
            info.header_offset += start
        return Directory(infos, archive.comment, start, end, nbytes)


def _last_directory(read: ReadAt, nbytes: int) -> tuple[int, int] | None:
    """Where the directory of the last complete archive of a file begins, and where that archive ends.

    None if there is none, or the beginning of the file is not that of an archive.
    """
    if read(4, 0) not in (b"PK\x03\x04", _END_SIGNATURE):
        return None
    stop, block_nbytes = nbytes, _FIRST_BLOCK_NBYTES
    while stop > 0:
        start = max(stop - block_nbytes, 0)
        block = read(min(stop + 3, nbytes) - start, start)  # a signature may begin before the block's end
        at = block.rfind(_END_SIGNATURE)
        while at >= 0:
            place = _checked_directory(read, start + at, nbytes)
            if place is not None:
                return place
            at = block.rfind(_END_SIGNATURE, 0, at + 3)
        stop, block_nbytes = start, min(block_nbytes * 16, _BLOCK_NBYTES)
    return None


def _checked_directory(read: ReadAt, at: int, nbytes: int) -> tuple[int, int] | None:
    """What `_last_directory` returns, for an end record at a place, if a directory lies right before it."""
    record = read(_END.size, at)
    if len(record) < _END.size:
        return None
    _, disk, first_disk, _, n, length, start, comment_nbytes = _END.unpack(record)
    directory_end = at
    locator = read(_LOCATOR.size, at - _LOCATOR.size) if at >= _LOCATOR.size + _END_64.size else b""
    if locator.startswith(b"PK\x06\x07"):
        directory_end = _LOCATOR.unpack(locator)[2]
        large = read(_END_64.size, directory_end)
        if len(large) < _END_64.size or not large.startswith(b"PK\x06\x06"):
            return None
        n, length, start = _END_64.unpack(large)[-3:]
    end = at + _END.size + comment_nbytes
    whole = end <= nbytes and disk == first_disk == 0 and start + length == directory_end
    return (start, end) if whole and (not n or read(4, start) == b"PK\x01\x02") else None


def _rank(info: zipfile.ZipInfo) -> tuple[int, str]:
    """The place of an entry in a directory: metadata of Zarr v3 come first, those of groups before their members'."""
    folder, _, name = info.filename.rpartition("/")
    return (folder.count("/") + bool(folder), info.filename) if name == "zarr.json" else (sys.maxsize, "")


def image_comment(document: bytes, comment: bytes) -> bytes:
    """The comment of an archive of OME-Zarr with this document at its root; the one it has if that is no image's.

    Source: https://ngff.openmicroscopy.org/rfc/9, "ZIP comment".
    """
    try:
        version = json.loads(document)["attributes"]["ome"]["version"]
    except (ValueError, LookupError, TypeError):
        return b"" if comment.startswith(b'{"ome"') else comment
    if not isinstance(version, str) or len(version) > _LONGEST_VERSION:
        return comment
    return json.dumps({"ome": {"version": version, "zipFile": {"centralDirectory": {"jsonFirst": True}}}}).encode()


def directory_bytes(infos: Iterable[zipfile.ZipInfo], comment: bytes, start: int, allow_zip64: bool) -> bytes:
    """The directory of some entries, with its end record, to be written at an offset. Raises: zipfile.LargeZipFile."""
    out = _Behind(start)
    with zipfile.ZipFile(out, "w", allowZip64=allow_zip64) as archive:
        archive.comment = comment
        archive.filelist.extend(sorted(infos, key=_rank))
    return out.getvalue()


def data_offset(read: ReadAt, info: zipfile.ZipInfo) -> int:
    """The offset of an entry's data, which only its local header says. Raises: BadZipFile."""
    header = read(LOCAL_HEADER_NBYTES + len(info.orig_filename.encode()) + 1, info.header_offset)
    if len(header) < LOCAL_HEADER_NBYTES or header[:4] != b"PK\x03\x04":
        raise zipfile.BadZipFile(f"no local header at byte {info.header_offset}")
    flags, name_nbytes, extra_nbytes = struct.unpack_from("<6xH18xHH", header)
    name = header[LOCAL_HEADER_NBYTES:][:name_nbytes].decode("utf-8" if flags & UTF_8 else "cp437", "replace")
    if name != info.orig_filename:
        raise zipfile.BadZipFile(f"its header says {name!r} where the directory says {info.orig_filename!r}")
    return info.header_offset + LOCAL_HEADER_NBYTES + int(name_nbytes) + int(extra_nbytes)


def encode_entry(key: str, data: bytes | memoryview, compression: int) -> tuple[zipfile.ZipInfo, bytes, Any]:
    """The info of a new entry, its local header and its compressed data. The info's offset is not set."""
    now = time.localtime()
    info = zipfile.ZipInfo(key, max((now[0], now[1], now[2], now[3], now[4], now[5]), (1980, 1, 1, 0, 0, 0)))
    info.compress_type = compression
    info.external_attr = 0o644 << 16  # Unix permissions, for those who unpack the archive
    if compression != zipfile.ZIP_STORED:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr(info, data)
        offset = data_offset(lambda nbytes, offset: out.getvalue()[offset : offset + nbytes], info)
        data = out.getbuffer()[offset : offset + info.compress_size]
    else:
        info.file_size = info.compress_size = len(data)
        info.CRC = crc32(data)
    return info, info.FileHeader(), data


def open_file(path: str, mode: ZipMode, name: str) -> IO[bytes]:
    """Open the file of an archive; for writing without a buffer, and locked.

    Raises: NodeNotFoundError, ContainsNodeError, StoreError.
    """
    try:
        if mode == "r":
            return open(path, "rb")
        flags = _FLAGS[mode] | os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        file = os.fdopen(os.open(path, flags, 0o666), "r+b", buffering=0)
        _lock(file, path, name)
    except StoreError:
        raise
    except FileNotFoundError as error:
        remedy = "check it, or use mode 'a' to create it" if mode in ("r", "r+") else "make its folder first"
        raise NodeNotFoundError(f"store {name}: the path {path!r} does not exist; {remedy}") from error
    except FileExistsError as error:
        raise ContainsNodeError(f"store {name}: {path!r} exists; mode 'x' only makes new archives") from error
    except OSError as error:
        raise StoreError(f"store {name}: cannot open {path!r} with mode {mode!r}: {error.strerror or error}") from error
    return file


def _lock(file: IO[bytes], path: str, name: str) -> None:
    """Lock a file for writing. Raises: StoreError."""
    if fcntl is None:
        return
    try:
        with suppress(BlockingIOError):
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        gc.collect()  # a store that was forgotten, but not collected, is closed by that
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise StoreError(
            f"store {name}: another store has {path!r} open for writing, in this process or another; close it first"
            " (array.store.close()), also one that a variable still holds"
        ) from error
    except OSError:
        return  # a file system without locks


def open_archive(file: IO[bytes], mode: ZipMode, name: str, compression: int) -> Directory:
    """Read or begin the archive in a file. Warns if it was not finished. Raises: ContainsNodeError, StoreError."""
    if not file.seekable():
        raise StoreError(f"store {name}: the file object cannot seek, which a ZIP archive needs; give it a real file")
    nbytes = file.seek(0, io.SEEK_END)
    if mode == "x" and nbytes:
        raise ContainsNodeError(f"store {name}: the file object is not empty; mode 'x' only makes new archives")
    try:
        zipfile.ZipFile(io.BytesIO(), "w", compression).close()  # which knows what this Python can compress
        if mode in ("w", "x") or (mode == "a" and not nbytes):
            file.seek(0)
            file.truncate()
            return EMPTY
        directory = read_directory(file)
    except DAMAGE as error:
        raise StoreError(f"store {name}: cannot open the ZIP archive: {error}") from error
    if directory is None:
        raise StoreError(
            f"store {name}: this is not a ZIP archive (its {nbytes} bytes have no archive directory, which is written"
            " last); check that it is the right file and was closed by its writer"
        )
    if directory.end < directory.nbytes:
        warnings.warn(
            f"store {escaped(name)}: the archive is being written, or its writer ended without closing it: it is read"
            f" as it was when it was last closed or flushed, with {len(directory.infos)} entries, without the last"
            f" {directory.nbytes - directory.end} bytes; writing to it drops them",
            UserWarning,
            stacklevel=4,
        )
    return directory
