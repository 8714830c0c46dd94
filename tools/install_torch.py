"""Installs PyTorch for the tests: ``python tools/install_torch.py`` with the Python of a virtual environment.

PyTorch's wheel for Linux is linked against CUDA, whose wheels take 4 GB more. On a machine without a driver of NVIDIA,
this installs all other requirements, and writes small libraries in place of CUDA's into PyTorch's own folder, where the
loader finds them. Their functions return "no device", so PyTorch computes on the CPU and says that CUDA is not
available. It needs a C compiler and readelf. `--full` and every other machine: as ``pip install torch`` does.
"""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import requires
from pathlib import Path

#: torchdata has the loader whose state can be saved; the others have training loops.
PACKAGES = ["torch", "torchdata", "accelerate", "lightning", "pytorch-lightning", "torchmetrics"]

#: What only a GPU needs, by the beginnings of names.
OF_CUDA = ("cuda-", "nvidia-", "triton")

#: cudaErrorNoDevice and CUDA_ERROR_NO_DEVICE (driver_types.h, cuda.h).
NO_DEVICE = 100

_SYMBOL = re.compile(r" (?:FUNC|OBJECT|NOTYPE) +GLOBAL +DEFAULT +(UND|\d+) (\w+)(?:@+([\w.]+))?")


def pip_install(*args: str) -> None:
    """Install packages into the environment of this Python."""
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", *args], check=True)


def other_requirements() -> list[str]:
    """Return what the installed packages require, but for each other and CUDA."""
    found = [text for name in PACKAGES for text in requires(name) or ()]
    needed = [text for text in found if "extra ==" not in text and not text.startswith(OF_CUDA)]
    return [text for text in needed if re.split(r"[^\w-]", text)[0] not in PACKAGES]


def readelf(*args: str | Path) -> str:
    """Return what readelf prints."""
    return subprocess.run(["readelf", "-W", *args], check=True, capture_output=True, text=True).stdout


def missing_libraries(libraries: list[Path]) -> dict[str, dict[str, set[str]]]:
    """Return the libraries of CUDA that others name, each with the versions and their symbols that are expected in it.

    Symbols without a version, "", may be in any of them: they are given to the first.
    """
    present = {path.name for path in libraries}
    missing: dict[str, dict[str, set[str]]] = {}
    of_version: dict[str, set[str]] = {}
    defined, unversioned = set(), set()
    for path in libraries:
        dynamic = readelf("--dynamic", "--version-info", "--dyn-syms", path)
        for name in re.findall(r"\(NEEDED\).*\[(lib(?:cu|nv|nccl).*)\]", dynamic):
            if name not in present:
                missing.setdefault(name, {"": set()})
        for name, entries in re.findall(r"Version: 1  File: (\S+)  Cnt: \d+\n((?:.*  Name: .*\n)*)", dynamic):
            for version in re.findall(r"  Name: (\S+)", entries) if name in missing else ():
                of_version[version] = missing[name].setdefault(version, set())
        for section, name, version in _SYMBOL.findall(dynamic):
            if section != "UND":
                defined.add(name)
            elif version in of_version:
                of_version[version].add(name)
            elif not version and not name.startswith(("Py", "_Py")):
                unversioned.add(name)
    if missing:
        next(iter(missing.values()))[""] |= unversioned - defined
    return missing


def write_library(path: Path, symbols: dict[str, set[str]]) -> None:
    """Compile a library whose functions return that there is no device."""
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder) / "stub.c", Path(folder) / "versions"
        names = sorted(set().union(*symbols.values()))
        source.write_text("".join(f"int {name}(void) {{ return {NO_DEVICE}; }}\n" for name in names))
        blocks = {version: "".join(f"{name}; " for name in sorted(symbols[version])) for version in symbols if version}
        script.write_text("".join(f"{v} {{ {f'global: {names}' if names else ''} }};\n" for v, names in blocks.items()))
        command = ["cc", "-shared", "-w", "-fno-builtin", f"-Wl,-soname,{path.name}"]
        command += [f"-Wl,--version-script={script}"] if blocks else []
        subprocess.run([*command, "-o", path, source], check=True)


def main() -> None:
    """Install PyTorch and what trains with it, with CUDA's libraries or with what stands in for them."""
    if "--full" in sys.argv or sys.platform != "linux" or Path("/proc/driver/nvidia").exists():
        pip_install(*PACKAGES)
        return
    pip_install("--no-deps", *PACKAGES)
    pip_install("--no-warn-conflicts", *other_requirements())
    folder = Path(sysconfig.get_path("platlib")) / "torch"
    libraries = [*folder.glob("_C.*.so"), *(folder / "lib").glob("*.so*")]
    for name, symbols in missing_libraries(libraries).items():
        write_library(folder / "lib" / name, symbols)


if __name__ == "__main__":
    main()
