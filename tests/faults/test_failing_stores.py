"""Stores that refuse, run full, or hold something unexpected: a clear error, and nothing that was stored is lost."""

import collections
import errno
import io
import os
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import gzarr
from gzarr.config import config
from gzarr.errors import MetadataError, StoreError

DATA = np.arange(48, dtype="i4").reshape(6, 8)


@pytest.fixture(autouse=True)
def usual_path():
    """Faults are planted in Python's calls here; those of the compiled loop in tests/cpu/compiled/test_faults.py."""
    with gzarr.config.set(cpu__native=False):
        yield


@pytest.fixture(params=["v2", "v3", "sharded"])
def made(request, tmp_path):
    options = {
        "v2": {"zarr_format": 2, "chunks": (2, 4)},
        "v3": {"chunks": (2, 4)},
        "sharded": {"chunks": (2, 2), "shards": (2, 4)},
    }[request.param]
    return gzarr.create_array(tmp_path / "x.zarr", name="a", data=DATA, **options)


def files(path):
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


# -- writes that fail --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("replace", OSError(errno.ENOSPC, "No space left on device")),
        ("replace", PermissionError(errno.EACCES, "Permission denied")),
        ("write", OSError(errno.ENOSPC, "No space left on device")),
        ("write", OSError(errno.EDQUOT, "Disk quota exceeded")),
        ("write", OSError(errno.EIO, "Input/output error")),
        ("open", PermissionError(errno.EACCES, "Permission denied")),
        ("open", OSError(errno.EROFS, "Read-only file system")),
        ("open", OSError(errno.EMFILE, "Too many open files")),
    ],
    ids=lambda v: v if isinstance(v, str) else v.strerror,
)
def test_a_write_that_fails_leaves_the_old_chunk(made, tmp_path, monkeypatch, function, error):
    before = files(tmp_path)
    failing = Mock(side_effect=error)
    monkeypatch.setattr(*((io, "FileIO") if function == "open" else (os, function)), failing)
    if function == "replace":
        monkeypatch.setattr(os, "link", failing)
    for selection in (np.s_[0, 0], np.s_[:2, :4], np.s_[:]):
        with pytest.raises(StoreError, match=rf"x\.zarr.*{error.strerror}") as caught:
            made[selection] = -1
        assert caught.value.__cause__ is error
        assert "/a/" in str(caught.value)
    with pytest.raises(StoreError, match=error.strerror):
        made.attrs["x"] = 1
    with pytest.raises(StoreError, match=error.strerror):
        made.resize(20, 20)
    with pytest.raises(StoreError, match=error.strerror):
        gzarr.zeros(3, store=tmp_path / "x.zarr", path="b")
    monkeypatch.undo()
    assert files(tmp_path) == before
    assert np.array_equal(made[:], DATA)
    assert gzarr.open(tmp_path / "x.zarr")["a"].shape == (6, 8)


def test_a_mapping_that_refuses():
    class Full(collections.UserDict):
        full = False

        def __setitem__(self, key, value):
            if self.full:
                raise OSError(errno.ENOSPC, "full")
            super().__setitem__(key, value)

    data = Full()
    z = gzarr.array(DATA, chunks=(2, 4), store=data)
    before = dict(data)
    data.full = True
    with pytest.raises(OSError, match="full"):
        z[:] = 1
    with pytest.raises(OSError, match="full"):
        z[0, 0] = 1
    assert dict(data) == before


# -- reads that fail ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error", [PermissionError(errno.EACCES, "Permission denied"), OSError(errno.EIO, "Input/output error")], ids=str
)
def test_a_read_that_fails_is_no_missing_chunk(made, tmp_path, monkeypatch, error):
    before = files(tmp_path)
    real = os.open

    def failing(path, flags, *args, **kwargs):
        if flags & os.O_RDWR:
            return real(path, flags, *args, **kwargs)
        if Path(path).parent.as_posix().endswith("c/0") or Path(path).name.startswith("0."):
            raise error
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", failing)
    with config.set({"cpu.native": False}):  # which opens files itself; what it cannot open it leaves
        for call in (lambda: made[0, 0], lambda: made[:], lambda: made.__setitem__((0, 0), 1)):
            with pytest.raises(StoreError, match=rf"cannot read .*{error.strerror}"):
                call()
        assert np.array_equal(made[2:], DATA[2:])
    monkeypatch.undo()
    assert files(tmp_path) == before


def test_unreadable_metadata_is_no_missing_node(made, tmp_path, monkeypatch):
    real = os.open

    def failing(path, *args, **kwargs):
        if Path(path).name in ("zarr.json", ".zarray", ".zgroup"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return real(path, *args, **kwargs)

    before = files(tmp_path)
    monkeypatch.setattr(os, "open", failing)
    for mode in ("r", "r+", "a", "w-"):
        with pytest.raises(StoreError, match="Permission denied"):
            gzarr.open(tmp_path / "x.zarr", mode=mode)
        with pytest.raises(StoreError, match="Permission denied"):
            gzarr.open_array(tmp_path / "x.zarr" / "a", mode=mode, shape=3)
    monkeypatch.undo()
    assert files(tmp_path) == before


# -- things in the way -------------------------------------------------------------------------------------------


def test_foreign_files_beside_the_chunks_are_ignored(made, tmp_path):
    folder = tmp_path / "x.zarr" / "a"
    for name in ("README.txt", "0.0.0", "9.9", "c.0", "x.y", ".DS_Store"):
        (folder / name).write_bytes(b"foreign")
    (folder / "sub").mkdir()
    (folder / "sub" / "0.0").write_bytes(b"foreign")
    assert np.array_equal(made[:], DATA)
    initialized = made.nchunks_initialized
    assert initialized == made.nchunks
    made.resize(2, 4)
    assert np.array_equal(made[:], DATA[:2, :4])
    assert (folder / "README.txt").read_bytes() == b"foreign"
    assert list(gzarr.open(tmp_path / "x.zarr")) == ["a"]


# -- metadata ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [b"", b"{", b"null", b"[]", b"3", b"\xff\xfe", b'{"zarr_format": 3}', b"[" * 100000])
@pytest.mark.parametrize("name", ["zarr.json", ".zarray", ".zgroup"])
def test_damaged_documents_are_named_and_never_replaced(tmp_path, name, text):
    path = tmp_path / "x.zarr"
    path.mkdir()
    (path / name).write_bytes(text)
    for mode in ("r", "r+", "a"):
        with pytest.raises(MetadataError, match=rf"x\.zarr: {name}"):
            gzarr.open(path, mode=mode)
    with pytest.raises(MetadataError, match=name):
        gzarr.zeros(3, store=path)
    with pytest.raises(MetadataError, match=name):
        gzarr.group(path)
    assert files(path) == {name: text}
    # To start afresh is what mode="w" is for.
    assert gzarr.open(path, mode="w", shape=3).shape == (3,)
