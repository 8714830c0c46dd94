"""The short examples run, and check what they read."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from tests.support.processes import ROOT, output_of


def run(*args: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return output_of([sys.executable, *args], cwd=ROOT, env=environment)


def test_image_windows() -> None:
    out = run("-c", "from examples import image_windows as it; it.SIDE = 4096; it.main()")  # most of it is the picture
    assert (out.count("1024 x 1024 pixels in"), out.count("256 x 256 pixels in")) == (4, 1)


def test_a_pyramid_on_a_cluster() -> None:
    lines = run("examples/pyramid_on_a_cluster.py").splitlines()
    assert [line.split(" pixels")[0] for line in lines] == [
        " 3000 x 3000",
        " 1500 x 1500",
        "  750 x  750",
        "  375 x  375",
        "  188 x  188",
    ]
    means = [float(line.rpartition(" ")[2]) for line in lines]
    assert max(means) - min(means) < 1


@pytest.mark.parametrize(
    ("script", "needs", "function"),
    [("invert_on_beam", "apache_beam", np.invert), ("mean_on_cubed", "cubed", lambda data: data.mean(axis=0))],
)
def test_other_engines(script: str, needs: str, function: Callable[[Any], Any], tmp_path: Path) -> None:
    pytest.importorskip(needs)
    data = np.arange(60_000, dtype="u2").reshape(300, 200)
    gzarr.save(tmp_path / "in.zarr", data, chunks=(50, 60))
    run(f"examples/{script}.py", str(tmp_path / "in.zarr"), str(tmp_path / "out.zarr"))
    np.testing.assert_array_equal(gzarr.open_array(tmp_path / "out.zarr")[...], function(data))


def test_the_page_names_every_example() -> None:
    page = (ROOT / "examples" / "README.md").read_text()
    names = {path.name for path in (ROOT / "examples").iterdir() if path.name not in ("README.md", "__pycache__")}
    assert [name for name in names if name.removesuffix(".py") not in page] == []
