"""Run the test suites of zarr, dask and xarray on gzarr, and compare with what is known of them.

    python tools/peer_suites.py [options] SUITE... [-- options of pytest]

``plugin``, ``dask`` and ``xarray`` run with gzarr's codec pipeline in zarr-python, ``engine`` are Xarray's tests of its
engine "zarr" on gzarr's engine and writer: no test may fail that passes without gzarr. ``zarr2`` and
``zarr3`` the suites of zarr 2 and zarr-python with ``zarr`` aliased to gzarr. The tests that may fail are listed in
tests/support/suites, with the reason as a comment above each group of node IDs (``*`` is a wildcard). A failure that
is not listed is an error; so is a line that matches no failure, or one that matches a test that passes besides.

Runs in an environment with zarr-python and its test requirements, which `make test-zarr` makes; gzarr is that of this
folder, and its entry points are those that an installation in place left here. The sources of zarr come from the
package index, and are kept in the environment.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTS = ROOT / "tests/support/suites"
UNJUDGED = "# to be judged"
HANG_S = 120  # of one test: its threads are shown then, and the run ends
# Scripts that are no tests, and benchmarks, which are slow.
_IGNORED = ("--ignore=tests/test_regression/scripts", "--ignore=tests/benchmarks")
_PIPELINE = {"ZARR_CODEC_PIPELINE__PATH": "gzarr.interop.zarr.CodecPipeline"}
# Most of what reads and writes chunks. Its tests of properties take more than a minute.
_QUICK = ("test_array.py", "test_indexing.py", "test_codecs", "test_v2.py")


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests of a package, and how they run."""

    package: str
    tests: str  # the folder of the tests below the sources
    files: tuple[str, ...] = ()
    only: str = ""  # pytest's -k
    release: str | None = None  # None: the installed one
    sources: bool = True  # from the package index; otherwise the tests are installed with the package
    plugin: str = ""
    changed: dict[str, str] = field(default_factory=dict)  # environment variables; without them, the oracle runs


SUITES = {
    "plugin": Suite("zarr", "tests", changed=_PIPELINE),
    "dask": Suite("dask", "array/tests", ("test_array_core.py",), "zarr", None, False, "", _PIPELINE),
    "xarray": Suite("xarray", "tests", ("test_backends.py::TestZarrDirectoryStore",), "", None, False, "", _PIPELINE),
    "engine": Suite(
        *("xarray", "tests", ("test_backends.py::TestZarrDirectoryStore",), "", None, False),
        plugin="xarray_engine",
        changed={"GZARR_ENGINE": "1"},
    ),
    "zarr2": Suite(
        "zarr",
        "zarr/tests",
        tuple(f"test_{name}.py" for name in ("core", "hierarchy", "creation", "convenience", "attrs", "indexing")),
        release="2.18.7",
        plugin="zarr2_alias",
    ),
    "zarr3": Suite("zarr", "tests", ("test_api.py", "test_group.py", "test_indexing.py"), plugin="zarr3_alias"),
}


