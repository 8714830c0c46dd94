"""A program that runs re-entrant code at every step of gzarr, as finalizers, ``__del__`` and signal handlers may come.

At lines that a thread executes in gzarr, and in libraries in Python that it calls, once a line and scenario, garbage is
collected whose finalizer reads and writes arrays and attributes of the store that the program uses. What its own thread
is in the midst of changing is refused by a `StoreError`. At the end, all that was written without one must be there.

Usage: ``python -m tests.concurrency.reentrant_code SCENARIO...``. Prints a line for each; hangs end after 10 minutes.
"""

import faulthandler
import gc
import io
import shutil
import sys
import tempfile
import threading
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

import gzarr
from gzarr.errors import StoreError
from gzarr.storage import (
    CountingStore,
    FsspecStore,
    LocalStore,
    LRUStoreCache,
    MemoryStore,
    SQLiteStore,
    Store,
    ZipStore,
)

PACKAGE = str(Path(gzarr.__file__).parent)
LIBRARIES = {zipfile.__file__}


class Cycle:
    """Garbage: calls a function when it is collected."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.me = self
        self.call = call

    def __del__(self) -> None:
        self.call()


class ReentrantCode:
    """Calls a function at steps of gzarr, from a finalizer."""

    def __init__(self, call: Callable[[], None], modules: tuple[str, ...] = ()) -> None:
        self._call = call
        self._files = tuple(f"{PACKAGE}/{module}" for module in modules) or PACKAGE
        self._active = threading.local()
        self.lines: Counter[tuple[Any, int]] = Counter()
        self.errors: list[str] = []

    def _run(self) -> None:
        try:
            self._call()
        except BaseException:  # noqa: BLE001
            self.errors.append(traceback.format_exc())

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        """What `sys.settrace` takes."""
        file = frame.f_code.co_filename
        if getattr(self._active, "now", False) or not (file.startswith(self._files) or file in LIBRARIES):
            return None
        place = frame.f_code, frame.f_lineno
        if event == "line" and not self.lines[place]:
            self.lines[place] += 1
            self._active.now = True
            try:
                Cycle(self._run)
                gc.collect(0)
            finally:
                self._active.now = False
        return self.trace


@contextmanager
def coming(code: ReentrantCode) -> Iterator[None]:
    """Let re-entrant code come."""
    gc.disable()
    gc.freeze()
    threading.settrace(code.trace)
    sys.settrace(code.trace)
    try:
        yield
    finally:
        sys.settrace(None)
        threading.settrace(None)
        gc.enable()


# -- what the program and the re-entrant code do ---------------------------------------------------------------------


class Model:
    """Arrays of a store that the program and re-entrant code write, and what must be in them."""

    def __init__(self, store: Store, **opened: Any) -> None:
        self.store = store
        self.opened = opened
        self.n = self.n_refused = 0
        self.value = np.zeros(1, "i8")
        self.theirs: dict[tuple[str, int], int] = {}
        self.attrs: dict[str, int] = {}
        self.group = gzarr.open_group(store, "w")
        for name in self.names:
            shards = {"shards": 16} if name == "sharded" else {}
            z = self.group.create_array(
                name, shape=32, chunks=8, dtype="i8", fill_value=0, **shards, **compression(store)
            )
            z[...] = 0

    @property
    def names(self) -> list[str]:
        return ["plain", "sharded"]

    def open(self, name: str) -> gzarr.Array:
        return gzarr.open_array(self.store, path=name, mode="r+", **self.opened)

    def reenter(self) -> None:
        """Read and write as re-entrant code: odd elements of the same chunks, attributes."""
        self.n += 1
        k = self.n
        for name in self.names:
            at = 2 * (k % 16) + 1
            self.value[0] = k
            with self.unless_refused():
                z = self.open(name)
                z[at] = self.value[0:1]
                self.theirs[name, at] = k
                if name == "plain":
                    seen = z[...][at]
                    if seen != k:  # what it wrote earlier is there at the end
                        raise AssertionError(f"{name}: re-entrant code wrote {k} at {at}, and reads {seen}")
        if k % 2 == 0:
            with self.unless_refused():
                gzarr.open_group(self.store, "r+").attrs[f"theirs{k % 3}"] = k
                self.attrs[f"theirs{k % 3}"] = k

    @contextmanager
    def unless_refused(self) -> Iterator[None]:
        """Count calls that are refused because their thread is in the midst of a change."""
        try:
            yield
        except StoreError as error:
            if "in use by this very thread" not in str(error):
                raise
            self.n_refused += 1

    def program(self) -> None:
        """Read and write as the program: even elements, attributes, nodes."""
        for turn in range(1, 4):
            for name in self.names:
                z = self.open(name)
                z[0:32:2] = np.arange(16) + turn
                z[2] = 2 * turn
                seen = z[...][0::2]
                assert seen.tolist() == self.mine(turn), f"{name}: the program reads {seen.tolist()}"
            group = gzarr.open_group(self.store, "r+")
            group.attrs[f"mine{turn}"] = turn
            assert all(group.attrs.get(f"mine{n}") == n for n in range(1, turn + 1)), dict(group.attrs)
            with suppress(AttributeError):
                group.create_array(f"new{turn}", shape=3, chunks=3, dtype="i4", fill_value=0, **compression(self.store))
                assert group[f"new{turn}"][...].tolist() == [0, 0, 0]
            if turn == 2:
                group["new1"].append([1, 2])
                del group["new1"]
            if turn == 3:
                gzarr.consolidate_metadata(self.store)
                root = gzarr.open_consolidated(self.store)
                assert sorted(root) == sorted([*self.names, "new2", "new3"]), sorted(root)
            assert self.store.getsize("nothing/here") is None
            list(self.store.list_prefix(""))

    @staticmethod
    def mine(turn: int) -> list[int]:
        return [turn, 2 * turn, *(np.arange(2, 16) + turn).tolist()]

    def check(self, store: Store) -> None:
        """Raise AssertionError if anything is not there."""
        for name in self.names:
            found = gzarr.open_array(store, path=name, mode="r")[...].tolist()
            wanted = [0] * 32
            wanted[0::2] = self.mine(3)
            for (written, at), k in self.theirs.items():
                wanted[at] = k if written == name else wanted[at]
            assert found == wanted, f"{name}: {found}, not {wanted}"
        attrs = dict(gzarr.open_group(store, "r").attrs)
        wanted_attrs = {**self.attrs, **{f"mine{n}": n for n in (1, 2, 3)}}
        assert {k: v for k, v in attrs.items() if k in wanted_attrs} == wanted_attrs, f"{attrs}, not {wanted_attrs}"


def compression(store: Store) -> dict[str, Any]:
    return {}


def run(make: Callable[[Path], Store], *modules: str, reopens: bool = True, **opened: Any) -> int:
    """Run the program with re-entrant code.

    modules: where that comes, everywhere if none is given. Returns: how often it came.
    """
    folder = Path(tempfile.mkdtemp())
    store = make(folder)
    try:
        model = Model(store, **opened)
        code = ReentrantCode(model.reenter, modules)
        with coming(code):
            model.program()
        if code.errors:
            raise AssertionError(f"{len(code.errors)} errors in re-entrant code, the first:\n{code.errors[0]}")
        model.check(store)
        with coming(code):
            store.close()
        if reopens:
            store.close()
            store = make(folder)
            model.check(store)
        assert model.n
        return model.n
    finally:
        store.close()
        shutil.rmtree(folder, ignore_errors=True)


def zip_store(folder: Path) -> Store:
    return ZipStore(folder / "a.zip", "a")


def zip_in_memory() -> int:
    file = io.BytesIO()
    return run(lambda _: ZipStore(file, "a"), "storage/zip", "storage/archive")


def fsspec_store(folder: Path) -> Store:
    import fsspec

    class Other(type(fsspec.filesystem("memory"))):  # type: ignore[misc]
        protocol = ("othermemory",)

    return FsspecStore(Other(), path="/x")


def in_memory(**opened: Any) -> int:
    return run(
        lambda _: MemoryStore(), *CHANGES, "chunk_io/chunk_cache", "storage/invalidation", reopens=False, **opened
    )


def local(*modules: str, **opened: Any) -> int:
    return run(lambda folder: LocalStore(folder / "a"), *modules, **opened)


def profiled() -> int:
    with gzarr.profile():
        return run(lambda _: MemoryStore(), "profiling/recorder", "chunk_io/reference", reopens=False)


def on_threads() -> int:
    with gzarr.config.set({"threading.max_workers": 3}):
        return run(lambda folder: LocalStore(folder / "a"), "concurrency", "cpu/threads")


def on_emulated_device() -> int:
    from gzarr.gpu.backend import GpuBackend
    from gzarr.gpu.device.emulated import EmulatedDevice

    backend = GpuBackend(EmulatedDevice(), max_device_nbytes=1 << 20)
    return run(lambda _: MemoryStore(), "gpu/device", "gpu/pipeline", "gpu/reading", reopens=False, device=backend)


#: Where objects are read, changed and stored.
CHANGES = ("concurrency", "storage/locks", "storage/changing", "storage/memory", "chunk_io", "metadata/consolidated")
SCENARIOS: dict[str, Callable[[], int]] = {
    "everywhere": lambda: run(lambda _: MemoryStore(), reopens=False),
    "local": lambda: local("storage", "concurrency", "chunk_io", "layout"),
    "sqlite": lambda: run(lambda folder: SQLiteStore(folder / "a.sqlite"), "storage/sqlite", "storage/flat"),
    "sqlite in memory": lambda: run(lambda _: SQLiteStore(":memory:"), "storage/sqlite", reopens=False),
    "fsspec": lambda: run(fsspec_store, "storage/fsspec", "storage/remote", "concurrency", reopens=False),
    "cached": lambda: run(lambda folder: LRUStoreCache(LocalStore(folder / "a"), 3000), "storage/cache"),
    "cached without tokens": lambda: run(
        lambda _: LRUStoreCache(MemoryStore({}), 3000), "storage/cache", "concurrency", reopens=False
    ),
    "counting": lambda: run(lambda folder: CountingStore(LocalStore(folder / "a")), "storage/watching"),
    "synchronized": lambda: local("storage/synchronizers", synchronizer=gzarr.ThreadSynchronizer()),
    "chunk cache": lambda: local("chunk_io/chunk_cache", chunk_cache=gzarr.ChunkCache(300)),
    "chunk cache without tokens": lambda: in_memory(chunk_cache=gzarr.ChunkCache(300)),
    "profiled": profiled,
    "threads": on_threads,
    "emulated device": on_emulated_device,
}


def main(names: list[str]) -> None:
    failed = 0
    for name in names or SCENARIOS:
        faulthandler.dump_traceback_later(600, exit=True)  # of each; a busy machine takes 40 s for the first
        try:
            print(f"{name}: re-entrant code came {SCENARIOS[name]()} times", flush=True)
        except BaseException:  # noqa: BLE001
            failed += 1
            print(f"{name}: FAILED\n{traceback.format_exc()}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main(sys.argv[1:])
