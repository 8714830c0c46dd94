"""System calls that fail, in the compiled loop and in the reference path: every chunk is old or new, and whole."""

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gzarr.cpu.compiled import library
from tests.cpu.compiled.looping import ROOT

pytestmark = [
    pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}"),
    pytest.mark.skipif(sys.platform != "linux", reason="preloads a library before the C library"),
]

#: What each script begins with: where it works, and the calls that can be made to fail.
PRELUDE = """
import ctypes, os, sys
from itertools import product
from pathlib import Path
import numpy as np
import gzarr
from gzarr.codecs import BloscCodec, BytesCodec, ShardingCodec
from gzarr.cpu.compiled import eligibility, library
assert library.status() == "on"
folder, options = Path(sys.argv[1]), eval(sys.argv[2])
set_fault = ctypes.CDLL(None).set_fault
OPEN, WRITE, RENAME, READ, OPEN_DIRECTORY, LOCK = 1, 2, 3, 4, 5, 6
WRITE_FAULTS = [(OPEN, 13), (OPEN, 24), (OPEN, 30), (WRITE, 28), (WRITE, 122), (WRITE, 5), (RENAME, 28), (RENAME, 13)]
once_or_always = 1, 1 << 30

def leftover_files():
    return [name for _, _, files in os.walk(folder) for name in files if "tmp" in name]
"""

#: In a process of its own: all faults of one array, for each the outcome of a write of all of it.
CODE = """
from gzarr.errors import StoreError
eligibility.MIN_SAVED = -1000  # shards of three chunks
old = np.arange(1, 300 * 600 + 1, dtype="i4").reshape(300, 600)
z = gzarr.create_array(folder, shape=old.shape, chunks=(100, 300), dtype="i4", **options)
gzarr.config.set(threading__max_workers=1)
for case in product(WRITE_FAULTS, (0, 2), once_or_always, (np.s_[...], np.s_[10:, 20:])):
    (function, error), after, count, keys = case
    z[...] = old
    new = old.copy()
    new[keys] += 1
    set_fault(function, error, after, count)
    try:
        z[keys] = new[keys]
        failed = False
    except StoreError as problem:
        failed = True
        assert os.strerror(error) in str(problem), problem
    finally:
        set_fault(0, 0, 0, 0)
    found = z[...]
    if count == 1 and not (failed and "shards" in options):
        assert not failed, case  # the reference path has done what the loop left
        assert (found == new).all(), case
    else:
        assert failed, case
        for i, j in product(range(0, 300, 100), range(0, 600, 300)):
            at = np.s_[i : i + 100, j : j + 300]
            assert (found[at] == old[at]).all() or (found[at] == new[at]).all(), case
    assert not leftover_files(), case
set_fault(OPEN_DIRECTORY, 24, 0, 1 << 30)
z[...] = old
set_fault(0, 0, 0, 0)
assert (z[...] == old).all()
"""

#: Another: all faults of reads of chunks of several blocks, whole and in part.
READS = """
model = np.random.default_rng(1).integers(0, 9999, (600, 600), "i4")
shape, chunks, codecs = model.shape, (300, 300), [BytesCodec(), BloscCodec("lz4", 5, "shuffle", 4, 1 << 13)]
if options:
    chunks, codecs = shape, [ShardingCodec(chunks, codecs)]
z = gzarr.create_array(folder, shape=shape, chunks=chunks, dtype="i4", codecs=codecs)
z[...] = model
gzarr.config.set(threading__max_workers=1)
failures = 0
selections = np.s_[...], np.s_[310:350, :], np.s_[::150, 20:400]
for error, after, count, keys in product((5, 0), range(12), once_or_always, selections):
    set_fault(READ, error, after, count)
    try:
        found = z[keys]
    except gzarr.errors.GzarrError as problem:
        failures += 1
        assert not error or os.strerror(error) in str(problem), problem
    else:
        assert (found == model[keys]).all(), (error, after, count, keys)
    finally:
        set_fault(0, 0, 0, 0)
assert failures
if options:  # a shard that changes while the loop reads it: nothing of that counts
    for keys, touched in product((np.s_[...], np.s_[310:350, 310:350]), (False, True)):
        z[keys]  # so that the index is known
        with gzarr.profile() as p:
            set_fault(READ, -1, 0, int(touched))
            assert (z[keys] == model[keys]).all()
            set_fault(0, 0, 0, 0)
        assert ("locate" in p.stages) == touched, p.stages
        set_fault(READ, -1, 0, int(touched))
        assert (z._basic().read(np.s_[310:350, 310:350], z.dtype) is None) == touched
        set_fault(0, 0, 0, 0)
"""

