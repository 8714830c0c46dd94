"""What the fast placement kernels may cost: instructions, memory sectors, registers."""

from __future__ import annotations

import pytest

from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.kernels import BLOCK_THREADS
from tests.gpu.ptx import goals, nvrtc
from tests.gpu.ptx.cost import occupancy
from tests.gpu.ptx.goals import GOALS, MIN_OCCUPANCY

pytestmark = [
    pytest.mark.skipif(nvrtc.why_missing() is not None, reason=str(nvrtc.why_missing())),
    pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built"),
]


@pytest.mark.parametrize("name", [name for name, goal in GOALS.items() if goal.verb == "read"])
def test_reads_keep_to_their_goals(name: str) -> None:
    goal = GOALS[name]
    for kernel, cost in goals.costs(name).items():
        assert cost.instructions <= goal.instructions, kernel
        assert cost.load_sectors <= goal.sectors, kernel
        assert cost.store_sectors <= goal.sectors, kernel


@pytest.mark.parametrize("arch", [75, 90])
def test_fast_kernels_leave_room_for_half_of_the_threads(arch: int) -> None:
    fast = {kernel for name, goal in GOALS.items() if goal.verb == "read" for kernel in goals.costs(name)}
    resources = nvrtc.kernels(arch).resources
    assert {kernel for kernel in fast if occupancy(arch, resources[kernel], BLOCK_THREADS) < MIN_OCCUPANCY} == set()
