"""Runs the CUDA kernels on host memory, for the emulated device.

A wheel brings the kernels built for its platform (``setup.py``). Without them, or where they were built from other
sources, as in a source tree that changes, the C++ compiler makes the library once, and it is cached in the user's cache
folder under a hash of everything that it is built from.
``GZARR_KERNEL_SANITIZE=1`` builds it with AddressSanitizer and UBSan; the process must then have been started with
``LD_PRELOAD`` set to `sanitizer_preload`, and stops at the first wrong access.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gzarr.errors import DeviceError
from gzarr.gpu.detection.driver import cache_folder
from gzarr.gpu.kernels import TABLE_DTYPES
from gzarr.gpu.kernels.sources import BLOCK_THREADS, HOST_FLAGS, KERNELS, Argument, host_digest, host_source

_FLAGS = (*HOST_FLAGS, "-shared", "-fPIC")
_WARNINGS = ("-Wall", "-Wextra", "-Werror")
#: #pragma unroll is CUDA's; `-Wno-unused-function` because each kernel needs only some of the shared functions.
_QUIET = ("-Wno-unknown-pragmas", "-Wno-unused-function")
#: Without optimization it compiles in a fifth of the time.
_SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-g1", "-O0")
#: Where ``setup.py`` puts the library.
_FOLDER = Path(__file__).parents[1]
#: Compiling takes a few seconds; a minute or two on a busy machine.
_COMPILE_TIMEOUT_S = 600
#: Libraries that a process must preload for a sanitized kernel library; libstdc++ because AddressSanitizer looks for
#: its exception functions when the process starts, before an extension module could bring them.
_PRELOADS = ("libasan.so", "libubsan.so", "libstdc++.so")


def is_sanitized() -> bool:
    """Whether this process runs the kernels under sanitizers."""
    return os.environ.get("GZARR_KERNEL_SANITIZE", "") not in ("", "0")


def find_compiler() -> str | None:
    """Path of the C++ compiler: ``$CXX`` or g++; None if there is none."""
    return shutil.which(os.environ.get("CXX") or "g++")


def sanitizer_preload() -> str | None:
    """Value of LD_PRELOAD for a process that loads sanitized kernels; None if the compiler has no sanitizers."""
    compiler = find_compiler()
    if compiler is None:
        return None
    paths = [Path(_run([compiler, f"-print-file-name={name}"]).stdout.strip()) for name in _PRELOADS]
    # A compiler that lacks a library prints the bare name.
    return ":".join(map(str, paths)) if all(path.is_absolute() and path.exists() for path in paths) else None


def find_built() -> Path | None:
    """The library that came with the package; None if there is none, or it was built from other sources."""
    digest = host_digest().encode()
    return next((path for path in _FOLDER.glob("_host_kernels*.so") if digest in path.read_bytes()), None)


def build(*, sanitize: bool = False) -> Path:
    """Compile the kernels unless they are cached. Returns: the path of the shared library.

    Raises: DeviceError if there is no compiler, or with its messages if it fails.
    """
    compiler = find_compiler()
    if compiler is None:
        raise DeviceError(
            "the emulated device needs a C++17 compiler: install g++, or name one in CXX, or install a wheel of gzarr, "
            "which has the kernels compiled"
        )
    command = [compiler, *_FLAGS, *_WARNINGS, *_QUIET, *(_SANITIZE if sanitize else ())]
    text = host_source()
    version = _run([compiler, "--version"]).stdout
    digest = hashlib.sha256("\0".join([*command, version, text]).encode()).hexdigest()[:24]
    target = _cache_folder() / f"kernels-{digest}.so"
    if not target.exists():
        _compile(command, text, target)
    return target


@cache
def _library(*, sanitize: bool) -> ctypes.CDLL:
    built = None if sanitize else find_built()
    if built is not None:
        with suppress(OSError):  # built for another system: the compiler that is here knows better
            return ctypes.CDLL(str(built))
    return ctypes.CDLL(str(build(sanitize=sanitize)))


def _compile(command: list[str], text: str, target: Path) -> None:
    """Compile to a unique name and rename, as other processes may do the same."""
    with tempfile.TemporaryDirectory(prefix="building-", dir=target.parent) as folder:
        file = Path(folder) / "kernels.cpp"
        file.write_text(text, encoding="utf-8")
        made = Path(folder) / "kernels.so"
        result = _run([*command, str(file), "-o", str(made)])
        if result.returncode != 0:
            raise DeviceError(f"{command[0]} could not compile the kernels for the host:\n{result.stderr.strip()}")
        made.replace(target)


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 - the compiler that the user has or named, with fixed arguments
            command, capture_output=True, text=True, check=False, timeout=_COMPILE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"the C++ compiler could not be run: {error}") from error


@cache
def _cache_folder() -> Path:
    """The user's cache folder, or a new private one if that cannot be written; others could write to a shared one."""
    return cache_folder("kernels") or Path(_private_folder().name)


@cache
def _private_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="gzarr-kernels-")


def _as_c(kernel: str, argument: Argument, value: Any) -> Any:
    """A value as a ctypes argument, checked against what the kernel expects."""
    if argument.type == "i64":
        return ctypes.c_longlong(int(value))
    if not isinstance(value, np.ndarray):
        return ctypes.c_void_p(int(value))
    what = f"kernel {kernel}, argument {argument.name}"
    dtype = TABLE_DTYPES.get(argument.type.removeprefix("const ").rstrip("*"))
    if dtype is not None and (value.dtype != dtype or not value.flags.c_contiguous):
        raise TypeError(f"{what}: expected a C-contiguous array of {dtype}, got {value.dtype}, strides {value.strides}")
    if not argument.type.startswith("const") and not value.flags.writeable:
        raise ValueError(f"{what}: the array is written, and must not be read-only")
    return ctypes.c_void_p(value.ctypes.data)


def launch(name: str, n_threads: int, args: Sequence[Any]) -> None:
    """Run a kernel on host memory to its end, one thread after the other.

    The library of the kernels is loaded at the first launch, once for the process.

    name: one of `KERNELS`.
    n_threads: threads wanted, rounded up to whole blocks; none for an empty launch.
    args: in the order of the kernel's arguments: integers; for pointers an address, or a NumPy array whose dtype
        and layout are checked if it is a table. Addresses are trusted.

    Raises: KeyError for a kernel that does not exist, TypeError or ValueError for arguments that do not fit,
        DeviceError if there is no compiler or it fails.
    """
    if name not in KERNELS:
        raise KeyError(f"no kernel {name!r}; there are {', '.join(KERNELS)}")
    arguments = KERNELS[name]
    if len(args) != len(arguments):
        raise TypeError(f"kernel {name} takes {len(arguments)} arguments, got {len(args)}")
    if n_threads < 0:
        raise ValueError(f"kernel {name}: the number of threads must be >= 0, got {n_threads}")
    values = [_as_c(name, argument, value) for argument, value in zip(arguments, args, strict=True)]
    if n_threads:
        function = _library(sanitize=is_sanitized())[f"host_{name}"]
        function.restype = None
        function(ctypes.c_longlong(n_threads), ctypes.c_uint(BLOCK_THREADS), *values)
