"""Long operations give on every engine, byte for byte, what they give in one process; with killed workers, too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr

SMALL: dict[str, Any] = {"budget_nbytes": 200_000}
ROOT = Path(__file__).parents[2]


def stored(path: Path) -> dict[str, bytes]:
    """Everything below a path."""
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scale") / "source.zarr"
    rng = np.random.default_rng(1)
    root = gzarr.create_group(path, attributes={"title": "x"})
    big = rng.integers(0, 300, (300, 400)).astype("i4")
    big[40:80] = 0
    root.create_array("big", data=big, chunks=(20, 50))
    root.create_array("small/sharded", data=rng.random((90, 60)), chunks=(5, 6), shards=(30, 30))
    root.create_array("scalar", data=np.float32(3))
    return path


def rechunk(source: Path, out: Path, **how: Any) -> dict[str, bytes]:
    gzarr.transfer(str(source), out, chunks=(30, 30), shards=None, each={"scalar": {"chunks": ()}}, **SMALL, **how)
    return stored(out)


def encoded(source: Path, out: Path, **how: Any) -> dict[str, bytes]:
    gzarr.transfer(str(source), out, **how)
    return stored(out)


def convert(source: Path, out: Path, **how: Any) -> dict[str, bytes]:
    file = out.parent / "a.h5"
    if not file.exists():
        gzarr.convert.to_hdf5(gzarr.open(source)["small"], file)
    gzarr.convert.from_hdf5(file, out, group="/sharded", chunks=(20, 20), **SMALL, **how)
    return stored(out)


OPERATIONS: dict[str, Callable[..., Any]] = {one.__name__: one for one in (rechunk, encoded, convert)}


@pytest.mark.parametrize("name", OPERATIONS)
def test_engines_give_what_one_process_gives(name: str, source: Path, tmp_path: Path, engine: Any) -> None:
    operation = OPERATIONS[name]
    assert operation(source, tmp_path / "there.zarr", on=engine) == operation(source, tmp_path / "here.zarr")


def run_python(code: str, *arguments: Any) -> subprocess.Popen[str]:
    """A process of its own."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    settings = {"PYTHONPATH": str(ROOT), "GZARR_THREADING__MAX_WORKERS": "1"}
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE, env={**os.environ, **settings})


#: A part of a copy. The first one is killed amid its part, when it replaces its fifth file.
PART = """
import os, signal, sys, gzarr
source, out, k, n, kill = *sys.argv[1:3], *map(int, sys.argv[3:])
real = os.replace
def replace(*names):
    global kill
    kill -= 1
    if kill == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(*names)
os.replace = replace
gzarr.config.set({"cpu.native": False})
options = {"each": {"scalar": {"chunks": ()}}, "budget_nbytes": 200_000}
report = gzarr.transfer(source, out, chunks=(30, 30), shards=None, part=(k, n), **options)
"""


def test_processes_that_know_only_the_target_finish_one_copy(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.zarr"
    parts = [run_python(PART, source, out, k, 3, 5 if k == 0 else 0) for k in range(3)]
    errors = [part.communicate()[1] for part in parts]
    assert [part.returncode for part in parts] == [-signal.SIGKILL, 0, 0], errors
    with pytest.raises(gzarr.NodeNotFoundError, match="unfinished copy"):
        gzarr.open(out, mode="r")
    again = run_python(PART, source, out, 0, 3, 0)
    assert again.communicate()[1] == ""
    assert stored(out) == rechunk(source, tmp_path / "here.zarr")
    late = gzarr.transfer(str(source), out, chunks=(30, 30), shards=None, each={"scalar": {"chunks": ()}}, part=(1, 3))
    assert (late.nskipped, len(late.arrays)) == (3, 0)


def test_a_copy_that_lost_its_scheduler_goes_on_elsewhere(source: Path, tmp_path: Path, dask_client: Any) -> None:
    out = tmp_path / "out.zarr"
    killed = run_python(PART, source, out, 1, 3, 5)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*/c/*/*") if ".__" not in p.name}
    assert before
    assert rechunk(source, out, on=dask_client, resume=True) == rechunk(source, tmp_path / "here.zarr")
    assert sum(p.stat().st_mtime_ns != when for p, when in before.items()) <= 20  # of one region


def test_what_workers_cannot_share_is_refused(source: Path) -> None:
    with pytest.raises(gzarr.CopyError, match=r"in memory of this process, which workers cannot share.*leave on= out"):
        gzarr.transfer(str(source), "memory://elsewhere", on=1)
    with pytest.raises(ValueError, match="two ways to use several machines"):
        gzarr.transfer(str(source), "memory://elsewhere", on=1, part=(0, 2))
    with pytest.raises(gzarr.CopyError, match="on='spark' runs nothing"):
        gzarr.transfer(str(source), "memory://another", on="spark")
    with pytest.raises(ValueError, match="would delete what others write"):
        gzarr.transfer(str(source), "memory://elsewhere", part=(0, 2), if_exists="replace")
