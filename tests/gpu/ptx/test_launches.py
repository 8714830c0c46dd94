"""Every kernel as reads and writes launch it: warps at the edges do what the host's build does, and nothing else."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.kernels import unit_starts
from gzarr.gpu.kernels.sources import KERNELS, source
from tests.gpu.ptx import cases, launching, nvrtc
from tests.gpu.ptx.capture import PtxDevice
from tests.gpu.ptx.memory import Fault
from tests.gpu.ptx.program import entries

pytestmark = [
    pytest.mark.skipif(nvrtc.why_missing() is not None, reason=str(nvrtc.why_missing())),
    pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built"),
]
ALL = [("read", name) for name in cases.READS] + [("write", name) for name in cases.WRITES]
ALL += [("reduce", name) for name in cases.REDUCES]


@cache
def launched(verb: str, name: str) -> frozenset[str]:
    """The kernels that a case launches."""
    if verb == "reduce":
        return frozenset(run.kernel for run in cases.reduce(*cases.REDUCES[name]).runs)
    with TemporaryDirectory() as folder:
        run = cases.read if verb == "read" else cases.write
        device = run((cases.READS if verb == "read" else cases.WRITES)[name], Path(folder))
    return frozenset(run.kernel for run in device.runs)


@pytest.mark.parametrize(("verb", "name"), ALL)
def test_sampled_warps_do_what_the_host_build_does(verb: str, name: str) -> None:
    assert launched(verb, name) or verb == "write"


def test_every_kernel_is_launched() -> None:
    assert frozenset().union(*(launched(*case) for case in ALL)) == set(KERNELS)


def copy(device: PtxDevice, streams: list[tuple[int, int]], claimed: int = 0) -> np.ndarray:
    """Copy streams with copy_streams: (bytes, offset of the source from a multiple of 16). claimed: too many bytes."""
    sizes = [nbytes for nbytes, _ in streams]
    sources = [device.upload(np.arange(n + at, dtype=np.uint8))[at:] for n, at in streams]
    target = device.empty(sum(sizes))
    starts = device.address(target) + np.cumsum([0, *sizes[:-1]])
    rows = [device.address(one) for one in sources], starts, np.array(sizes) + claimed
    units = unit_starts(np.array(sizes) + claimed)
    tables = (device.upload(np.array(row, np.int64)) for row in (*rows, units))
    device.launch("copy_streams", int(units[-1]), (len(streams), *tables))
    return target


def test_a_device_knows_its_memory() -> None:
    """A stream that reaches past its memory is found."""
    device = PtxDevice()
    assert copy(device, [(64, 0)]).tolist() == list(range(64))
    assert [run.kernel for run in device.runs] == ["copy_streams"]
    with pytest.raises(Fault, match=r"copy_streams: .*outside every allocation"):
        copy(device, [(64, 0)], claimed=16)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(((u64)from | (u64)to) & 15) == 0", "true", "misaligned load of 16 bytes"),
        ("left >= 16", "true", "stored by|outside every allocation"),
        ("at += 512", "at += 256", "is stored by threads"),
        ("begin + nbytes[stream]", "begin + 1 + nbytes[stream]", "stored by|outside every allocation"),
    ],
)
def test_faults_planted_in_a_kernel_are_found(
    monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    """What the compiler made of the changed text is run; streams begin at odd addresses, so units are cut."""
    text = source("copy_streams")
    assert old in text
    changed = entries(nvrtc.compile_module(text.replace(old, new), launching.ARCH).ptx)
    monkeypatch.setattr(launching, "programs", lambda: changed)
    monkeypatch.setattr("tests.gpu.ptx.capture.programs", lambda: changed)
    streams = [(200, 0), (37, 3), (64, 8), (5, 1)]
    with pytest.raises(Fault, match=message):
        copy(PtxDevice(), streams)


def test_a_missing_barrier_in_a_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host's build runs threads one after the other, so it cannot show this."""
    text = source("xxh64")
    assert text.count("    __syncthreads();") == 2
    changed = entries(nvrtc.compile_module(text.replace("    __syncthreads();", ""), launching.ARCH).ptx)
    unchanged = launching.programs()
    monkeypatch.setattr(launching, "programs", lambda: {**unchanged, **changed})
    monkeypatch.setattr("tests.gpu.ptx.capture.programs", launching.programs)
    with TemporaryDirectory() as folder, pytest.raises(Fault, match=r"xxh64: ld\.shared.*no barrier between"):
        cases.read(cases.READS["sharded"], Path(folder))
