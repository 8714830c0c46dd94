"""A plugin for pytest: all tests run on the driver made of software, and fail if it has noticed something wrong.

``python -m pytest -p tests.gpu.driver.plugin tests/gpu/hardware``
"""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from gzarr.gpu.detection.driver import cache_folder
from tests.gpu.driver import driver

_POISON = 0xC3
#: What the driver cannot do, by the names of tests, in full or up to a parameter.
_NOT_HERE = {
    "test_formats_that_only_a_gpu_has": "only nvCOMP knows these formats",
    **{
        f"test_nvcomp_there_and_back[{name}]": "only nvCOMP knows it" for name in ("ans", "bitcomp", "cascaded", "gzip")
    },
    "test_the_self_check_passes_in_a_process_of_its_own_in_time": "it takes the time of hardware",
    "test_auto_is_the_gpu": "tests/gpu/driver/test_verify.py checks the device in processes of its own",
}


def pytest_configure() -> None:
    """Forget what earlier versions of the driver were found to do."""
    shutil.rmtree(cache_folder("self-checks") or "", ignore_errors=True)


def pytest_sessionstart() -> None:
    """Let the driver see faults before pytest's faulthandler, which began later, prints them."""
    driver.LIBRARY.driver_handle_signals()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what cannot be tested here, and say why."""
    for item in items:
        why = _NOT_HERE.get(item.name) or _NOT_HERE.get(item.name.partition("[")[0])
        if why:
            item.add_marker(pytest.mark.skip(reason=f"the driver made of software: {why}"))


@pytest.fixture(autouse=True, scope="session")
def _poisoned() -> None:
    """Let CuPy's pool give out no memory with the values that it had before."""
    import cupy

    class Poisoned(cupy.cuda.MemoryPool):  # type: ignore[misc]
        def malloc(self, nbytes: int) -> Any:
            pointer = super().malloc(nbytes)
            if nbytes:
                pointer.memset_async(_POISON, nbytes)
            return pointer

    cupy._default_memory_pool = Poisoned()
    cupy.cuda.set_allocator(cupy._default_memory_pool.malloc)


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    yield
    driver.drain()
    found = driver.faults()
    if found:
        pytest.fail(f"the driver made of software has noticed:\n{found}")
