"""The device under test: real hardware. Where there is none, each module here is skipped, and says what is missing."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gzarr.gpu.detection.detect import find_missing

_MISSING = find_missing()


class _Skipped(pytest.Module):
    """A module without a device to run on: one line in the report instead of hundreds."""

    def collect(self) -> Iterable[Any]:
        pytest.skip(f"no usable GPU: {_MISSING}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    """Skip whole modules."""
    return None if _MISSING is None else _Skipped.from_parent(parent, path=module_path)


@pytest.fixture(scope="session")
def cuda() -> Any:
    """gzarr.gpu.device.cuda."""
    from gzarr.gpu.device import cuda

    return cuda