@dataclass(frozen=True, slots=True)
class Run:
    """Where and how the tests of a suite run."""

    suite: Suite
    folder: Path
    scratch: Path
    jobs: int
    options: tuple[str, ...]
    limit_s: float

    def outcomes(self, tests: list[str], changed: dict[str, str]) -> dict[str, str]:
        """What came of each of these tests, by node ID relative to the folder of tests."""
        report, chosen, log = (self.scratch / name for name in ("outcomes.json", "tests", "log"))
        report.unlink(missing_ok=True)
        folder = self.folder / self.suite.tests
        chosen.write_text("".join(f"{folder / test}\n" for test in tests))
        options = ["--rootdir", str(self.folder), "-o", "addopts=", "-o", f"faulthandler_timeout={HANG_S}"]
        options += ["-p", "no:cacheprovider", "-p", "outcomes", *_IGNORED, "--tb=short"]
        if not self.suite.sources:  # installed below this folder, whose settings are not theirs
            settings = self.scratch / "pytest.ini"
            settings.write_text("[pytest]\n")
            options += ["-c", str(settings)]
        if self.suite.plugin:
            options += ["-p", self.suite.plugin]
        if self.jobs > 1 and len(tests) < 100:
            options += ["-n", str(self.jobs)]
        if self.suite.only:
            options += ["-k", self.suite.only]
        command = [sys.executable, "-m", "pytest", "-q", *options, *self.options, f"@{chosen}"]
        environment = {**os.environ, **changed, **self._environment(), "SUITE_OUTCOMES": str(report)}
        place = self.folder if self.suite.sources else self.scratch
        try:
            with log.open("w") as file:
                subprocess.run(
                    command, cwd=place, env=environment, stdout=file, stderr=file, timeout=self.limit_s, check=False
                )
        except subprocess.TimeoutExpired as error:
            raise SystemExit(f"{self.suite.package}'s tests take longer than {self.limit_s:.0f} s") from error
        if not report.exists():
            raise SystemExit(f"{self.suite.package}'s tests ended without results:\n{log.read_text()[-4000:]}")
        prefix = f"{self.suite.tests}/"
        return {name.removeprefix(prefix): what for name, what in json.loads(report.read_text()).items()}

    def _environment(self) -> dict[str, str]:
        return {
            # Plug-ins of what else is installed would warn, which the suites take for errors.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_PLUGINS": "pytest_asyncio.plugin,xdist.plugin,pytest_benchmark.plugin,_hypothesis_pytestplugin",
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(LISTS))),
            "ZARR_ALIAS_FOLDER": str(self.folder / "zarr"),
        }


def archive_of(suite: Suite) -> Path:
    """The archive of a package's sources, fetched if it is not there yet."""
    release = suite.release or version(suite.package)
    kept = Path(sys.prefix) / "sources"
    archive = kept / f"{suite.package}-{release}.tar.gz"
    if not archive.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary=:all:"]
        command += ["--disable-pip-version-check", "--dest", str(kept), f"{suite.package}=={release}"]
        if subprocess.run(command, check=False).returncode or not archive.exists():
            raise SystemExit(f"no package index that can be reached has the sources of {suite.package} {release}")
    return archive


def unpacked(suite: Suite, scratch: Path) -> Path:
    """The folder that holds the suite's tests."""
    if not suite.sources:
        found = find_spec(suite.package)
        if found is None or found.origin is None:
            raise SystemExit(f"{suite.package} is not installed")
        return Path(found.origin).parent
    archive = archive_of(suite)
    with tarfile.open(archive) as sources:
        sources.extractall(scratch, filter="data")
    return scratch / archive.name.removesuffix(".tar.gz")


def listed(path: Path) -> dict[str, list[str]]:
    """Patterns of node IDs by the reason above them."""
    groups: dict[str, list[str]] = {}
    reason: list[str] = []
    patterns: list[str] | None = None
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("#"):
            reason = [*reason, line] if patterns is None else [line]
            patterns = None
        elif line.strip():
            if patterns is None:
                patterns = groups.setdefault("\n".join(reason), [])
            patterns.append(line)
    return groups


def matching(pattern: str, names: set[str]) -> set[str]:
    """Those of the names that a pattern matches."""
    if "*" not in pattern:
        return names & {pattern}
    expression = re.compile(".*".join(map(re.escape, pattern.split("*"))))
    return {name for name in names if expression.fullmatch(name)}


def exact(pattern: str, failed: set[str], passed: set[str]) -> list[str]:
    """The pattern, or the failures that it matches if tests that pass match it, too."""
    found = matching(pattern, failed)
    return sorted(found) if not found or matching(pattern, passed) else [pattern]


