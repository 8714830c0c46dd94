"""The command ``gzarr gpu``: one page, also without a GPU. `tests/gpu/driver/test_verify.py` has one."""

import json
import re
from typing import Any

import pytest

from gzarr.cli.main import main
from gzarr.gpu.detection import driver

needs_no_gpu = pytest.mark.skipif(driver.ask_driver().devices > 0, reason="this machine has a GPU")


@needs_no_gpu
def test_without_a_gpu_it_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu"]) == 1
    out = " ".join(re.sub(r"\n +: ", " ", capsys.readouterr().out).split())
    assert out.startswith("GPU backend : cannot be used: see below Driver : none")
    assert 'device="auto" : cpu: the GPU cannot be used' in out
    assert "Missing : there is no NVIDIA driver (libcuda.so.1): install driver 580 or newer" in out
    assert "On the GPU" not in out


@needs_no_gpu
def test_the_same_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["usable"], report["devices"], report["self_check"], report["reader"]["name"]) == (
        False,
        [],
        None,
        None,
    )
    assert report["problems"][0].startswith("there is no NVIDIA driver")
    assert {"blosc", "zstd", "delta"} <= set(report["codecs"])


@needs_no_gpu
@pytest.mark.parametrize("option", ["--check", "--warm"])
def test_what_needs_a_gpu_fails_without_one(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gpu", option]) == 2
    assert capsys.readouterr().err.startswith("gzarr: the GPU cannot be used: there is no NVIDIA driver")


H100 = {"device": "cuda:0", "name": "NVIDIA H100", "uuid": "ab", "compute_capability": "9.0", "nbytes": 80 << 30}
REPORT: dict[str, Any] = {
    "usable": True,
    "problems": [],
    "driver": {"cuda": "13.0", "version": "580.95.05"},
    "devices": [H100],
    "visible": "0",
    "packages": {"cupy-cuda12x": "14.2.0"},
    "cuda": {"the driver and the GPU": 13, "CuPy": 12, "nvCOMP": 13},
    "self_check": {"faults": ["zstd: the GPU reads other values"], "time": 0.0, "valid": False},
    "kernels": {"number": 18, "compiled_s": 4.75},
    "reader": {"name": "host", "why": "GPUDirect Storage is not active", "kvikio_lacks": "KvikIO is missing: pip"},
    "codecs": ["blosc", "zstd"],
    "small": {"nchunks": 8, "nbytes": 1 << 18},
    "auto": {"device": "cuda:0", "why": "if it passes"},
}


def test_a_page_says_what_there_is_and_why(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("gzarr.devices.gpu_report", lambda **options: REPORT)
    assert main(["gpu"]) == 0
    out = " ".join(re.sub(r"\n +: ", " ", capsys.readouterr().out).split())
    for line in (
        "GPU backend : can be used",
        "Driver : 580.95.05, runs CUDA 13.0",
        "CUDA_VISIBLE_DEVICES : 0",
        "Device : cuda:0, NVIDIA H100: compute capability 9.0, 80.0 GiB, UUID ab",
        "CuPy : built for CUDA 12; the driver and the GPU run CUDA 13, too nvCOMP : built for CUDA 13 Packages",
        "which counts no more: cuda:0 does otherwise than the CPU Fault : zstd: the GPU reads other values",
        "Files : reader 'host': GPUDirect Storage is not active",
        "On the GPU : blosc, zstd",
        "reads and writes of at most 8 chunks and 256 KiB",
        "Kernels : 18 are compiled and cached; this took 4.75 s of CPU",
        "Optional : KvikIO is missing: pip; it reads local files straight into GPU memory",
    ):
        assert line in out
