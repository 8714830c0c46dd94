"""Facts about the package as it is built: dependencies, extras, sizes, versions, what a wheel holds."""

import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import gzarr
from gzarr.config import config
from gzarr.cpu.compiled import library
from gzarr.gpu.device.hostbuild import find_compiler
from tests.support.building import NO_COMPILERS, build, copy_sources, quick_compilers

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
    assert needed == {"numpy", "numcodecs", "google-crc32c", "deflate"}


def test_every_extra_that_the_package_names_exists() -> None:
    text = "\n".join(path.read_text() for path in (ROOT / "gzarr").rglob("*.py"))
    named = {extra for found in re.findall(r"gzarr\[([\w,-]+)\]", text) for extra in found.split(",")}
    named |= set(re.findall(r'require\("[\w.]+", "(\w+)"', text))
    assert {"cuda13", "ome"} <= named
    assert named <= set(EXTRAS)


def test_no_file_is_large() -> None:
    files = [path for path in (ROOT / "gzarr").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert [str(path) for path in files if path.stat().st_size > 600_000] == []


def test_the_version_is_the_same_everywhere() -> None:
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    cited = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert newest is not None
    assert cited is not None
    assert gzarr.__version__ == PROJECT["version"] == newest[1] == cited[1]


def test_the_recipe_for_conda_asks_for_what_the_package_asks_for() -> None:
    recipe = yaml.safe_load((ROOT / "packaging/recipe.yaml").read_text())
    asked = {name.replace(" ", "") for name in recipe["requirements"]["run"]}
    assert recipe["context"]["version"] == PROJECT["version"]
    # Without deflate, gzip and zlib take longer, and conda-forge does not have it.
    ours = {name for name in (*PROJECT["dependencies"], *EXTRAS["cli"]) if not name.startswith("deflate")}
    assert asked == {"python" + PROJECT["requires-python"], *ours}


def test_console_scripts_resolve() -> None:
    for target in PROJECT["scripts"].values():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name))


WITHOUT_EXTRAS = """
import sys
for name in ("typer", "rich", "google_crc32c", "deflate"):
    sys.modules[name] = None
import numpy as np
import gzarr
from gzarr.cli import run
z = gzarr.create_array(sys.argv[1], shape=(9, 9), chunks=(4, 4), dtype="i4", compressors=gzarr.codecs.GzipCodec())
z[:] = 3
print(int(gzarr.open_array(sys.argv[1])[2:5].sum()), run(["--version"]))
for call in (lambda: gzarr.verify(sys.argv[1], progress=True), lambda: gzarr.ones(9, chunks=3, shards=9)):
    try:
        call()
    except gzarr.errors.MissingExtraError as error:
        print(error)
"""


def test_numpy_and_numcodecs_suffice_and_what_is_missing_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_EXTRAS, str(tmp_path / "z.zarr")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    values, bar, shards = done.stdout.splitlines()
    assert values == "81 1", done.stderr
    assert "a progress bar needs the package 'rich'" in bar
    assert "pip install 'gzarr[cli]'" in bar
    assert "codec 'crc32c' needs the package 'google_crc32c'" in shards
    assert shards.endswith("pip install google-crc32c")
    assert re.fullmatch(r"gzarr: the command needs Typer and Rich \(.+\): pip install 'gzarr\[cli\]'\n", done.stderr)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    return build("wheel", copy_sources(folder / "sources"), folder / "made", **quick_compilers(folder))


