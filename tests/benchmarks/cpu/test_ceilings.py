"""What reads and writes cost at least: the parts that are measured alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import gzarr
from benchmarks.cpu.ceilings import inner_chunks, read_files, row, table, write_files


def test_files_are_written_and_read(tmp_path: Path) -> None:
    write_files([b"one", b"two!"], tmp_path)
    buffer = memoryview(bytearray(9))
    read_files([tmp_path / "1"], buffer)
    assert bytes(buffer[:4]) == b"two!"
    assert (tmp_path / "0").read_bytes() == b"one"


def test_the_chunks_of_a_shard_are_cut_out(tmp_path: Path) -> None:
    values = np.arange(16, dtype="u1")
    array = gzarr.create_array(tmp_path, shape=16, chunks=4, shards=16, dtype="u1", compressors=None)
    array[:] = values
    chunks = inner_chunks((tmp_path / "c" / "0").read_bytes(), 4)
    assert b"".join(chunks) == values.tobytes()


def test_the_table_has_a_column_for_every_head() -> None:
    line = row("read", 2.0, {"files": 0.5, "copies": 0.5})
    assert line[-1] == "2.00"
    lines = table([line], {"cpu": "a processor", "date": "today"}).splitlines()[2:]
    assert len({each.count("|") for each in lines}) == 1
