"""The measure itself: sectors of small programs of known cost; what ptxas reports."""

import sys

import numpy as np
import pytest

from gzarr.gpu.kernels.sources import KERNELS
from tests.gpu.ptx import nvrtc
from tests.gpu.ptx.cost import Cost, cost_of
from tests.gpu.ptx.machine import Grid, run
from tests.gpu.ptx.memory import Global
from tests.gpu.ptx.test_machine import COPY, program

#: From Volta, which CUDA 12 alone compiles for, to Blackwell.
ARCHITECTURES = (70, 75, 80, 86, 89, 90, 100, 103, 110, 120)

needs_nvrtc = pytest.mark.skipif(nvrtc.why_missing() is not None, reason=str(nvrtc.why_missing()))


@pytest.mark.skipif(sys.platform != "linux", reason="the extra 'test' has NVRTC for Linux only")
def test_nvrtc_is_there() -> None:
    """Without it, all that limits what kernels cost would be skipped."""
    assert nvrtc.why_missing() is None


def cost(body: str, n: int = 64) -> Cost | None:
    memory = np.zeros(3 * n + 4, np.uint64)
    start = memory[-(memory.ctypes.data // 8) % 4 :].ctypes.data  # a multiple of 32
    grid = Grid((1, 1, 1), (n, 1, 1))
    done = run(program(body), grid, (start, start + 8 * n), range(n // 32), Global())
    return cost_of(program(body), done, np.array([[0, 1]]))


def test_sectors() -> None:
    assert cost("st.global.u64 [%rd5], %rd3;") == (pytest.approx(13.2, abs=3), 0, 0.5)
    found = cost(COPY)
    assert found is not None
    assert (found.load_sectors, found.store_sectors) == (0.5, 0.5)
    # Each thread has a sector of its own; two requests share the sectors of one.
    address = "shl.b64 %rd8, %rd3, 2; add.s64 %rd8, %rd1, %rd8;"
    apart = cost(f"{address} ld.global.u64 %rd9, [%rd8]; st.global.u64 [%rd5], %rd9;", 32)
    assert apart is not None
    assert apart.load_sectors == 2
    halves = cost("st.global.u32 [%rd5], %r3; st.global.u32 [%rd5+4], %r3;")
    assert halves is not None
    assert halves.store_sectors == 1


@needs_nvrtc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_keep_everything_in_registers(arch: int) -> None:
    if arch not in nvrtc.architectures():
        pytest.skip(f"this NVRTC does not compile for sm_{arch}: CUDA 12 has sm_70, CUDA 13 the newest")
    resources = nvrtc.kernels(arch).resources
    assert set(resources) == set(KERNELS)
    for name, taken in resources.items():
        assert (taken.stack, taken.spills) == (0, 0), f"{name} for sm_{arch}"
