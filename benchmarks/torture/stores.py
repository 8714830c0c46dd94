"""The kinds of stores that live on this machine, opened by gzarr in the process that asks."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.s3.server import BUCKET
from benchmarks.torture.children import apart
from benchmarks.torture.scenario import Counts

DATABASES = ("sqlite", "s3")
PROCESSES = ("local", *DATABASES)  # several processes may write
SEEN = ("local", "views", *DATABASES)  # and see a directory in several ways
AT_CLOSE = ("zip",)  # promises nothing before they are closed
KEPT = (*PROCESSES, *AT_CLOSE)  # outlive the process
TEMPORARY = "__gzarr_tmp"  # what the names of gzarr's temporary files and locks contain
START_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where one hierarchy is stored: a kind of store, a folder and a name of its own."""

    kind: str
    folder: Path
    name: str = "x"

    @property
    def path(self) -> Path:
        """The file or directory; servers have none."""
        return self.folder / f"{self.name}.{ENDINGS[self.kind]}"

    def store(self, mode: str = "a") -> Any:
        """Open the store. mode: "a" or "r"."""
        return OPENERS[self.kind](self, mode)

    def remove(self) -> None:
        """Delete everything, with what lies beside it."""
        for path in self.folder.glob(f"{self.name}.*"):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if self.kind in SERVERS:
            apart(self._clear)  # a process that has used obstore cannot be forked

    def _clear(self) -> None:
        with self.store() as store:
            store.clear()


def leftover_files(place: Place) -> Counts:
    """Files of a local directory that are no objects: temporary ones, and locks."""
    if place.kind not in ("local", "views"):
        return Counts()
    names = [str(p.relative_to(place.path)) for p in place.path.rglob("*") if TEMPORARY in p.name]
    return Counts(leftover_files=len(names), notes=(f"leftover files: {sorted(names)[:5]}",) if names else ())


def _local(place: Place, mode: str) -> Any:
    import gzarr

    return gzarr.LocalStore(place.path, read_only=mode == "r")


def _views(place: Place, mode: str) -> Any:
    """A directory as each process may see it: plainly, through a link, a cache, a wrapper or a synchronizer."""
    import gzarr
    from gzarr.storage import CountingStore, LRUStoreCache, synchronized

    link = place.path.with_suffix(".link")
    place.path.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        link.symlink_to(place.path)
    views: list[Callable[[], Any]] = [
        lambda: gzarr.LocalStore(place.path),
        lambda: gzarr.LocalStore(link),
        lambda: LRUStoreCache(gzarr.LocalStore(place.path), 1 << 20),
        lambda: CountingStore(gzarr.LocalStore(link)),
        lambda: synchronized(gzarr.LocalStore(place.path), gzarr.ProcessSynchronizer(place.path.with_suffix(".sync"))),
    ]
    return views[os.getpid() % len(views)]()


def _zip(place: Place, mode: str) -> Any:
    import gzarr

    return gzarr.ZipStore(place.path, mode)  # type: ignore[arg-type]


def _sqlite(place: Place, mode: str) -> Any:
    from gzarr.storage import SQLiteStore

    return SQLiteStore(place.path)


def _s3(place: Place, mode: str) -> Any:
    import gzarr

    endpoint = f"http://127.0.0.1:{(place.folder / 's3.port').read_text()}"
    options = {"key": "x", "secret": "x", "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"}}
    return gzarr.storage.open_store(f"s3://{BUCKET}/{place.name}", storage_options=options)[0]


def _memory(place: Place, mode: str) -> Any:
    import gzarr

    return gzarr.storage.open_store(f"memory://{place.name}")[0]


OPENERS: dict[str, Callable[[Place, str], Any]] = {
    "local": _local,
    "views": _views,
    "zip": _zip,
    "sqlite": _sqlite,
    "s3": _s3,
    "memory": _memory,
}
ENDINGS = {"local": "zarr", "views": "zarr", "zip": "zip", "sqlite": "sqlite", "s3": "s3"}
ENDINGS["memory"] = "memory"


def absence(kind: str) -> str | None:
    """Why a kind of store cannot be used on this machine; None if it can."""
    if kind == "s3" and not importlib.util.find_spec("obstore"):
        return "no obstore"
    return None


def program(name: str) -> str | None:
    """Path of a program: beside this Python, where wheels put theirs, else on PATH."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def import_client(kind: str) -> None:
    """Import what a kind of store needs, so that forked processes need not."""
    modules = {"sqlite": "sqlite3", "s3": "obstore"}
    if kind in modules:
        importlib.import_module(modules[kind])


@contextlib.contextmanager
def served(kind: str, folder: Path) -> Iterator[None]:
    """Run the server that a kind of store needs."""
    if kind not in SERVERS:
        yield
        return
    with SERVERS[kind](folder) as server:
        try:
            yield
        finally:
            server.kill()


def _s3_server(folder: Path) -> subprocess.Popen[str]:
    """The server of the benchmarks: one thread answers, so a condition and the change that it guards are one step."""
    (folder / "s3").mkdir()
    command = [sys.executable, "-m", "benchmarks.s3.server", str(folder / "s3"), "0", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    (folder / "s3.port").write_text(server.stdout.readline().strip())
    return server


SERVERS = {"s3": _s3_server}
