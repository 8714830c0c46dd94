"""The example of tests without a GPU passes, and each mistake that it is there to catch makes it fail."""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ci_without_gpu"
#: What is replaced by what, and the tests that fail then on the emulated device.
MISTAKES = {
    "a missing .get()": (
        "np.abs(to_host(found) - before)",
        "np.abs(found - before)",
        {"test_drift_is_the_largest_change": "TypeError: Unsupported type <class 'numpy.ndarray'>"},
    ),
    "a copy per batch": (
        "        sums += xp.stack([block.sum(0), (block * block).sum(0)])",
        "        sums += xp.asarray([to_host(block.sum(0)), to_host((block * block).sum(0))])",
        {
            "test_statistics_stay_on_the_device": r"assert not 14, 2240 bytes: .*normalize\.py:\d+ \(14 times\)",
            "test_values_stay_on_the_device": r"assert not 14, ",
        },
    ),
    "a write of a host array in a loop": (
        "dest[start : start + ROWS] = normal",
        "dest[start : start + ROWS] = to_host(normal)",
        {"test_values_stay_on_the_device": r"assert not 7, "},
    ),
}


def outcome(folder: Path, *devices: str) -> str:
    """What pytest prints of a copy of the example, in an environment without settings."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GZARR_")}
    environment |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "300"}
    command = [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "gzarr.testing.plugin", "-p", "no:cacheprovider", "."]
    command += ["-W", "error", *(f"--gzarr-device={device}" for device in devices)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


def test_the_example_passes_and_each_planted_mistake_fails(tmp_path: Path) -> None:
    folders = []
    for mistake, (right, wrong, _) in {"none": ("", "", {}), **MISTAKES}.items():
        folder = tmp_path / mistake
        shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        text = (folder / "normalize.py").read_text()
        assert not right or text.count(right) == 1
        (folder / "normalize.py").write_text(text.replace(right, wrong) if right else text)
        folders.append(folder)
    with ThreadPoolExecutor(2) as pool:
        both = pool.submit(outcome, folders[0], "cpu", "emulated")
        outputs = list(pool.map(lambda folder: outcome(folder, "emulated"), folders[1:]))
        sound = both.result()
    assert re.search(r"^11 passed in", sound, re.MULTILINE), sound
    for output, (_, _, failures) in zip(outputs, MISTAKES.values(), strict=True):
        failed = set(re.findall(r"^FAILED test_normalize\.py::(\S+)", output, re.MULTILINE))
        assert failed == {f"{name}[emulated]" for name in failures}, output
        for message in failures.values():
            assert re.search(message, output), output


def test_the_how_to_shows_the_workflow_of_the_example() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL)
    assert shown == (EXAMPLE / ".github" / "workflows" / "test.yml").read_text()
