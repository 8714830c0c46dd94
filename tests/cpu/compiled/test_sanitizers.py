"""The compiled loop under sanitizers of addresses and undefined behaviour: the tests of its parts, in one process."""

import json
from pathlib import Path

import pytest

from benchmarks.torture import sanitized
from gzarr.cpu.compiled import library

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

#: Tests by file, and which (``-k``): everything, but not every chain, as most of the time is not the loop's.
SELECTED = {
    "cpu/compiled/test_either_path.py": "loop_does or (damage and files) or (same_bytes and (zstd or shards))",
    "cpu/compiled/test_basic.py": "lie or one_call or other_keys or known or part or named or in_memory",
    "cpu/compiled/test_lies.py": "",
    "cpu/compiled/test_read.py": "axes or far or once or size",
    "cpu/compiled/test_shard_versions.py": "again",
    "cpu/compiled/test_points.py": "lie or together",
    "cpu/compiled/test_elements.py": "large",
    "cpu/compiled/test_read_blocks.py": "whole or damage or checksums or (every_selection and (6 or 7 or 21))",
    "cpu/compiled/test_shards.py": "several_calls or shared or (odd and (plain or zstd))",
    "cpu/compiled/test_blosc.py": "spread or zstd",
    "cpu/compiled/test_write.py": "empty",
    "cpu/compiled/test_filters.py": "lie or damage or (scaled_and_cast and f4)",
    "cpu/compiled/test_items.py": "",
    "cpu/compiled/test_reduce.py": "",
    "images/pyramid/test_downsample.py": "loop and (strides or views or (every and (u1 or f2 or i8)))",
    "gpu/native/test_put.py": "",
    "gpu/native/test_fetch.py": "",
    "gpu/codecs/blosc/test_parsing.py": "test_damage",  # LZ4 and Zstandard, sound and damaged
}


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The loop with sanitizers."""
    if reason := sanitized.absence():
        pytest.skip(reason)
    target = tmp_path_factory.mktemp("sanitized") / "loop.so"
    sanitized.build(target)
    return target


AGAIN = """
import json, pytest
for file, some in json.loads(sys.argv[2]).items():
    result = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-k", some, "tests/" + file])
    if result:
        sys.exit(f"{file}: {result}")
print("all passed")
"""


def test_the_loop_passes_under_sanitizers(loop: Path) -> None:
    result = sanitized.run(loop, AGAIN, json.dumps(SELECTED))
    assert result.stdout.endswith("all passed\n"), (result.stdout + result.stderr)[-6000:]


PLANTED = """
import numpy as np
from gzarr.cpu.compiled.source import LoopChain
import gzarr
z = gzarr.zeros((64, 64), chunks=(2, 64), dtype="i4", store=sys.argv[2])
made = LoopChain.job
def larger(chain, swap, separator, out, *more):
    return made(chain, swap, separator, np.zeros((64, 64), "i4")[::-1], *more)
LoopChain.job = larger
z[...]
print("survived")
"""


def test_planted_faults_are_found(loop: Path, tmp_path: Path) -> None:
    """The run above can fail: here the loop is told of a result that is there no more."""
    result = sanitized.run(loop, PLANTED, str(tmp_path / "z"))
    assert "survived" not in result.stdout
    assert "AddressSanitizer: heap-use-after-free" in result.stderr, result.stderr[-3000:]
    assert "/cpu/loop/" in result.stderr


AT_EXIT = """
import threading, time
import gzarr, numcodecs, numpy as np
slow = {"zarr_format": 2, "compressor": numcodecs.Zstd(12)}
z = gzarr.zeros((4096, 1024), chunks=(64, 1024), dtype="i4", store=sys.argv[2], **slow)
values = np.random.default_rng(0).integers(0, 1000, z.shape).astype("i4")
def write():
    while True:
        z[...] = values
for _ in range(2):
    threading.Thread(target=write, daemon=True).start()
time.sleep(0.5)
"""


def test_threads_may_write_while_the_interpreter_ends(loop: Path, tmp_path: Path) -> None:
    result = sanitized.run(loop, AT_EXIT, str(tmp_path / "z"))
    assert (result.returncode, result.stderr) == (0, "")


def test_torture_finds_nothing(loop: Path, tmp_path: Path) -> None:
    for name, store in sanitized.PARTS:
        counts = sanitized.tortured(loop, name, store, 1, 0.5, tmp_path)
        assert counts.operations
        assert not counts.losses, counts
