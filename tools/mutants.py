"""Plants faults, one at a time, in a copy of the tree, and runs the tests that should catch them.

``python tools/mutants.py [WORD ...]`` tries the mutants of ``tools/mutants.toml`` whose file or fault has one of the
words, or all of them. A mutant is a text of a file, which stands there once, and another in its place. It is

caught
    if a test fails;
survived
    if all tests pass: a test is missing;
timeout
    if the tests took too long, as after a lock that is never let go;
stale
    if its text is not in the file any more, or does not compile: adapt it to the code as it is now.

The number of mutants that are not caught is the exit code.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = Path("gzarr", "cpu", "loop"), Path("gzarr", "gpu", "native")
EXTENSION = Path("gzarr", "cpu", "_loop.abi3.so")
COMPILE = (
    *("cc", "-std=c11", "-O1", "-fPIC", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-DPy_LIMITED_API=0x030B0000"),
    f"-I{sysconfig.get_path('include')}",
)
#: Where the time of a mutated file is set: no compiled module that Python has kept is of this time.
OLD_S = 1_000_000_000


def main() -> int:
    """Try the mutants that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="of files or faults; without any, all mutants are tried")
    parser.add_argument("--timeout", type=float, default=240, help="seconds for the tests of a mutant")
    parser.add_argument("--check", action="store_true", help="only say which mutants are stale")
    given = parser.parse_args()
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["mutant"]
    chosen = [m for m in table if not given.words or any(w in f"{m['file']} {m['fault']}" for w in given.words)]
    missed = 0
    with tempfile.TemporaryDirectory(prefix="gzarr-mutants-") as folder:
        tree = Path(folder, "tree")
        copy_tree(tree)
        for number, mutant in enumerate(chosen):
            started = time.monotonic()
            if given.check:
                result = "found" if (tree / mutant["file"]).read_text("utf-8").count(mutant["old"]) == 1 else "stale"
            else:
                result = try_mutant(tree, mutant, OLD_S + number, given.timeout)
            missed += result not in ("caught", "found")
            seconds = time.monotonic() - started
            print(f"{result:9}{seconds:5.0f} s  {mutant['file']}: {mutant['fault']}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} {'found' if given.check else 'caught'}")
    return missed


def copy_tree(tree: Path) -> None:
    """Copy what git knows of the tree, as it is now, and what is compiled."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in (*filter(None, listed.split("\0")), *map(str, ROOT.glob("gzarr/*/*.so"))):
        if (ROOT / name).is_file():
            target = tree / (ROOT / name).relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)


def try_mutant(tree: Path, mutant: dict[str, Any], modified_s: int, timeout_s: float) -> str:
    """Plant a mutant, run its tests, and remove it again."""
    path = tree / mutant["file"]
    sound = path.read_text(encoding="utf-8")
    if sound.count(mutant["old"]) != 1:
        return "stale"
    is_c = path.suffix in (".c", ".h")
    built = (tree / EXTENSION).read_bytes() if is_c else b""
    was = path.stat()
    try:
        path.write_text(sound.replace(mutant["old"], mutant["new"]), encoding="utf-8")
        os.utime(path, (modified_s, modified_s))
        return "stale" if is_c and not compile_loop(tree, path) else run_tests(tree, mutant["tests"], timeout_s)
    finally:
        path.write_text(sound, encoding="utf-8")
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
        if is_c:
            (tree / EXTENSION).unlink()
            (tree / EXTENSION).write_bytes(built)


def compile_loop(tree: Path, changed: Path) -> bool:
    """Compile the loop; of files compiled before, only the one that has changed. Returns: whether it compiles."""
    objects = tree / "objects"
    objects.mkdir(exist_ok=True)
    sources = [source for folder in SOURCES for source in sorted((tree / folder).glob("*.c"))]
    made = []
    for source in sources:
        target = objects / f"{source.stem}.o"
        mutated = changed.suffix == ".h" or source == changed
        if mutated:
            target = objects / f"mutated-{source.stem}.o"
        if (mutated or not target.exists()) and subprocess.run(
            [*COMPILE, "-c", source, "-o", target], check=False, capture_output=True
        ).returncode:
            return False
        made.append(target)
    (tree / EXTENSION).unlink(missing_ok=True)
    command = ["cc", "-shared", *made, "-lpthread", "-o", tree / EXTENSION]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def run_tests(tree: Path, tests: str, timeout_s: float) -> str:
    """Run some tests. Returns: what became of the mutant."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": str(tree / "pycache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "pytest", "-xq", "-m", "not long", "-p", "no:cacheprovider", *tests.split(" ")]
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except BaseException as error:
            os.killpg(process.pid, 9)  # what it has started, too
            if isinstance(error, subprocess.TimeoutExpired):
                return "timeout"
            raise
    if process.returncode in (2, 3, 4, 5) and b"no tests ran" in said:
        return "stale"  # the tests are elsewhere now
    return "caught" if process.returncode else "survived"


if __name__ == "__main__":
    sys.exit(main())
