"""Long operations give on every engine, byte for byte, what they give in one process; with killed workers, too."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
import gzarr.checking.chunks
import gzarr.checking.values
import gzarr.images
from gzarr.cli.main import main
from gzarr.hierarchy import create

SMALL: dict[str, Any] = {"budget_nbytes": 200_000}
ROOT = Path(__file__).parents[2]


def stored(path: Path, part: Any = None, **_: Any) -> dict[str, bytes]:
    """Everything below a path; nothing for one of several parts, beside which others write and delete there."""
    return {} if part else {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


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
    return stored(out, **how)


def stats(source: Path, out: Path, **how: Any) -> str:
    one = gzarr.open_array(source, "r", path="small/sharded")
    return repr(one.stats(bins=9, max_nbytes=8000, **how)) + repr(one.stats(max_nbytes=8000, **how))


def projection(source: Path, out: Path, **how: Any) -> bytes:
    one, some = gzarr.open_array(source, "r", path="big"), {"max_nbytes": 8000, **how}
    highest: Any = gzarr.images.reduce_blocks(lambda block: block.max(axis=0), one, np.maximum, axis=0, **some)
    total: Any = gzarr.images.reduce_blocks(lambda block: np.float32(block.sum() / 7), one, np.add, **some)
    return bytes(highest.tobytes() + total.tobytes())


def verify(source: Path, out: Path, **how: Any) -> Any:
    copied = shutil.copytree(source, out)
    (copied / "big/c/1/1").write_bytes(b"damaged")
    (copied / "big/c/13/2").write_bytes(b"damaged")
    found = gzarr.verify(copied, **how).to_json()
    assert len(found["problems"]) == 2
    return {**found, "name": ""}


def compare(source: Path, out: Path, **how: Any) -> Any:
    gzarr.open_array(shutil.copytree(source, out), "r+", path="big")[45:250:7, 3] = 999
    found = gzarr.compare(str(source), str(out), **how).to_json()
    assert found["differences"][0]["values"]["count"] == 30
    return {**found, "b": ""}


def smoothed(source: Path, out: Path, **how: Any) -> dict[str, bytes]:
    one, some = gzarr.open_array(source, "r", path="big"), {"dtype": "f4", "max_nbytes": 120_000, **how}

    def blur(block: Any, other: Any) -> Any:
        return (block + np.roll(block, 1, 0) / 3 + np.roll(other, -2, 1)).astype("f4")

    gzarr.images.map_overlap(blur, [one, one], out / "a", {0: 1, 1: 2}, "mirror", **some)
    gzarr.images.map_blocks(lambda block: block.astype("f4") * np.float32(0.5), one, out / "b", **some)
    return stored(out, **how)


def labelled(source: Path, out: Path, **how: Any) -> dict[str, bytes]:
    mask = image_of(source)[0]
    coarse = gzarr.images.map_blocks(lambda block: block > 200, mask, None)
    gzarr.save(source.parent / "mask.zarr", coarse[...], chunks=(40, 50))
    small = {"max_nbytes": 1_500_000, **how}
    gzarr.images.label(str(source.parent / "mask.zarr"), str(out / "a"), 2, **small)
    image = gzarr.images.create_image(out / "b", shape=mask.shape, dtype="u4", axes="yx", chunks=(32, 32))
    gzarr.images.label(str(source.parent / "mask.zarr"), image, **small)
    gzarr.images.merge_labels(str(out / "a"), str(out / "c"), threshold=0.1, **small)
    return stored(out)


def image_of(source: Path) -> Any:
    path = source.parent / "image.zarr"
    data = gzarr.open_array(source, "r", path="big")[...].astype("u2")
    if not path.exists():
        gzarr.images.create_image(path, data, levels=0, chunks=(16, 16), shards=(32, 64), scale=0.5, axes="yx")
    return gzarr.images.open_image(path, "r")


def pyramids(source: Path, out: Path, **how: Any) -> dict[str, bytes]:
    image, some = image_of(source), {"max_nbytes": 250_000, **how}
    for method in ("mean", "gaussian") if "part" not in how else ("mean",):
        gzarr.images.build_pyramid(image, 2, method=method, out=out / method, **some)
    for method in ("mode", "gaussian"):
        copied = out / f"of_{method}"
        if not copied.exists():
            shutil.copytree(source.parent / "image.zarr", copied)
        gzarr.images.build_pyramid(copied, 3, method=method, **some)
    gzarr.images.map_overlap(
        lambda block: np.sqrt(block.astype("f4")), image, out / "roots", 0, levels=2, dtype="f4", **some
    )
    return stored(out, **how)


OPERATIONS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (rechunk, encoded, convert, stats, projection, verify, compare, smoothed, pyramids, labelled)
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_engines_give_what_one_process_gives(
    name: str, source: Path, tmp_path: Path, processes: Any, dask_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = OPERATIONS[name]
    expected = operation(source, tmp_path / "here.zarr")
    for checked in (gzarr.checking.chunks, gzarr.checking.values):
        monkeypatch.setattr(checked, "REGION_NBYTES", 20_000)
    with ThreadPoolExecutor(4) as threads:
        for engine in (processes, dask_client, threads):
            assert operation(source, tmp_path / f"{type(engine).__name__}.zarr", on=engine) == expected, engine


@pytest.mark.parametrize("name", ["convert", "smoothed", "pyramids"])
def test_parts_at_once_make_what_one_process_makes(name: str, source: Path, tmp_path: Path, processes: Any) -> None:
    operation = OPERATIONS[name]
    made = operation(source, tmp_path / "here.zarr")
    expected = {path: data for path, data in made.items() if not path.startswith("gaussian")}
    for method in ("mode", "gaussian") if name == "pyramids" else ():
        shutil.copytree(image_of(source).group.store.root, tmp_path / "parts.zarr" / f"of_{method}")
    for _ in range(2):  # tasks that are started again change nothing
        parts = [processes.submit(operation, source, tmp_path / "parts.zarr", part=(k, 3)) for k in range(3)]
        wait(parts)
        assert [part.exception() for part in parts] == [None] * 3
        assert stored(tmp_path / "parts.zarr") == expected


def test_commands_run_on_processes_on_a_scheduler_and_as_parts(
    source: Path, tmp_path: Path, dask_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copied(name: str, *options: str) -> Path:
        out = tmp_path / name
        assert main(["copy", str(source / "big"), str(out), "--chunks", "30,30", *options]) == 0
        return out

    here = copied("here.zarr")
    scheduler = dask_client.scheduler.address.replace("tcp://", "dask://")
    for options in (["--workers", "2"], ["--on", scheduler]):
        assert stored(copied(f"{options[0]}.zarr", *options)) == stored(here)
    assert main(["compare", str(here), str(source / "big"), "--on", scheduler]) == 0
    assert main(["stats", str(here), "--on", scheduler]) == 0
    assert main(["verify", str(here), "--on", scheduler]) == 0
    assert not (copied("parts.zarr", "--part", "1/2") / "zarr.json").exists()
    for name, value in (("ID", 7), ("MIN", 7), ("COUNT", 2), ("STEP", 5)):
        monkeypatch.setenv(f"SLURM_ARRAY_TASK_{name}", str(value))
    assert stored(copied("parts.zarr", "--part", "slurm")) == stored(here)
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "9")
    with pytest.raises(SystemExit, match="2"):
        main(["verify", str(here), "--part", "slurm"])  # of a list of tasks, not a range
    image = shutil.copytree(image_of(source).group.store.root, tmp_path / "image.zarr")
    assert main(["ome", "pyramid", str(image), "--levels", "1", "--workers", "1"]) == 0
    assert len(gzarr.images.open_image(image)) == 2
    (here / "c/9/9").write_bytes(b"damaged")
    assert main(["verify", str(here), "--part", "0/1"]) == 1
    for misused in (["2/2"], ["1/2", "--workers", "2"]):
        with pytest.raises(SystemExit, match="2"):
            main(["verify", str(here), "--part", *misused])


def test_ray_gives_what_one_process_gives(source: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    for name in ("rechunk", "stats", "verify", "compare"):
        there = OPERATIONS[name](source, tmp_path / f"{name}-ray.zarr", on="ray")
        assert there == OPERATIONS[name](source, tmp_path / f"{name}-here.zarr"), name


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
    assert [part.returncode for part in parts] == [-signal.SIGKILL, 0, 0], "\n".join(errors)
    with pytest.raises(gzarr.NodeNotFoundError, match="unfinished copy"):
        gzarr.open(out, mode="r")
    again = run_python(PART, source, out, 0, 3, 0)
    assert again.communicate()[1] == ""
    assert stored(out) == rechunk(source, tmp_path / "here.zarr")
    late = gzarr.transfer(str(source), out, chunks=(30, 30), shards=None, each={"scalar": {"chunks": ()}}, part=(1, 3))
    assert (late.nskipped, len(late.arrays)) == (3, 0)


def test_a_part_goes_on_with_what_another_has_just_begun(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, make_room = tmp_path / "out.zarr", create.make_room

    def after_another(*args: Any, **options: Any) -> None:
        monkeypatch.setattr(create, "make_room", make_room)
        rechunk(source, out, part=(1, 3))
        make_room(*args, **options)

    monkeypatch.setattr(create, "make_room", after_another)
    rechunk(source, out, part=(0, 3))
    assert rechunk(source, out, part=(2, 3)) == rechunk(source, tmp_path / "here.zarr")


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
