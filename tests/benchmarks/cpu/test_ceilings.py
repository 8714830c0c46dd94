"""What the rows cost at least: what is counted, and the parts that are measured alone."""

from typing import Any

import numpy as np
import pytest

from benchmarks.cpu.catalogue import BY_NAME
from benchmarks.cpu.counted import Counted, Counts, count
from benchmarks.cpu.data import DATASETS, SMALL, Cache
from benchmarks.cpu.workloads import ALL, Bench


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
