"""Copies run with zarr 2.18.7 and with gzarr, and what they print: ``python -m tests.copying.scenarios zarr`` makes the
golden text with zarr 2.18.7 and h5py.

Arrays are not compressed, so that the numbers of bytes do not depend on the versions of codecs.
"""

import importlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np


def hierarchy(zarr: Any) -> Any:
    root = zarr.group()
    root.attrs["title"] = "all"
    foo = root.create_group("foo")
    foo.attrs["kind"] = "group"
    bar = foo.create_dataset("bar/baz", data=np.arange(100, dtype="i8"), chunks=50, compressor=None)
    bar.attrs["unit"] = "m"
    foo.create_dataset("spam", data=np.arange(1000, dtype="f4"), chunks=300, compressor=None)
    root.zeros("eggs", shape=(20, 30), chunks=(10, 10), dtype="u1", compressor=None)[:10] = 1
    root.create_dataset("scalar", data=np.array(7, "i4"), compressor=None)
    root.create_dataset("names", data=np.array([b"a", b"bcd"]), compressor=None)
    return root


def hdf5_file(folder: Path) -> Any:
    file = h5py.File(folder / "source.h5", "w")
    file.attrs["title"] = "hdf5"
    foo = file.create_group("foo")
    foo.create_dataset("bar/baz", data=np.arange(100), chunks=(50,))
    file.create_dataset("spam", data=np.arange(100, 200), chunks=(30,), compression="gzip")
    file["spam"].attrs["unit"] = "m"
    file.create_dataset("plain", data=np.ones((3, 4), "f4"))
    file.create_dataset("flag", data=np.array([True, False]))
    return file


class Log:
    """Prints into text, and notes what each call gave back or raised."""

    def __init__(self) -> None:
        self.text = io.StringIO()

    def run(self, title: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        print(f"## {title}", file=self.text)
        try:
            print(function(*args, log=self.text, **kwargs), file=self.text)
        except Exception as error:  # noqa: BLE001 - the error is what is compared
            print(type(error).__name__, error, file=self.text)


def scenarios(zarr: Any, folder: Path) -> str:
    log = Log()
    source = hierarchy(zarr)
    log.run("copy a group", zarr.copy, source["foo"], zarr.group())
    log.run("copy under a name", zarr.copy, source["foo"], zarr.group(), name="other")
    log.run("copy the root without a name", zarr.copy, source, zarr.group())
    log.run("copy the root", zarr.copy, source, zarr.group(), name="root")
    log.run("copy an array", zarr.copy, source["foo/spam"], zarr.group(), chunks=500)
    log.run("copy shallow", zarr.copy, source["foo"], zarr.group(), shallow=True)
    log.run("copy_all shallow", zarr.copy_all, source, zarr.group(), shallow=True)
    log.run("copy_all", zarr.copy_all, source, zarr.group())
    log.run("dry run", zarr.copy_all, source, zarr.group(), dry_run=True)
    log.run("bad if_exists", zarr.copy, source["foo"], zarr.group(), if_exists="no")

    for if_exists in ("raise", "replace", "skip", "skip_initialized"):
        for dry_run in (True, False):
            dest = zarr.group()
            dest.create_dataset("foo/spam", data=np.arange(1000, dtype="f4"), chunks=300, compressor=None)
            if if_exists == "raise" and not dry_run:
                continue  # gzarr finds the conflict before it prints or copies anything
            title = f"a taken name, {if_exists}, dry run {dry_run}"
            log.run(title, zarr.copy, source["foo"], dest, if_exists=if_exists, dry_run=dry_run)
    for if_exists in ("raise", "skip"):  # zarr 2 trips over a dry run of "replace" here
        dest = zarr.group()
        dest.create_dataset("foo", data=np.arange(3), compressor=None)
        log.run(f"an array in the way, {if_exists}", zarr.copy, source["foo"], dest, if_exists=if_exists, dry_run=True)
    dest = zarr.group()
    dest.zeros("eggs", shape=(20, 30), chunks=(10, 10), dtype="u1", compressor=None)
    log.run("not initialized", zarr.copy, source["eggs"], dest, if_exists="skip_initialized")

    with hdf5_file(folder) as file:
        log.run("from h5py", zarr.copy_all, file, zarr.group())
        log.run("a group from h5py", zarr.copy, file["foo"], zarr.group())
        log.run("a dataset from h5py", zarr.copy, file["spam"], zarr.group(), name="ham", without_attrs=True)
        log.run("not for h5py", zarr.copy, source["foo"], file, if_exists="skip_initialized")
        del file["plain"], file["flag"]  # zarr 2 copies no contiguous dataset between two files
        with h5py.File(folder / "between.h5", "w") as other:
            log.run("between h5py files", zarr.copy_all, file, other)
    del source["scalar"]  # h5py compresses no scalars, which stops zarr 2
    with h5py.File(folder / "dest.h5", "w") as file:
        log.run("to h5py", zarr.copy_all, source, file)
        log.run("to h5py again", zarr.copy_all, source, file, if_exists="skip")
        log.run("to h5py once more", zarr.copy_all, source, file, if_exists="replace")

    store = source.store
    log.run("copy_store", zarr.copy_store, store, {})
    log.run("copy_store of a path", zarr.copy_store, store, {}, source_path="foo", dest_path="x/y")
    log.run("copy_store, excludes", zarr.copy_store, store, {}, excludes=[r"\.z", "spam/1$"], includes=r"foo/\.zgroup")
    log.run("copy_store, flags", zarr.copy_store, store, {}, excludes="FOO", flags=2)
    log.run("copy_store, dry run", zarr.copy_store, store, {}, dry_run=True, source_path="/foo/bar/")
    for if_exists in ("raise", "replace", "skip"):
        taken = {"foo/.zgroup": b"{}"}
        log.run(f"copy_store, dry, {if_exists}", zarr.copy_store, store, taken, if_exists=if_exists, dry_run=True)
        if if_exists != "raise":
            log.run(f"copy_store, {if_exists}", zarr.copy_store, store, taken, if_exists=if_exists)
    log.run("copy_store, bad if_exists", zarr.copy_store, store, {}, if_exists="no")
    return log.text.getvalue()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.stdout.write(scenarios(importlib.import_module(sys.argv[1]), Path(folder)))


class Filling(dict[str, Any]):
    """A store that is full after some objects."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def __setitem__(self, key: str, value: Any) -> None:
        if self.room <= 0:
            raise OSError(28, "No space left on device")
        self.room -= 1
        super().__setitem__(key, value)
