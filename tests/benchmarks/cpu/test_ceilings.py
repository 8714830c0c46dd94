"""What the rows cost at least: what is counted, and the parts that are measured alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.cpu.catalogue import BY_NAME
from benchmarks.cpu.ceilings import (
    Step,
    bare,
    codecs,
    decode,
    do_steps,
    encoded,
    merged_nchunks,
    network_s,
    row,
    table,
)
from benchmarks.cpu.counted import Call, Counted, Counts, Watched, count
from benchmarks.cpu.data import DATASETS, SMALL, Cache
from benchmarks.cpu.measure import DELAY_S
from benchmarks.cpu.workloads import ALL, Bench
from gzarr.storage import MemoryStore, Request


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Small datasets, and a driver that counts."""
    folder = tmp_path_factory.mktemp("ceilings")
    made = Bench(Counted(), Cache(folder, SMALL), folder / "written")
    for name in ("lz4-i4", "sharded-zstd-i4"):
        values = np.asarray(made.values(name))
        made.driver.write(made.driver.create(made.path(name), DATASETS[name].layout(SMALL)), ALL, values)
    return made


def counted(bench: Bench, name: str) -> Counts:
    driver: Any = bench.driver
    return count(driver, BY_NAME[name].prepare(bench))


def test_a_read_of_all_is_every_file_decoded_and_copied_once(bench: Bench) -> None:
    counts = counted(bench, "read all, lz4 i4")
    files = list((bench.path("lz4-i4") / "c").rglob("*"))
    assert counts.decoded_nbytes == sum(path.stat().st_size for path in files if path.is_file())
    assert counts.copied_nbytes == sum(counts.results_nbytes) == 4 * SMALL.side**2
    (step,) = counts.steps
    assert sum(len(call.what) for call in step if call.verb == "get") == 64


def test_each_call_of_the_driver_is_a_step(bench: Bench) -> None:
    counts = counted(bench, "100 inner chunks of shards, one call each")
    assert len(counts.steps) == len(counts.results_nbytes) == 100


def test_a_write_of_a_part_decodes_and_encodes_the_chunks_that_it_touches(bench: Bench) -> None:
    counts = counted(bench, "write a part of a shard")
    assert counts.encoded_nchunks == 4
    assert merged_nchunks(counts, per_object=4, fresh=False) == 4
    assert counts.copied_nbytes == 4 * (SMALL.small // 2 * 2) ** 2


def test_a_new_array_has_no_chunks_to_merge_until_they_are_written(bench: Bench) -> None:
    counts = counted(bench, "append four times half a row of chunks")
    assert merged_nchunks(counts, 1, fresh=True) == 16
    assert merged_nchunks(counted(bench, "fill a new array, lz4 i4"), 1, fresh=True) == 0


@pytest.mark.parametrize("name", ["write a part of a shard", "open an array"])
def test_local_rows_have_files_and_codecs_but_no_network(bench: Bench, name: str) -> None:
    costs = bare(BY_NAME[name], bench, rounds=1)
    assert costs["files"] > 0
    assert costs["codec"] > 0
    assert costs["network"] == 0


@pytest.mark.parametrize("name", ["lz4-i4", "shuffle-gzip-f4", "packed-zlib-f4", "strings"])
def test_the_codecs_of_a_layout_take_values_there_and_back(name: str) -> None:
    layout = DATASETS[name].layout(SMALL)
    values = np.zeros(layout.chunks, object if layout.dtype == "string" else layout.dtype)
    if layout.dtype == "string":
        values[:] = "name"
    chain = codecs(layout)
    decode(encoded(values, chain), chain, np.empty(values.nbytes, "u1"))


def test_requests_take_rounds_of_as_many_as_are_under_way_at_once() -> None:
    store = Watched(MemoryStore(), None, lambda _: None)
    store.concurrency = 64
    document = Call(store, "get", (Request("zarr.json"),))
    chunks = Call(store, "get", tuple(Request(f"c/{n}") for n in range(65)))
    index = Call(store, "get with version", (Request("c/0", -16),))
    counts = Counts(((document,), (index, chunks)), 0, 0, 0, (), transferred_nbytes=65 * 10)
    assert network_s(counts, None) == pytest.approx(4 * DELAY_S)
    assert network_s(counts, rate=100.0) == pytest.approx(4 * DELAY_S + 2 * 0.1)


def test_files_are_written_looked_at_and_read(tmp_path: Path) -> None:
    buffer = memoryview(bytearray(9))
    path = str(tmp_path / "1")
    do_steps([Step("write", path, content=b"two!"), Step("read", path, ((1, 3),)), Step("look", path)], buffer)
    assert bytes(buffer[:3]) == b"wo!"


def test_the_table_has_a_column_for_every_head() -> None:
    line = row("read", 2.0, {"files": 0.5, "copies": 0.5})
    assert line[-1] == "2.00"
    lines = table([line], {"cpu": "a processor", "date": "today"}).splitlines()[2:]
    assert len({each.count("|") for each in lines}) == 1