def update(path: Path, groups: dict[str, list[str]], failed: set[str], passed: set[str], unexpected: set[str]) -> None:
    """Write the list again: lines that match no failure go, wildcards that hide tests too, new failures come last."""
    groups = {
        reason: [*dict.fromkeys(name for p in patterns for name in exact(p, failed, passed))]
        for reason, patterns in groups.items()
    }
    groups[UNJUDGED] = sorted({*groups.get(UNJUDGED, ()), *unexpected})
    blocks = ["\n".join((reason, *patterns)) for reason, patterns in groups.items() if patterns]
    path.write_text("\n\n".join(blocks) + "\n" if blocks else "")


def judge(name: str, run: Run, tests: list[str], *, rewrite: bool, whole: bool) -> bool:
    """Run a suite; True if just what is listed fails."""
    suite, begin = run.suite, time.monotonic()
    outcomes = run.outcomes(tests, suite.changed)
    failed = {test for test, outcome in outcomes.items() if outcome == "failed"}
    log = (run.scratch / "log").read_text()
    if suite.changed and failed:
        without = run.outcomes(sorted(failed), {})
        failed = {test for test in failed if without.get(test) == "passed"}
    path = LISTS / f"{name}.txt"
    groups = listed(path)
    patterns = [pattern for patterns in groups.values() for pattern in patterns]
    unexpected = failed.difference(*(matching(pattern, failed) for pattern in patterns))
    passed = {test for test, outcome in outcomes.items() if outcome == "passed"}
    stale = [pattern for pattern in patterns if whole and exact(pattern, failed, passed) != [pattern]]
    print(
        f"{name}: {len(passed)} passed, {len(failed)} failed and {len(failed) - len(unexpected)} of them listed, "
        f"{len(outcomes) - len(passed) - len(failed)} skipped or failing without gzarr, "
        f"{time.monotonic() - begin:.0f} s",
        flush=True,
    )
    if rewrite:
        update(path, groups, failed, passed, unexpected)
        return True
    if unexpected:
        print(log[-20_000:] + "\nnot listed, and failing:\n  " + "\n  ".join(sorted(unexpected)))
    if stale:
        print(f"in {path.relative_to(ROOT)}, and failing no more, or not alone:\n  " + "\n  ".join(stale))
    return not (unexpected or stale)


def main() -> int:
    """Run the suites that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--fetch", action="store_true", help="fetch the sources of all suites, and run nothing")
    parser.add_argument("--quick", action="store_true", help="plugin: only the files that read and write most chunks")
    parser.add_argument("--update", action="store_true", help="rewrite the lists")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=1500, metavar="SECONDS", help="the longest run of pytest")
    arguments, options = parser.parse_known_args(_before(sys.argv[1:]))
    if options:
        parser.error(f"unknown options {options}; those of pytest come after --")
    given = tuple(sys.argv[1:][len(_before(sys.argv[1:])) + 1 :])
    if unknown := set(arguments.suites) - set(SUITES):
        parser.error(f"unknown suites {sorted(unknown)}; known: {', '.join(SUITES)}")
    if arguments.fetch:
        for suite in SUITES.values():
            if suite.sources:
                archive_of(suite)
    jobs = 1 if len(arguments.suites) > 1 else arguments.jobs  # several suites share the cores, one each

    def good(name: str) -> bool:
        suite = SUITES[name]
        with tempfile.TemporaryDirectory(prefix="peer-suites-") as scratch:
            run = Run(suite, unpacked(suite, Path(scratch)), Path(scratch), jobs, given, arguments.limit)
            tests = list((_QUICK if arguments.quick and name == "plugin" else suite.files) or ("",))
            whole = not (arguments.quick or given)
            return judge(name, run, tests, rewrite=arguments.update, whole=whole)

    with ThreadPoolExecutor(arguments.jobs) as pool:
        return 0 if all([*pool.map(good, arguments.suites)]) else 1


def _before(arguments: list[str]) -> list[str]:
    return arguments[: arguments.index("--")] if "--" in arguments else arguments


if __name__ == "__main__":
    sys.exit(main())
