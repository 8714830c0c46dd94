"""The kernels' sources: declarations, the compilers that must take them, and sanitizers that must find nothing."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gzarr.gpu import kernels
from gzarr.gpu.device import hostbuild
from gzarr.gpu.kernels import sources
from gzarr.gpu.kernels.sources import KERNELS
from tests.gpu.kernels.launching import DEVICE
from tests.gpu.kernels.repeated import TESTED

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
#: Turing, the oldest that CUDA 13 compiles for, and Hopper. Those between and beyond found nothing that these did not.
ARCHITECTURES = (75, 90)
NVCC = shutil.which("nvcc")


# -- declarations ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KERNELS)
def test_arguments_are_those_of_the_source(name: str) -> None:
    bounds = r"(?:__launch_bounds__\([^)]*\)\s+)?"
    (found,) = re.findall(rf'extern "C" __global__ void {bounds}(\w+)\(([^)]*)\)', sources.source(name))
    declared = [re.sub(r"\s*\*\s*", "* ", " ".join(text.split())) for text in found[1].split(",")]
    assert found[0] == name
    assert declared == [f"{a.type} {a.name}" for a in KERNELS[name]]


@pytest.mark.parametrize("name", KERNELS)
def test_sources_include_nothing(name: str) -> None:
    """NVRTC has no system headers, and gets the text alone."""
    assert "#include" not in sources.source(name)
    assert sources.source(name).isascii()


def test_every_source_file_is_a_kernel_or_shared() -> None:
    folder = Path(kernels.__file__).parent
    assert {p.stem for p in folder.glob("*.cu")} == set(KERNELS)
    text = sources.all_sources()
    assert all(text.count(f'#line 1 "{p.name}"') == 1 for p in folder.iterdir() if p.suffix in (".cu", ".cuh"))


def test_unknown_kernels_are_named() -> None:
    with pytest.raises(KeyError, match="no kernel 'copy_boxes'; there are calculate, "):
        sources.source("copy_boxes")
    with pytest.raises(KeyError, match="no kernel 'copy_boxes'; there are calculate, "):
        DEVICE.launch("copy_boxes", 1, ())


def test_unit_starts() -> None:
    assert kernels.unit_starts(np.array([0, 1, 16, 17, 0])).tolist() == [0, 0, 1, 2, 4, 4]
    assert kernels.unit_starts(np.array([], np.int64)).tolist() == [0]


# -- compilers -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(NVCC is None, reason="no nvcc on this machine")
def test_nvcc_compiles_for_every_architecture(tmp_path: Path) -> None:
    """nvcc makes machine code of what a device compiles, without a warning: registers suffice, and no local memory is
    indexed. All kernels in one run, as each run reads CUDA's headers three times.
    """
    file = tmp_path / "kernels.cu"
    file.write_text(sources.all_sources())
    targets = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in ARCHITECTURES]
    strict = ["-Werror", "all-warnings", "-Xptxas", "-warn-spills", "-Xptxas", "-warn-lmem-usage"]
    command = [str(NVCC), "-std=c++17", "-fatbin", "--threads", "0", *strict, *targets, str(file)]
    result = subprocess.run([*command, "-o", str(tmp_path / "made")], check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout + result.stderr == ""
    made = (tmp_path / "made").read_bytes()
    assert [name for name in KERNELS if name.encode() not in made] == []


PLAIN_SUM = 'extern "C" __global__ void plain(float *x) { x[0] = x[0] + x[1]; }'


@pytest.mark.skipif(NVCC is None, reason="no nvcc on this machine")
def test_no_kernel_makes_zeros_of_subnormal_numbers(tmp_path: Path) -> None:
    """CuPy compiles with -ftz=true, whatever other options say."""

    def ptx(text: str) -> str:
        file, made = tmp_path / "kernels.cu", tmp_path / "kernels.ptx"
        file.write_text(text)
        command = [str(NVCC), "-std=c++17", "-ptx", "-ftz=true", f"-arch=compute_{ARCHITECTURES[-1]}", str(file)]
        result = subprocess.run([*command, "-o", str(made)], check=False, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        return made.read_text()

    assert "add.ftz.f32" in ptx(PLAIN_SUM)
    found = "".join(ptx(sources.source(name)) for name in KERNELS if "float" in sources.source(name))
    assert ".ftz" not in found
    exact = "add.rn.f32", "sub.rn.f32", "mul.rn.f32", "div.rn.f32", "cvt.rni.f32.f32", "cvt.rn.f32.f64", "cvt.f64.f32"
    assert all(instruction in found for instruction in exact)
    assert not re.search(r"\bfma\.rn\.f", found), "two operations became one"


# -- sanitizers ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sanitized() -> dict[str, str]:
    """The environment of a process in which the kernels run under AddressSanitizer and UBSan."""
    preload = hostbuild.sanitizer_preload()
    if preload is None:
        pytest.skip("no C++ compiler with sanitizer libraries on this machine")
    environment = {
        **os.environ,
        "LD_PRELOAD": preload,
        "GZARR_KERNEL_SANITIZE": "1",
        # Python keeps memory until it exits, which is no leak; small objects from malloc have guards around them.
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(ROOT),
        "HYPOTHESIS_PROFILE": "few",
    }
    probe = run([sys.executable, "-c", "import numpy"], environment)
    if probe.returncode != 0:
        pytest.skip(f"Python does not start with the sanitizers preloaded: {probe.stderr[-300:]}")
    return environment


def run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, cwd=ROOT, check=False, capture_output=True, text=True, timeout=600)


def test_kernels_pass_under_sanitizers(sanitized: dict[str, str]) -> None:
    files = [str(HERE / f"test_{name}.py") for name in TESTED]
    result = run([sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files], sanitized)
    assert result.returncode == 0, (result.stdout + result.stderr)[-6000:]
    assert re.search(r"^\d+ passed in", result.stdout, re.MULTILINE), result.stdout[-1000:]


PLANTED = """
import numpy as np
from tests.gpu.kernels.launching import make_sources, DEVICE
from tests.gpu.kernels.reference import Shuffle
chunk, target = np.zeros(64, np.uint8), np.zeros(80, np.uint8)
sources = make_sources([chunk], [Shuffle({shuffle})])
sources.nbytes[0] = {nbytes}
targets = np.array([target.ctypes.data], np.uint64)
DEVICE.launch("unshuffle", 5, (1, sources.address, targets, np.array([0, 5]), *sources.how))
print("survived")
"""


@pytest.mark.parametrize(
    ("shuffle", "nbytes", "message"),
    [
        ("0, 1, 1", 80, r"heap-buffer-overflow[\s\S]*unit\.cuh:\d+"),
        ("1, 4, 80", 80, r"heap-buffer-overflow[\s\S]*(source|unit)\.cuh:\d+"),
        ("1, 4, 0", 64, r"common\.cuh:\d+:\d+: runtime error: division by zero"),
    ],
)
def test_planted_faults_are_found(sanitized: dict[str, str], shuffle: str, nbytes: int, message: str) -> None:
    """The run above can fail: a chunk that claims more bytes than it has, and one with blocks of no bytes."""
    result = run([sys.executable, "-c", PLANTED.format(shuffle=shuffle, nbytes=nbytes)], sanitized)
    assert result.returncode != 0
    assert "survived" not in result.stdout
    assert re.search(message, result.stderr), result.stderr[-3000:]
