"""``device="auto"`` takes the GPU after a self-check in a process of its own, and the CPU where that fails."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gzarr.gpu.detection.driver import cache_folder
from gzarr.gpu.kernels.sources import KERNELS

#: How kernels begin in PTX.
ENTRIES = tuple(f".entry {name}(" for name in KERNELS)
ASK = """
import json, warnings
import gzarr
from gzarr.gpu.detection import verify
verify.find_faults.__defaults__ = (600.0,)  # a check takes a minute on a busy machine, which is a hang elsewhere
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    z = gzarr.array([1, 2, 3])
    gzarr.zeros(3)
found = z[:]
print(json.dumps([z.device, (found.get() if z.device != "cpu" else found).tolist(), [str(w.message) for w in caught]]))
"""


def run(folder: Path, spoilt: str, *command: str) -> str:
    """What Python prints in a process with a cache of its own."""
    (folder / "gzarr").mkdir(exist_ok=True)
    for name in ("driver", "kernels"):  # they take time to compile
        compiled, here = cache_folder(name), folder / "gzarr" / name
        if compiled is not None and not here.exists():
            here.symlink_to(compiled)
    env = os.environ | {"XDG_CACHE_HOME": str(folder), "GZARR_DEVICE": "auto", "DRIVER_SPOILS": spoilt}
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ask(folder: Path, spoilt: str) -> tuple[str, list[str]]:
    """The device of an array in such a process, and its warnings."""
    device, values, warned = json.loads(run(folder, spoilt, "-c", ASK).splitlines()[-1])
    assert values == [1, 2, 3]
    return device, warned


def kept(folder: Path) -> dict[str, Any]:
    (path,) = (folder / "gzarr" / "self-checks").iterdir()
    return json.loads(path.read_text())


def test_a_gpu_that_passes_is_taken_and_checked_once(tmp_path: Path) -> None:
    assert ask(tmp_path, "") == ("cuda:0", [])
    file = kept(tmp_path)
    assert file["faults"] == []
    assert "made of software" in file["about"]["gpu"]["name"]
    assert ask(tmp_path, "crash") == ("cuda:0", [])  # it would: it is not asked again
    page = json.loads(run(tmp_path, "crash", "-m", "gzarr", "gpu", "--json"))
    assert page["self_check"] == {"faults": [], "time": file["time"], "valid": True}
    assert page["auto"] == {"device": "cuda:0", "why": "it has passed the self-check"}
    assert page["cuda"]["CuPy"] == page["cuda"]["nvCOMP"] == page["cuda"]["the driver and the GPU"] in (12, 13)
    assert [one["device"] for one in page["devices"]] == ["cuda:0", "cuda:1"]
    assert (page["reader"]["name"], page["reader"]["kvikio_lacks"]) == ("host", None)


def test_a_gpu_that_answers_wrongly_is_not_taken(tmp_path: Path) -> None:
    device, (warning,) = ask(tmp_path, "zstd")  # of two arrays
    assert device == "cpu"
    for words in (
        "- blosc, zstd, blosc zstd bit-shuffled and sharding: the GPU reads other values than the CPU at [...]",
        "GZARR_DEVICE=cuda",
        "GZARR_DEVICE=cpu",
    ):
        assert words in warning
    assert kept(tmp_path)["faults"]
    page = run(tmp_path, "", "-m", "gzarr", "gpu", "--warm")
    assert "Self-check    : failed on" in page
    assert "Fault         : blosc, zstd, blosc zstd bit-shuffled and sharding: the GPU reads" in page
    assert 'device="auto" : cpu: the GPU has failed the self-check' in page
    assert f"{len(KERNELS)} are compiled and cached" in page


READ = """
import numpy as np
import gzarr
array = gzarr.create_array({}, data=np.arange(4000), chunks=100, compressors=None, device="cuda", strict=True)
assert array[7].item() == 7
"""


def test_kernels_are_compiled_when_they_are_needed_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = tmp_path / "compiled"
    monkeypatch.setenv("CUPY_CACHE_DIR", str(compiled))

    def of_gzarr() -> int:
        return sum(
            name in path.read_bytes().decode(errors="replace") for path in compiled.glob("*") for name in ENTRIES
        )

    run(tmp_path, "", "-c", READ)
    assert 1 <= of_gzarr() <= 3
    first, second = (json.loads(run(tmp_path, "", "-m", "gzarr", "gpu", "--warm", "--json")) for _ in range(2))
    assert of_gzarr() == first["kernels"]["number"] == len(KERNELS)
    assert second["kernels"]["compiled_s"] < first["kernels"]["compiled_s"] / 3
