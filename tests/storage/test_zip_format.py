"""Where the last complete archive of a file ends: files that are cut, appended to, or made by other programs."""

import io
import random
import warnings
import zipfile
from typing import Any

import pytest

from gzarr.errors import StoreError
from gzarr.storage import ZipStore
from gzarr.storage.zip_format import directory_bytes, read_directory


def states(**options: Any) -> tuple[bytes, dict[int, dict[str, bytes]]]:
    """A file that was flushed several times, and what it held, by its length then."""
    file, held = io.BytesIO(), {}
    store = ZipStore(file, "w", **options)
    for n in range(4):
        store[f"c/{n}"] = bytes([n]) * 40
        store["c/0"] = b"version %d" % n
        store["zarr.json"] = b"%d" % n
        store.flush()
        held[len(file.getvalue())] = dict(store)
    store["c/9"] = b"never flushed"
    return file.getvalue(), held


@pytest.mark.parametrize(
    "tail", [b"", b"\0" * 50, b"PK\x05\x06", b"PK\x05\x06" + b"\0" * 18, bytes(8) + b"PK\x03\x04" * 20]
)
def test_a_file_cut_anywhere_is_what_was_flushed_last(tail: bytes) -> None:
    data, held = states()
    for nbytes in range(len(data) + 1):
        cut = data[:nbytes] + tail
        expected, end = next(((held[end], end) for end in reversed(held) if cut.startswith(data[:end])), ({}, 0))
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                found = dict(ZipStore(io.BytesIO(cut)))
            except StoreError:
                found = {}
                assert not expected
        assert found == expected
        assert bool(warned) == bool(expected and end < len(cut))


def test_a_cut_file_is_appended_to() -> None:
    data, held = states()
    first = min(held)
    for nbytes in range(first, len(data), 7):
        file = io.BytesIO(data[:nbytes])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            store = ZipStore(file, "a")
        expected = dict(store) | {"c/new": b"x" * 33}
        store["c/new"] = b"x" * 33
        store.close()
        assert dict(ZipStore(file)) == expected  # without a warning
        with zipfile.ZipFile(file) as archive:
            assert archive.testzip() is None


def test_large_files_are_searched_to_their_beginning() -> None:
    data, held = states()
    (end, objects), *_ = held.items()
    noise = random.Random(3).randbytes(9_000_000)
    for junk in (noise, b"PK\x05\x06" * 20_000, noise[: (1 << 22) + 1500]):
        with pytest.warns(UserWarning, match=f"without the last {len(junk)} bytes"):
            assert dict(ZipStore(io.BytesIO(data[:end] + junk))) == objects


def test_archives_of_other_programs_end_where_they_end() -> None:
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w") as archive:
        archive.writestr("a", b"1")
        archive.comment = b"a comment" * 3
    prefixed = io.BytesIO(b"#!/bin/sh\n" + plain.getvalue())
    junk = io.BytesIO(b"MZ" + plain.getvalue() + b"\r\n")
    nested = io.BytesIO()
    with zipfile.ZipFile(nested, "w") as archive:
        archive.writestr("a", b"1")
        archive.writestr("inner.zip", plain.getvalue())
    for file in (plain, prefixed, junk, nested, io.BytesIO(nested.getvalue() + b"")):
        file.seek(0)
        before = len(file.getvalue())
        directory = read_directory(file)
        assert directory is not None
        assert (directory.end, directory.nbytes) == (before, before)
        with ZipStore(file, "a") as store:
            assert store["a"] == b"1"
            store["b"] = b"2"
        with zipfile.ZipFile(file) as archive:
            assert (archive.read("a"), archive.read("b"), archive.testzip()) == (b"1", b"2", None)
        assert file.getvalue()[:2] in (b"PK", b"#!", b"MZ")


def test_an_archive_that_ends_with_another_one_is_not_taken_for_that() -> None:
    """A writer that was killed right after it had stored an archive as an object."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("evil", b"1")
    file = io.BytesIO()
    store = ZipStore(file, "w")
    store["c/0"] = b"old"
    store.flush()
    store["c/1"] = inner.getvalue()
    with pytest.warns(UserWarning, match="1 entries"):
        assert dict(ZipStore(io.BytesIO(file.getvalue()))) == {"c/0": b"old"}


def test_directories_of_large_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zip64: more than 65,535 entries, or entries beyond 4 GiB."""
    infos = [zipfile.ZipInfo(f"{n}") for n in range(65_600)]
    for info in infos:
        info.header_offset = info.CRC = 0
    file = io.BytesIO(b"PK\x03\x04" + bytes(26) + directory_bytes(infos, b"a comment", 30, allow_zip64=True))
    for junk in (b"", b"junk"):
        file.seek(0, 2)
        end = file.tell()
        file.write(junk)
        directory = read_directory(file)
        assert directory is not None
        assert (len(directory.infos), directory.comment, directory.start, directory.end) == (
            65_600,
            b"a comment",
            30,
            end,
        )
    with pytest.raises(zipfile.LargeZipFile):
        directory_bytes(infos, b"", 0, allow_zip64=False)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 2)
    with ZipStore(io.BytesIO(), "w", allowZip64=False) as store:
        store["a"] = store["b"] = b"1"
        with pytest.raises(StoreError, match=r"write 'c'.*allowZip64"):
            store["c"] = b"1"
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 100)
    data, held = states()
    assert b"PK\x06\x06" in data
    for end, objects in held.items():
        with pytest.warns(UserWarning, match="entries"):
            assert dict(ZipStore(io.BytesIO(data[:end] + b"junk"))) == objects