#: Another: files that cannot be read, or have become shorter, as chunks are fetched from them.
FETCHES = """
from gzarr.cpu.compiled.shards import ReadShards
from gzarr.gpu.native.fetch import LEFT, Wanted, fetch, make_fetch
from gzarr.indexing.copies import make_batches
from gzarr.indexing.plan import make_plan
from gzarr.indexing.selection import normalize
model = np.arange(1, 100 * 60 + 1, dtype="i4").reshape(100, 60)
codecs = [ShardingCodec((10, 10), [BytesCodec()])] if options else [BytesCodec()]
z = gzarr.create_array(folder, shape=model.shape, chunks=(20, 60) if options else (10, 10), dtype="i4", codecs=codecs)
z[...] = model
layout = z._io.layout
plan = make_plan(normalize(..., z.shape), layout.grid)
batches, source = make_batches(plan, layout.objects, 60), make_fetch(z._io.store, layout)
table = batches.table(0)
shards = ReadShards(z._io.store, layout, batches).find(0, table) if options else None
wanted = Wanted(np.ascontiguousarray(table.coords), shards)
some = set()
for error, after, count in product((5, 0), range(0, 70, 3), once_or_always):
    staging_buffer = np.zeros(1 << 16, np.uint8)
    set_fault(READ, error, after, count)
    offsets, sizes = fetch(source, wanted, staging_buffer)
    set_fault(0, 0, 0, 0)
    for at, start, size in zip(wanted.coords, offsets, sizes):
        i, j = at * 10
        assert size in (400, LEFT) and (start < 0) == (size < 0)
        if size > 0:
            chunk = staging_buffer[start : start + size].view("i4").reshape(10, 10)
            assert (chunk == model[i : i + 10, j : j + 10]).all()
    some.add(int((sizes == LEFT).sum()))
assert {0, 60} < some and (12 if options else 1) in some, some
"""

#: Another: files and shards that cannot be stored.
PUTS = """
from gzarr.gpu.native.fetch import NOT_WRITTEN, make_put
n, codecs = (4, [ShardingCodec((10,), [BytesCodec()])]) if options else (1, [BytesCodec()])
z = gzarr.create_array(folder, shape=6 * n * 10, chunks=n * 10, dtype="i4", codecs=codecs)
put = make_put(z._io.store, z._io.layout)
new = np.arange(1, z.size + 1, dtype="i4")
addresses, sizes = new.__array_interface__["data"][0] + 40 * np.arange(6 * n), np.full(6 * n, 40)
for (function, error), after, count in product(WRITE_FAULTS, (0, 2), once_or_always):
    z[...] = 7
    set_fault(function, error, after, count)
    left = put.put(np.arange(6)[:, None], addresses, sizes) == NOT_WRITTEN
    set_fault(0, 0, 0, 0)
    assert left.sum() == (1 if count == 1 else 6 - after), (function, error, after, count, left)
    expected = np.where(np.repeat(left, n * 10), 7, new)
    assert (z[...] == expected).all()
    assert not leftover_files()
"""

#: Another: another process that takes a new file before it is locked, or puts one in its place while it is written.
RACES = """
z = gzarr.create_array(folder, shape=1200, chunks=100, dtype="i4", compressors=None)
gzarr.config.set(threading__max_workers=1)
for (function, error), n in product(((LOCK, 0), (WRITE, -1)), (12, 1)):
    new = np.arange(100 * n, dtype="i4") + function + n
    set_fault(function, error, n // 2, 1)
    z[: 100 * n] = new
    set_fault(0, 0, 0, 0)
    (moved,) = folder.glob("c/*.moved")
    assert function != LOCK or moved.read_text() == "kept", moved.read_text()
    moved.unlink()
    assert (z[: 100 * n] == new).all(), (function, n)
    assert sorted(path.name for path in folder.glob("c/*")) == sorted(map(str, range(12)))
"""


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library whose calls fail."""
    compiler = shutil.which(os.environ.get("CC") or "gcc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    target = tmp_path_factory.mktemp("faulty") / "faulty.so"
    source = Path(__file__).with_name("faulty.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(target), "-ldl"], check=True)
    return target


@pytest.mark.parametrize(
    "options", ["{'compressors': None}", "{}", "{'zarr_format': 2}", "{'chunks': (100, 100), 'shards': (100, 300)}"]
)
def test_a_write_whose_system_calls_fail(options: str, preload: Path, tmp_path: Path) -> None:
    assert os.strerror(28) == os.strerror(errno.ENOSPC)
    run(CODE.replace("chunks=(100, 300), ", "") if "chunks" in options else CODE, options, preload, tmp_path)


@pytest.mark.parametrize("options", ["'sharded'", "''"])
def test_a_read_whose_system_calls_fail(options: str, preload: Path, tmp_path: Path) -> None:
    run(READS, options, preload, tmp_path)


@pytest.mark.parametrize("options", ["'sharded'", "''"])
def test_chunks_that_cannot_be_fetched_are_left(options: str, preload: Path, tmp_path: Path) -> None:
    run(FETCHES, options, preload, tmp_path)


@pytest.mark.parametrize("options", ["'sharded'", "''"])
def test_objects_that_cannot_be_stored_are_left_as_they_were(options: str, preload: Path, tmp_path: Path) -> None:
    run(PUTS, options, preload, tmp_path)


def test_files_that_another_process_puts_in_the_place_of_a_lock_are_not_touched(preload: Path, tmp_path: Path) -> None:
    run(RACES, "None", preload, tmp_path)


def run(code: str, options: str, preload: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "LD_PRELOAD": str(preload), "PYTHONPATH": str(ROOT)}
    script = f"{PRELUDE}{code}print('all cases hold')"
    command = [sys.executable, "-c", script, str(tmp_path / "x.zarr"), options]
    made = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr[-3000:]
    assert "all cases hold" in made.stdout
