"""The measure itself: instructions, sectors and occupancy of small programs of known cost; what ptxas reports."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests.gpu.ptx import nvrtc
from tests.gpu.ptx.cost import Cost, cost_of, occupancy, weights
from tests.gpu.ptx.machine import Grid, run
from tests.gpu.ptx.memory import Global
from tests.gpu.ptx.nvrtc import Resources
from tests.gpu.ptx.test_machine import COPY, program

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


def test_tables_do_not_count() -> None:
    memory = np.zeros(64, np.uint64)
    start = memory.ctypes.data
    done = run(program(COPY), Grid((1, 1, 1), (32, 1, 1)), (start, start + 256), [0], Global())
    found = cost_of(program(COPY), done, np.array([[start, start + 256]]))
    assert found is not None
    assert (found.load_sectors > 0, found.store_sectors > 0) == (False, True)
    assert cost_of(program(COPY), done, np.array([[start, start + 512]])) is None


def test_instructions() -> None:
    """Each warp issues what any of its threads does; a product joins the sum that it goes into."""
    plain = cost("st.global.u64 [%rd5], %rd3;")
    half = cost("setp.lt.u32 %p1, %r3, 16; @%p1 bra $L_x; mul.hi.u32 %r8, %r3, 7;\n$L_x: st.global.u64 [%rd5], %rd3;")
    assert plain is not None
    assert half is not None
    # Of the two warps, both compare and branch, and both have threads that multiply: 2.8 for each 8 bytes.
    assert half.instructions - plain.instructions == pytest.approx(2 * (1.2 + 0.6 + 1))

    def kinds(body: str) -> list[float]:
        return weights(program(body))[9:-1].tolist()

    assert kinds("mul.wide.u32 %rd8, %r3, %r4; add.s64 %rd9, %rd8, 1;") == [0, 1.9]
    assert kinds("mul.wide.u32 %rd8, %r3, %r4; add.s64 %rd9, %rd8, 1; st.global.u64 [%rd5], %rd8;") == [1, 1.9, 1]
    assert kinds("shr.u64 %rd8, %rd3, 32; cvt.u32.u64 %r8, %rd8; prmt.b32 %r9, %r8, 0, 291;") == [0, 0, 1]
    assert kinds("div.u32 %r8, %r3, %r4; and.pred %p1, %p2, %p3;") == [18.5, 0]


@pytest.mark.parametrize(
    ("arch", "registers", "shared", "threads", "share"),
    [
        (90, 32, 0, 256, 1),
        (90, 33, 0, 256, 0.75),
        (90, 40, 0, 256, 0.75),
        (90, 64, 0, 256, 0.5),
        (90, 84, 0, 256, 0.25),
        (75, 64, 0, 256, 1),
        (90, 32, 33 << 10, 256, 0.75),
        (75, 32, 33 << 10, 256, 0.25),
        (90, 16, 0, 32, 0.5),
    ],
)
def test_occupancy(arch: int, registers: int, shared: int, threads: int, share: float) -> None:
    assert occupancy(arch, Resources(registers, 0, 0, shared), threads) == share


SPILLING = """
extern "C" __global__ void __launch_bounds__(1024) local_arrays(long long *x, int at) {
    long long all[40];
    for (int k = 0; k < 40; k++) all[k] = x[k];
    x[0] = all[at];
}
extern "C" __global__ void tiles(int *x) {
    __shared__ int tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x ^ 1];
}
"""


@needs_nvrtc
def test_what_ptxas_reports() -> None:
    found = nvrtc.compile_module(SPILLING, 90).resources
    assert found["local_arrays"].stack == 320
    assert found["tiles"].shared == 1024
    assert 0 < found["tiles"].registers < 32
    with pytest.raises(SyntaxError, match=r"kernels\.cu.*identifier .nothing. is undefined"):
        nvrtc.compile_module("__global__ void f() { nothing(); }", 90)


@needs_nvrtc
@pytest.mark.parametrize("arch", [75, 90])
def test_kernels_keep_everything_in_registers(arch: int) -> None:
    for name, taken in nvrtc.kernels(arch).resources.items():
        assert (taken.stack, taken.spills) == (0, 0), f"{name} for sm_{arch}"
