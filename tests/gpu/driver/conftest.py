"""Tests that run on the driver made of software. Without it, each module here is skipped, and says what is missing."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.driver.install import why_missing

_MISSING = why_missing()


class _Skipped(pytest.Module):
    def collect(self) -> Iterable[Any]:
        pytest.skip(f"make test-gpu-driver runs it: {_MISSING}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    """Skip whole modules."""
    return None if _MISSING is None else _Skipped.from_parent(parent, path=module_path)


@pytest.fixture(scope="session")
def cuda() -> Any:
    """gzarr.gpu.device.cuda."""
    from gzarr.gpu.device import cuda

    return cuda


@pytest.fixture
def new_streams(cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no stream be used again: CuPy keeps memory for those that were, and waits for the device to free it."""
    monkeypatch.setattr(cuda.CudaDevice, "new_stream", lambda device: cuda.cupy.cuda.Stream(non_blocking=True))
