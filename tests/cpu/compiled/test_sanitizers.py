"""The compiled loop under sanitizers of addresses and undefined behaviour: the tests of its parts, in one process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from gzarr.cpu.compiled import library
from tests.cpu.compiled.looping import ROOT

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

#: A free-threaded Python has an allocator of its own only.
MALLOC = {} if sysconfig.get_config_var("Py_GIL_DISABLED") else {"PYTHONMALLOC": "malloc"}
#: Tests by file, and which (``-k``): everything, but not every chain, as most of the time is not the loop's.
SELECTED = {
    "cpu/compiled/test_basic.py": "lie or one_call or other_keys or strides or known or part or named or in_memory "
    "or (reference_path and zstd)",
    "cpu/compiled/test_read.py": "tables or axes or far or (all_of_it and (True or zstd)) "
    "or (damage and (lz4 or checksum)) or copies_are_cast",
    "cpu/compiled/test_points.py": "lie or shards or together or (large and 7)",
    "cpu/compiled/test_elements.py": "large",
    "cpu/compiled/test_buffers.py": "lie or damage or large or (chunks_in_memory and shards and memory)",
    "cpu/compiled/test_copies.py": "copies_are_cast or tables or axes or far or (in_memory and (shards or zstd))",
    "cpu/compiled/test_read_blocks.py": "tables or damage or shards or whole or (lists and 7)",
    "cpu/compiled/test_read_beginnings.py": "not selection",
    "cpu/compiled/test_shards.py": "several_calls or shared or (odd and (plain or zstd)) "
    "or (any_part and ((plain and start) or (zstd and end)))",
    "cpu/compiled/test_blosc.py": "spread or zstd",
    "cpu/compiled/test_write.py": "lie or empty or laid "
    "or (reference_path and False and 3 and (checksum or transposed or shards))",
    "cpu/compiled/test_filters.py": "lie or damage or (scaled_and_cast and f4)",
    "cpu/compiled/test_items.py": "",
    "cpu/compiled/test_put.py": "",
    "cpu/compiled/test_fetch.py": "",
    "cpu/compiled/test_reduce.py": "",
    "images/pyramid/test_downsample.py": "loop and (strides or views or (every and (u1 or f2 or i8)))",
    "gpu/codecs/blosc/test_parsing.py": "test_damage",  # LZ4 and Zstandard, sound and damaged
}


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The loop with sanitizers, and what to preload."""
    target = tmp_path_factory.mktemp("sanitized") / "loop.so"
    preload = build_sanitized(target)
    if preload is None:
        pytest.skip("there is no C compiler with sanitizers")
    return target, preload


def build_sanitized(target: Path) -> str | None:
    """Build the loop with sanitizers. Returns: what to preload; None if the compiler has no sanitizers."""
    compiler = shutil.which(os.environ.get("CC") or "gcc")
    if compiler is None:
        return None
    preloads = []
    for name in ("libasan.so", "libubsan.so"):
        found = subprocess.run([compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True)
        preloads.append(found.stdout.strip())
    if not all(Path(path).is_absolute() for path in preloads):
        return None
    flags = ["-std=c11", "-O1", "-g1", "-shared", "-fPIC", "-fno-omit-frame-pointer"]
    flags += ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64"]
    sources = sorted(map(str, (ROOT / "gzarr" / "cpu" / "loop").glob("*.c")))
    include = sysconfig.get_path("include")
    made = subprocess.run(
        [compiler, *flags, f"-I{include}", *sources, "-o", str(target)], check=False, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return ":".join(preloads)


AS_THE_LOOP = """
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("gzarr.cpu._loop", sys.argv[1])
module = module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules["gzarr.cpu._loop"] = module
"""


def run_sanitized(sanitized: tuple[Path, str], code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    library, preload = sanitized
    environment = {
        **os.environ,
        "LD_PRELOAD": preload,
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps memory until it exits
        **MALLOC,  # small objects have guards around them
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", AS_THE_LOOP + code, str(library), *arguments]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False, capture_output=True, text=True, timeout=600)


AGAIN = """
import json, pytest
for file, some in json.loads(sys.argv[2]).items():
    result = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-k", some, "tests/" + file])
    if result:
        sys.exit(f"{file}: {result}")
print("all passed")
"""


def test_the_loop_passes_under_sanitizers(sanitized: tuple[Path, str]) -> None:
    result = run_sanitized(sanitized, AGAIN, json.dumps(SELECTED))
    assert result.stdout.endswith("all passed\n"), (result.stdout + result.stderr)[-6000:]


PLANTED = """
import numpy as np
from gzarr.cpu.compiled.source import LoopChain
import gzarr
z = gzarr.zeros((64, 64), chunks=(2, 64), dtype="i4", store=sys.argv[2])
made = LoopChain.job
def larger(chain, swap, separator, out, npoints):
    return made(chain, swap, separator, np.zeros((64, 64), "i4")[::-1], npoints)
LoopChain.job = larger
z[...]
print("survived")
"""


def test_planted_faults_are_found(sanitized: tuple[Path, str], tmp_path: Path) -> None:
    """The run above can fail: here the loop is told of a result that is there no more."""
    result = run_sanitized(sanitized, PLANTED, str(tmp_path / "z"))
    assert "survived" not in result.stdout
    assert "AddressSanitizer: heap-use-after-free" in result.stderr, result.stderr[-3000:]
    assert "/cpu/loop/" in result.stderr
