"""Other scenarios with the compiled loop built for sanitizers of addresses and of undefined behaviour."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

from benchmarks.torture.scenario import Counts, Scenario, Setting

ROOT = Path(__file__).parents[2]
FOLDERS = "gzarr/cpu/loop", "gzarr/gpu/native"  # as in setup.py
LIMIT_S = 60.0  # beyond twice the budget, as everything takes several times as long
REPORT = "sanitizer"  # what the names of the sanitizers' reports begin with
#: Scenarios whose work is the loop's, with stores that it reads and writes itself.
PARTS = (("damaged objects", "none"), ("programs by threads", "local"), ("programs by threads", "memory"))
#: A free-threaded Python has an allocator of its own only. Otherwise small objects have guards around them.
MALLOC = {} if sysconfig.get_config_var("Py_GIL_DISABLED") else {"PYTHONMALLOC": "malloc"}
AS_THE_LOOP = """
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("gzarr.cpu._loop", sys.argv[1])
module = module_from_spec(spec)
spec.loader.exec_module(module)
sys.modules["gzarr.cpu._loop"] = module
"""
CELL = "from benchmarks.torture.cell import main; main(sys.argv[2:])"


def sanitizers(setting: Setting) -> Counts:
    """Damaged chunks, and programs by threads."""
    library, total, end = setting.folder / "loop.so", Counts(), time.monotonic() + setting.budget_s
    build(library)
    for number, (name, store) in enumerate(PARTS):
        share_s = max((end - time.monotonic()) / (len(PARTS) - number), 1.0)
        total += tortured(library, name, store, setting.seed, share_s, setting.folder)
    return total


def absence() -> str | None:
    """Why the loop cannot be built; None if it can."""
    return None if preloads() else "there is no C compiler with sanitizers"


def preloads() -> str | None:
    """What to preload; None if there is no compiler with sanitizers."""
    compiler = shutil.which(os.environ.get("CC") or "gcc")
    if compiler is None:
        return None
    found = []
    for name in ("libasan.so", "libubsan.so"):
        done = subprocess.run([compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True)
        found.append(done.stdout.strip())
    return ":".join(found) if all(Path(path).is_absolute() for path in found) else None


def build(target: Path) -> None:
    """Build the loop with sanitizers. Raises: RuntimeError with what the compiler says."""
    flags = ["-std=c11", "-O1", "-g1", "-shared", "-fPIC", "-fno-omit-frame-pointer"]
    flags += ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64"]
    sources = [str(file) for folder in FOLDERS for file in sorted((ROOT / folder).glob("*.c"))]
    command = [os.environ.get("CC") or "gcc", *flags, f"-I{sysconfig.get_path('include')}", *sources, "-o", str(target)]
    made = subprocess.run(command, check=False, capture_output=True, text=True)
    if made.returncode:
        raise RuntimeError(made.stderr)


def run(
    library: Path, code: str, *arguments: str, timeout_s: float = 600, options: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run Python code whose loop is the one that was built. options: of the sanitizers, besides those needed."""
    environment = {
        **os.environ,
        **MALLOC,
        "LD_PRELOAD": preloads() or "",
        "ASAN_OPTIONS": f"detect_leaks=0{options}",  # Python keeps memory until it exits
        "UBSAN_OPTIONS": f"print_stacktrace=1{options}",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, "-c", AS_THE_LOOP + code, str(library), *arguments]
    return subprocess.run(
        command, env=environment, cwd=ROOT, check=False, capture_output=True, text=True, timeout=timeout_s
    )


def tortured(library: Path, name: str, store: str, seed: int, budget_s: float, folder: Path) -> Counts:
    """What a scenario counts with that loop; what the sanitizers report counts as raw errors."""
    place = folder / f"{name} {store}".replace(" ", "-")  # the options of sanitizers end at a space
    place.mkdir()
    # Memory has no limit otherwise: the sanitizers need addresses for terabytes.
    options = f":log_path={place / REPORT}:allocator_may_return_null=1:max_allocation_size_mb=12288"
    arguments = [name, store, "gzarr", str(seed), f"{budget_s:g}", str(place)]
    done = run(library, CELL, *arguments, timeout_s=2 * budget_s + LIMIT_S, options=options)
    if done.returncode:
        raise RuntimeError(f"{name}, {store}: {done.stderr[-4000:]}")
    counts = Counts.from_json(json.loads(done.stdout.splitlines()[-1]))
    reports = [path.read_text(errors="replace") for path in sorted(place.glob(f"{REPORT}*"))]
    serious = [text for text in reports if "ERROR: " in text or "runtime error: " in text]
    return Counts(raw_errors=len(serious), notes=tuple(text.strip()[:2000] for text in serious)) + counts


SCENARIOS = (
    Scenario(
        "sanitizers",
        "damaged chunks, and programs by threads, under AddressSanitizer and UBSan",
        sanitizers,
        ("none",),
        weight=12.0,
        absence=absence,
    ),
)
