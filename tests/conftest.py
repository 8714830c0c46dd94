"""Settings for all tests: Hypothesis draws the same examples every time, so that a red run is red for everyone.

``HYPOTHESIS_PROFILE=explore python -m pytest tests/properties`` looks further, at random.
"""

import contextlib
import functools
import gc
import importlib
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A shell that starts the tests in the background lets them ignore Ctrl-C, and so would the programs that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Tests of the CPU run on it even beside a GPU, which "auto" would take. gzarr reads this when it is imported.
os.environ.setdefault("GZARR_DEVICE", "cpu")
# Tests compare what the emulated device reads by NumPy. Those of its arrays choose them.
os.environ.setdefault("GZARR_EMULATED__ARRAYS", "numpy")

import gzarr
from gzarr.gpu.device.hostbuild import find_compiler
from tests.support.servers import (  # noqa: F401 - fixtures
    azure_endpoint,
    browser,
    http_server,
    mongo_port,
    rclone_options,
    redis_port,
    s3_options,
    slow_http_server,
)

_SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)
settings.register_profile(
    "gzarr", derandomize=True, deadline=None, max_examples=60, database=None, suppress_health_check=_SLOW
)
settings.register_profile("few", settings.get_profile("gzarr"), max_examples=15)  # under sanitizers
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True, suppress_health_check=_SLOW)
_PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "gzarr")
settings.load_profile(_PROFILE)
if _PROFILE != "explore":
    # Hypothesis also draws constants from the sources of imported modules. A test would then draw other examples by
    # itself than among others, and after any edit. Older versions have no such constants.
    with contextlib.suppress(ImportError):
        from hypothesis.internal.conjecture import providers
        from hypothesis.internal.constants_ast import Constants

        _NONE = Constants()
        providers._get_local_constants = lambda: _NONE


def _import_ahead(config: pytest.Config) -> None:
    """Let each worker of xdist begin at another file, so that each compiles its share and finds that of the others."""
    worker = getattr(config, "workerinput", {"workerid": "gw0", "workercount": 1})
    number = int(worker["workerid"].removeprefix("gw"))
    files = sorted(path for folder in config.args for path in Path(folder).rglob("test_*.py")) if number else []
    for file in files[len(files) * number // worker["workercount"] :]:
        # What fails fails again where it is collected, and is told there.
        with contextlib.suppress(Exception, pytest.skip.Exception):
            importlib.import_module(".".join(file.resolve().relative_to(config.rootpath).with_suffix("").parts))


#: What takes minutes and changes seldom: folders, files and tests. `make test-long` runs it, `make test` all others.
LONG = (
    *("benchmarks/", "gpu/ptx/", "cpu/compiled/test_sanitizers.py", "test_packaging.py", "test_site.py"),
    *("conformance/test_image_viewers.py", "concurrency/test_reentrant_code.py", "examples/test_training.py"),
    "examples/test_ci_without_gpu.py::test_the_example_passes",
    "examples/test_scripts.py::test_a_pyramid_on_a_cluster",
    "interop/xarray/test_engine.py::test_the_entry_point_is_found",
    "hierarchy/test_keywords.py::test_a_type_checker_knows_the_keywords",
    *(f"gpu/kernels/test_build.py::test_{name}" for name in ("nvcc", "no_kernel_makes", "kernels_pass", "planted")),
)
_LONG = tuple(f"tests/{name}" for name in LONG)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes long."""
    for item in items:
        if item.nodeid.startswith(_LONG):
            item.add_marker("long")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None]:
    """What is collected stays until the end. The garbage collector would look through it again and again."""
    gc.disable()
    try:
        _import_ahead(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Skip a test of the emulated device where nothing has compiled its kernels, and nothing can."""
    error: BaseException | None = call.excinfo.value if call.excinfo else None
    while error is not None and not (isinstance(error, gzarr.DeviceError) and "needs a C++17 compiler" in str(error)):
        error = error.__cause__ or error.__context__
    if error is not None and find_compiler() is None:  # with a compiler it is a fault
        call.excinfo = pytest.CallInfo.from_call(lambda: pytest.skip(str(error)), call.when).excinfo
    return (yield)


#: Bytes that a process of the tests may take: runners have few gigabytes for several of them. Most stay below 2 GiB.
MAX_NBYTES = 3 << 30
_peaks_nbytes = [0]  # after each test


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Fail the test with which a worker of xdist grows beyond what it may take."""
    yield
    if hasattr(item.config, "workerinput") and sys.platform == "linux":
        resource = importlib.import_module("resource")
        _peaks_nbytes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
        if _peaks_nbytes[-2] <= MAX_NBYTES < _peaks_nbytes[-1]:
            pytest.fail(f"{item.nodeid} let a process grow to {_peaks_nbytes[-1] >> 20} MiB")


@pytest.fixture(scope="module", autouse=True)
def _forgetting(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget, after a file of tests, what cached functions of its folder remember: hundreds of megabytes."""
    yield
    folder = request.module.__name__.rpartition(".")[0]
    for module in [module for name, module in sys.modules.items() if name.startswith(f"{folder}.")]:
        for value in vars(module).values():
            if isinstance(value, functools._lru_cache_wrapper):
                value.cache_clear()


@pytest.fixture(params=[2, 3], ids=["v2", "v3"])
def zarr_format(request: pytest.FixtureRequest) -> Iterator[int]:
    """Either format, which is the default for the duration of a test."""
    with gzarr.config.set(default_zarr_format=request.param):
        yield request.param
