"""The short examples run, and check what they read."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*args: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *args]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_image_windows() -> None:
    out = run("-c", "from examples import image_windows as it; it.SIDE = 4096; it.main()")  # most of it is the picture
    assert out.count("1024 x 1024 pixels in") == 4
    assert out.count("256 x 256 pixels in") == 1


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


def test_the_page_names_every_example() -> None:
    page = (ROOT / "examples" / "README.md").read_text()
    names = {path.name for path in (ROOT / "examples").iterdir() if path.name not in ("README.md", "__pycache__")}
    assert [name for name in names if name.removesuffix(".py") not in page] == []