def test_a_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert "gzarr/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"gzarr"}
    tracked = [path for path in (ROOT / "gzarr").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    sources = {path for folder in ("cpu/loop", "gpu/native") for path in (ROOT / "gzarr" / folder).glob("*.[ch]")}
    wanted = {path.relative_to(ROOT).as_posix() for path in tracked if path.suffix != ".so" and path not in sources}
    assert {name for name in names if name.startswith("gzarr/") and not name.endswith(".so")} == wanted


HAS_COMPILER = shutil.which(os.environ.get("CC") or "cc") is not None


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler")
def test_where_there_is_a_compiler_the_loop_is_there_and_knows_its_decoders() -> None:
    """Else its tests would all be skipped, and nobody would see that it is never used."""
    with config.set({"cpu.native": True}):
        assert library.status() == "on"
        numbers = {name: library.codec_number(name, checksum=True) for name in library._CODECS}
    assert None not in numbers.values(), numbers


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler")
def test_a_wheel_has_the_loop_for_all_pythons(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        assert "gzarr/cpu/_loop.abi3.so" in file.namelist()
    assert "-cp311-abi3-" in wheel.name


EMULATED = """
import gzarr, numpy as np
from gzarr.cpu.compiled import library
values = np.arange(999).reshape(27, 37)
z = gzarr.array(values, chunks=(10, 10), device="emulated")
read = z[5:20]
print(library.status(), (getattr(read, "get", lambda: read)() == values[5:20]).all(), gzarr.__file__)
"""


@pytest.mark.skipif(not HAS_COMPILER or find_compiler() is None, reason="there is no compiler")
def test_a_wheel_needs_no_compiler_for_anything(wheel: Path, tmp_path: Path) -> None:
    """It brings the loop, and the kernels of the emulated device, built from the texts beside them."""
    with zipfile.ZipFile(wheel) as file:
        assert "gzarr/gpu/_host_kernels.abi3.so" in file.namelist()
        file.extractall(tmp_path / "site")
    environment = {**os.environ, **NO_COMPILERS, "XDG_CACHE_HOME": str(tmp_path / "empty")}
    environment |= {"PYTHONPATH": str(tmp_path / "site"), "PATH": str(tmp_path)}

    def run() -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-c", EMULATED]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    done = run()
    assert done.stdout.startswith(f"on True {tmp_path}"), done.stderr
    assert list(tmp_path.glob("empty/gzarr/kernels/*")) == []
    # Kernels that were changed after the build are not run in their old form.
    with (tmp_path / "site/gzarr/gpu/kernels/shuffle.cu").open("a") as source:
        source.write("// changed")
    assert "DeviceError: the emulated device needs a C++17 compiler" in run().stderr


def test_without_a_compiler_there_is_a_wheel_all_the_same(tmp_path: Path) -> None:
    path = build("wheel", copy_sources(tmp_path / "sources"), tmp_path / "made", **NO_COMPILERS)
    # For this platform alone: tagged for any, it would be chosen before a source distribution that builds the loop.
    assert path.name.endswith(f"-py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}.whl")
    with zipfile.ZipFile(path) as file:
        names = file.namelist()
        file.extractall(tmp_path / "site")
    assert [name for name in names if name.endswith(".so")] == []
    code = (
        "import gzarr, numpy as np; from gzarr.cpu.compiled import library; z = gzarr.array(np.arange(99), chunks=9)\n"
        "print(bool((z[:] == np.arange(99)).all()), library.status())"
    )
    command = [sys.executable, "-P", "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("True off: the extension was not built"), done.stderr
    assert done.stderr.count("RuntimeWarning: gzarr was installed without its compiled loop") == 1
    command = [sys.executable, "-P", "-m", "gzarr", "--version"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    reason = "the extension was not built; install a C compiler, then gzarr again"
    assert done.stdout == f"gzarr {gzarr.__version__} (compiled loop: off: {reason})\n"
    # A clone hides what was installed from it when Python is started there.
    (tmp_path / "site" / "setup.py").touch()
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (
        f"where no extension was built; install a C compiler if there is none, then run pip install -e {tmp_path}"
        in done.stdout
    )
    # One that the system refuses.
    (tmp_path / "site" / "gzarr" / "cpu" / "_loop.abi3.so").write_bytes(b"damaged")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "(compiled loop: off: the extension cannot be loaded (" in done.stdout


def test_an_sdist_has_what_a_wheel_is_made_of(wheel: Path, tmp_path: Path) -> None:
    names = names_in_sdist(copy_sources(tmp_path / "sources"), tmp_path / "made")
    with zipfile.ZipFile(wheel) as file:
        needed = {name for name in file.namelist() if name.startswith("gzarr/") and not name.endswith(".so")}
    assert {"setup.py", "pyproject.toml", "LICENSE", "README.md", *loop_sources()} | needed <= names


def test_an_sdist_made_on_windows_has_the_c_files_and_no_tests(tmp_path: Path) -> None:
    sources = copy_sources(tmp_path / "sources")
    text = (sources / "setup.py").read_text()
    (sources / "setup.py").write_text(text.replace('[] if sys.platform == "win32" else [loop, kernels]', "[]"))
    assert "ext_modules=[]," in (sources / "setup.py").read_text()
    (sources / "tests").mkdir()
    (sources / "tests" / "test_one.py").touch()
    names = names_in_sdist(sources, tmp_path / "made")
    assert loop_sources() <= names
    assert not any(name.startswith("tests/") for name in names)


def loop_sources() -> set[str]:
    """The C files of the compiled loop and their headers."""
    folders = ROOT / "gzarr/cpu/loop", ROOT / "gzarr/gpu/native"
    return {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.glob("*.[ch]")}


def names_in_sdist(sources: Path, target: Path) -> set[str]:
    """The files of the source distribution made there, by their paths in the tree."""
    with tarfile.open(build("sdist", sources, target)) as file:
        return {name.partition("/")[2] for name in file.getnames()}
