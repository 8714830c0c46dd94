"""Places that the tests of opening and saving write to."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(params=["memory", "local", "zip"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Something that names the same store each time it is opened."""
    return {"memory": {}, "local": tmp_path / "x.zarr", "zip": tmp_path / "x.zip"}[request.param]
