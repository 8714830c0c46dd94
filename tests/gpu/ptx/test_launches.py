"""Every kernel as reads and writes launch it: warps at the edges do what the host's build does, and nothing else."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.kernels import KERNELS
from tests.gpu.ptx import cases, nvrtc
from tests.gpu.ptx.capture import PtxDevice, edges
from tests.gpu.ptx.launching import grid_of
from tests.gpu.ptx.memory import Fault

pytestmark = [
    pytest.mark.skipif(nvrtc.why_missing() is not None, reason=str(nvrtc.why_missing())),
    pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built"),
]
ALL = [("read", name) for name in cases.READS] + [("write", name) for name in cases.WRITES]


@cache
def launched(verb: str, name: str) -> frozenset[str]:
    """The kernels that a case launches."""
    with TemporaryDirectory() as folder:
        run = cases.read if verb == "read" else cases.write
        device = run((cases.READS if verb == "read" else cases.WRITES)[name], Path(folder))
    return frozenset(run.kernel for run in device.runs)


@pytest.mark.parametrize(("verb", "name"), ALL)
def test_sampled_warps_do_what_the_host_build_does(verb: str, name: str) -> None:
    assert launched(verb, name) or verb == "write"


def test_every_kernel_is_launched() -> None:
    assert frozenset().union(*(launched(*case) for case in ALL)) == set(KERNELS)


def test_the_edges_of_a_launch() -> None:
    assert list(edges(grid_of(1), 1)) == [0, 1, 7]
    assert list(edges(grid_of(1000), 1000)) == [0, 1, 7, 8, 10, 20, 30, 31]


def test_a_device_knows_its_memory() -> None:
    """A stream that reaches past its memory is found."""
    device = PtxDevice()
    source, target = device.upload(np.arange(64, dtype=np.uint8)), device.empty(64)

    def tables(nbytes: int) -> tuple[object, ...]:
        rows = ([device.address(source)], [device.address(target)], [nbytes], [0, nbytes // 16])
        return 1, *(device.upload(np.array(row, np.int64)) for row in rows)

    device.launch("copy_streams", 4, tables(64))
    assert target.tolist() == list(range(64))
    assert [run.kernel for run in device.runs] == ["copy_streams"]
    with pytest.raises(Fault, match=r"copy_streams: .*outside every allocation"):
        device.launch("copy_streams", 5, tables(80))


def test_another_result_than_the_host_build_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    device = PtxDevice()
    source, target = device.upload(np.arange(64, dtype=np.uint8)), device.empty(64)
    rows = ([device.address(source)], [device.address(target)], [64], [0, 4])
    tables = 1, *(device.upload(np.array(row, np.int64)) for row in rows)
    monkeypatch.setattr("gzarr.gpu.device.emulated.EmulatedDevice.launch", lambda *_: None)
    with pytest.raises(Fault, match="copy_streams: 64 of 64 bytes differ from those of the host's build"):
        device.launch("copy_streams", 4, tables)
