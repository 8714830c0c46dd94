"""One small run on the emulated device, which the tests of its rows share."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import run

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = "python -m benchmarks.gpu --small"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "CONTENDER_S", math.inf)  # on a busy machine, a small read may take a second
        path = run.run(tmp_path_factory.mktemp("results"), "emulated", math.inf, small=True, command=command)
    assert path.name == "gpu-emulated-small.json"
    return json.loads(path.read_text())
