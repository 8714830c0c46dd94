"""What a read on the CPU allocates: its result, and a batch and a chunk or two a thread, of which little is kept."""

import os
import sys
import threading
import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest
from numcodecs import Blosc, Delta, GZip, Zstd

import gzarr
from gzarr.cpu.backend import BATCH_NBYTES
from gzarr.cpu.compiled import library
from gzarr.cpu.scratch import _spare, lent_scratch, measured
from gzarr.storage import LocalStore
from tests.support.memory import traced
from tests.support.processes import run_python

DATA = np.cumsum(np.random.default_rng(0).integers(0, 9, (512, 8192)), axis=0).astype("i4")  # 16 MiB
CHUNKS = (8, 8192)  # 256 KiB
CHUNK_NBYTES = 1 << 18
N_THREADS = 2
#: Chunks that a thread may have decoded at once: one, and what each filter before it makes of it.
CHAINS = {
    "raw": ({"compressor": None}, 1),
    "blosc": ({"compressor": Blosc("lz4", 1, Blosc.SHUFFLE)}, 1),
    "zstd": ({"compressor": Zstd(1)}, 1),
    "gzip": ({"compressor": GZip(1)}, 2),
    "delta": ({"compressor": Zstd(1), "filters": [Delta("i4")], "zarr_format": 2}, 3),
    "sharded": ({"compressor": None, "shards": (64, 8192)}, 1),
}
#: Prints by how much the peak of resident memory grows in the first write of chunks of 4 MiB, one thread.
FIRST_WRITE = """
import sys
from pathlib import Path
import numpy as np
import gzarr
from gzarr.codecs import BloscCodec
gzarr.config.set({"threading.max_workers": 1})
values = np.random.default_rng(0).integers(0, 1 << 20, (1024, 2048), "i4")
codec = BloscCodec(sys.argv[2], 5, "shuffle")
def create(side):
    sizes = {"shape": values.shape, "chunks": (side, side)}
    return gzarr.create_array(f"{sys.argv[1]}/{side}", dtype="i4", compressors=codec, device="cpu", **sizes)
create(32)[:32, :32] = 1
Path("/proc/self/clear_refs").write_text("5")
def now(field):
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(field))
before = now("VmRSS")
array = create(1024)
array[...] = values
print(now("VmHWM") - before)
"""
#: Python's own objects.
SLACK_NBYTES = 1 << 18


def test_long_lists_of_indices_take_few_times_their_size(tmp_path) -> None:
    n = 1 << 18
    array = gzarr.create_array(LocalStore(tmp_path), shape=n, chunks=n >> 4, dtype="u1", compressors=None)
    array[...] = np.arange(n) % 251
    wanted = np.random.default_rng(0).permutation(n)
    peaks = []
    for native in (False, True):
        with gzarr.config.set({"threading.max_workers": N_THREADS, "cpu.native": native}):
            np.testing.assert_array_equal(array.oindex[wanted], wanted % 251)
            with traced() as peak:
                array.oindex[wanted]
                peaks.append(peak())
    # the loop's table holds two lists: positions in chunks and in the result; it is joined, then copied
    assert peaks[1] <= peaks[0] + 4 * wanted.nbytes + SLACK_NBYTES


@pytest.mark.parametrize("chain", CHAINS)
def test_a_second_read_allocates_its_result_and_little_more(tmp_path, chain) -> None:
    options, n_chunks = CHAINS[chain]
    array = gzarr.create_array(LocalStore(tmp_path), data=DATA, chunks=CHUNKS, device="cpu", **options)
    out = np.empty_like(DATA)
    with gzarr.config.set({"threading.max_workers": N_THREADS}):
        for target in (None, out):
            array.get_basic_selection(..., out=target)
            with traced() as traced_peak:
                found = array.get_basic_selection(..., out=target)
                peak = traced_peak()
            np.testing.assert_array_equal(found, DATA)
            own = 0 if target is not None else DATA.nbytes
            # A shard is one read.
            read = 8 * CHUNK_NBYTES if chain == "sharded" else BATCH_NBYTES
            assert peak <= own + N_THREADS * (read + n_chunks * CHUNK_NBYTES) + SLACK_NBYTES


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux which pages are there")
@pytest.mark.parametrize(("cname", "limit_nbytes"), [("lz4", 5 << 19), ("zstd", 6 << 20)])
def test_the_first_write_of_large_chunks_touches_few_pages(tmp_path, cname, limit_nbytes) -> None:
    if library.loop() is None:
        pytest.skip(f"the compiled loop is {library.status()}")
    assert int(run_python(FIRST_WRITE, args=[tmp_path, cname])) <= limit_nbytes


def test_threads_leave_scratch_memory_for_as_many_as_decode_at_once() -> None:
    """Threads that wait for servers are many more than cores, and do not end."""
    _spare.clear()  # what other tests have left may be referred to from elsewhere
    n_threads = 3 * (os.cpu_count() or 1)
    meeting = threading.Barrier(n_threads + 1, timeout=60)
    lent: list[weakref.ref[Any]] = []

    def decode() -> None:
        with lent_scratch() as scratch:
            lent.append(weakref.ref(scratch.room(1 << 20).base))
            meeting.wait()
        del scratch
        meeting.wait()
        meeting.wait()

    threads = [threading.Thread(target=decode) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    meeting.wait()
    meeting.wait()
    n_kept = sum(memory() is not None for memory in lent)
    meeting.wait()
    for thread in threads:
        thread.join()
    assert len(lent) == n_threads
    assert n_kept == n_threads // 3


def test_threads_that_come_into_the_interpreter_do_so_before_tracing_stops(monkeypatch) -> None:
    """They may be waiting for its lock with an allocation that is traced."""
    order: list[str] = []
    monkeypatch.setattr("gzarr.cpu.scratch.sleep", lambda seconds: order.append(f"{seconds > 0}"))
    stop = tracemalloc.stop
    monkeypatch.setattr(tracemalloc, "stop", lambda: (order.append("stop"), stop()))
    assert measured(lambda: order.append("call"))[1] is not None
    assert order == ["call", "True", "stop"]
