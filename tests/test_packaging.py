"""Facts about the package as it is built: dependencies, extras, sizes, versions, what a wheel holds."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import gzarr

ROOT = Path(__file__).parents[1]
PYPROJECT_TEXT = (ROOT / "pyproject.toml").read_text()
PROJECT = tomllib.loads(PYPROJECT_TEXT)["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_every_dependency_has_its_reason_beside_it() -> None:
    names = [*PROJECT["dependencies"], *(name for names in EXTRAS.values() for name in names)]
    reasons = dict(re.findall(r'^    "([^"]+)", +# (\S.{5,})$', PYPROJECT_TEXT, re.MULTILINE))
    assert [name for name in names if name not in reasons] == []


def test_the_core_needs_no_extra() -> None:
    needed = {re.split(r"[<>=\[ ]", name)[0] for name in PROJECT["dependencies"]}
    assert needed == {"numpy", "numcodecs", "google-crc32c"}


def test_every_extra_that_the_package_names_exists() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "gzarr").rglob("*.py"))
    named = {extra for found in re.findall(r"gzarr\[([\w,-]+)\]", text) for extra in found.split(",")}
    assert "demo" in named
    assert named <= set(EXTRAS)


def test_no_file_is_large() -> None:
    files = [path for path in (ROOT / "gzarr").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert [str(path) for path in files if path.stat().st_size > 600_000] == []


def test_the_version_is_the_same_everywhere() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest is not None
    assert gzarr.__version__ == PROJECT["version"] == newest[1]


def test_console_scripts_resolve() -> None:
    for target in PROJECT["scripts"].values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    target = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (path,) = target.glob("gzarr-*.whl")
    return path


def test_a_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert {"gzarr/demo/relief.xz", "gzarr/demo/README.md", "gzarr/py.typed"} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"gzarr"}


def test_the_demo_runs_from_an_installed_package(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path / "site")
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, 'site')\n"
        "from gzarr.demo import story; assert Path(story.__file__).is_relative_to(Path.cwd() / 'site')\n"
        "story.run_demo(Path('out'), 'cpu', tiles=1)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / "relief.png").stat().st_size > 1_000_000
