"""What the fast placement kernels may cost: instructions, memory sectors, registers."""

import numpy as np
import pytest

from gzarr.gpu.codecs.batch import BatchContext
from gzarr.gpu.codecs.transfers import copy_streams
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.kernels.sources import BLOCK_THREADS, source
from tests.gpu.ptx import cases, goals, nvrtc
from tests.gpu.ptx.capture import PtxDevice, all_warps, middle
from tests.gpu.ptx.cost import occupancy
from tests.gpu.ptx.goals import GOALS, MIN_OCCUPANCY, OCCUPANCY

pytestmark = [
    pytest.mark.skipif(nvrtc.why_missing() is not None, reason=str(nvrtc.why_missing())),
    pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built"),
]


@pytest.mark.parametrize("name", list(GOALS))
def test_reads_and_writes_keep_to_their_goals(name: str) -> None:
    goal, costs = GOALS[name], goals.costs(name)
    for kernel in goal.kernels or costs:
        cost = costs[kernel]
        assert cost.instructions <= goal.instructions, kernel
        assert cost.load_sectors <= goal.sectors, kernel
        assert cost.store_sectors <= goal.sectors, kernel


#: For 16 bytes of results: of 64 bytes of a picture, and of 128 of a volume. These are some 60 instructions for each
#: element that is read, of which loads are few.
REDUCES = {"images": (4200, 6), "volumes": (3000, 8), "floats": (1350, 9)}


@pytest.mark.parametrize("name", REDUCES)
def test_windows_are_reduced_by_few_instructions(name: str) -> None:
    (run,) = cases.reduce(*cases.REDUCES[name], middle).runs
    instructions, loads = REDUCES[name]
    assert run.cost is not None
    assert run.cost.instructions <= instructions
    assert run.cost.load_sectors <= 1.1 * loads


@pytest.mark.parametrize(("at", "instructions", "loads"), [(0, 90, 0.55), (4, 190, 1.1), (1, 190, 1.1)])
def test_streams_are_stored_in_whole_sectors(at: int, instructions: int, loads: float) -> None:
    """What lies at the multiples of 16 of its source is copied to another address."""
    device = PtxDevice(all_warps)
    source, target = device.empty(20480), device.empty(20480)
    rows, nbytes = np.arange(4) * 5120, np.full(4, 5000)
    context, to = BatchContext(device), device.address(target) + at
    copy_streams(context, device.address(source) + rows, to + rows, nbytes)
    cost = device.runs[-1].cost
    assert cost is not None
    assert cost.instructions <= instructions
    assert cost.load_sectors <= loads
    assert cost.store_sectors <= 0.55


def test_checksums_leave_room_for_half_of_the_threads() -> None:
    """The compiler takes more registers for this architecture than for others."""
    taken = nvrtc.compile_module(source("xxh64"), 100).resources["xxh64"]
    assert (taken.spills, occupancy(100, taken, BLOCK_THREADS) >= MIN_OCCUPANCY) == (0, True)


@pytest.mark.parametrize("arch", [75, 80, 90, 100])
def test_fast_kernels_leave_room_for_many_threads(arch: int) -> None:
    fast = {"xxh64"} | {kernel for name, goal in GOALS.items() for kernel in goal.kernels or goals.costs(name)}
    resources = nvrtc.kernels(arch).resources
    reached = {kernel: occupancy(arch, resources[kernel], BLOCK_THREADS) for kernel in fast}
    assert {kernel for kernel in fast if reached[kernel] < OCCUPANCY.get(kernel, MIN_OCCUPANCY)} == set()
