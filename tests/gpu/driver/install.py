"""Puts the driver made of software under CuPy, KvikIO and nvCOMP: call `install_later` before CuPy is imported.

libcuda.so.1 is found by its name, as it is loaded already. CuPy's wheel has the CUDA runtime inside, and nvCOMP's
library its own, so the functions there are overwritten with jumps to those of the same names here; functions of the
runtime that the driver lacks report that they were called.
"""

import atexit
import contextlib
import ctypes
import hashlib
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gzarr.gpu.detection.driver import cache_folder
from gzarr.gpu.kernels.sources import HOST_FLAGS, KERNELS, host_source

_NATIVE = Path(__file__).with_name("native")
_FLAGS = ("-std=c++17", "-O1", "-g1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror")
#: gzarr's kernels stop where a device would, at an access that is not aligned.
_CHECKED = ("-shared", "-fPIC", "-w", "-fsanitize=alignment", "-fsanitize-undefined-trap-on-error")
#: Libraries by the names that others load them by. The second one uses the first.
_NAMES = ("libcuda.so.1", "libcufile.so.0")
_SITE = Path(__file__).with_name("site")
_RUNTIME = "cupy_backends.cuda.api.runtime"
_PAGE = 4096
#: A symbol of an ELF file (Elf64_Sym): name, info, other, section, value, size.
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMTAB, _DYNSYM, _FUNCTION = 2, 11, 2

#: CuPy's own kernels come as PTX, which can be interpreted, and without CUB, whose kernels are compiled for GPUs only.
_ENVIRONMENT = {"CUPY_COMPILE_WITH_PTX": "1", "CUPY_ACCELERATORS": "", "KVIKIO_COMPAT_MODE": "ON"}
#: Nothing that is timed here means anything (benchmarks/gpu/sizes.py).
_ENVIRONMENT["GZARR_GPU_CHECK_SHRINK"] = "1024"


def why_missing() -> str | None:
    """Why the driver cannot be built; None if it can."""
    if find_spec("cupy") is None:
        return "CuPy is not installed"
    has = any((folder / "cuda.h").exists() for folder in headers())
    return None if has else "the package nvidia-cuda-runtime, with CUDA's headers, is not installed"


def headers() -> list[Path]:
    """Folders of CUDA's headers: one of CUDA 13, two of CUDA 12."""
    spec = find_spec("nvidia")
    places = spec.submodule_search_locations if spec else None
    return [path for place in places or () for path in sorted(Path(place).glob("cu*/include"))]


def build() -> Path:
    """Compile the libraries, unless they are cached. Returns: their folder."""
    sources = sorted(_NATIVE.iterdir())
    flags = [*_FLAGS, *(f"-I{folder}" for folder in headers())]
    texts = [*(path.read_bytes() for path in sources), host_source().encode(), str((flags, _CHECKED)).encode()]
    digest = hashlib.sha256(b"\0".join(texts)).hexdigest()
    folder = cache_folder("driver") or Path(tempfile.mkdtemp())
    target = folder / digest[:24]
    if not target.exists():
        place = Path(tempfile.mkdtemp(dir=folder))
        for name, is_cufile in zip(_NAMES, (False, True), strict=True):
            files = [str(p) for p in sources if p.suffix == ".cpp" and (p.stem == "cufile") == is_cufile]
            links = ["-lpthread", f"-Wl,-soname,{name}", *([str(place / _NAMES[0])] if is_cufile else [])]
            command = [os.environ.get("CXX") or "g++", *flags, *files, "-o", str(place / name)]
            subprocess.run([*command, *links], check=True, timeout=300)
        (place / "kernels.cpp").write_text(host_source())
        command = [os.environ.get("CXX") or "g++", *HOST_FLAGS, *_CHECKED, str(place / "kernels.cpp"), "-o"]
        subprocess.run([*command, str(place / "libkernels.so")], check=True, timeout=300)
        with contextlib.suppress(OSError):  # another process was first
            place.rename(target)
    return target


class _AfterImport(MetaPathFinder):
    """Puts the driver under CuPy when it is imported: a process that does not import it loads little."""

    def find_spec(self, name: str, *_: Any) -> None:
        """Install, and leave the import to others."""
        if name == _RUNTIME:
            sys.meta_path.remove(self)
            install()


def install_later() -> None:
    """Load the driver, for this process and those that it starts, and put it under CuPy when that is imported."""
    os.environ.update(_ENVIRONMENT)
    if "DRIVER_OF_SOFTWARE" not in os.environ and (folder := cache_folder("driver")):
        # Nothing that is cached here is for a GPU: kernels as PTX, results of self-checks.
        os.environ |= {"CUPY_CACHE_DIR": str(folder / "cupy"), "XDG_CACHE_HOME": str(folder), "DRIVER_OF_SOFTWARE": "1"}
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(_SITE), str(_SITE.parents[3]), *filter(None, paths)]))
    load()
    sys.meta_path.insert(0, _AfterImport())


@cache
def load() -> ctypes.CDLL:
    """Build the libraries if need be, and load them. Returns: the driver."""
    driver, _ = (ctypes.CDLL(str(build() / name), mode=ctypes.RTLD_GLOBAL) for name in _NAMES)
    driver.driver_live.restype = driver.driver_peak.restype = ctypes.c_size_t
    driver.driver_faults.restype = driver.driver_called.restype = driver.driver_blocks.restype = ctypes.c_size_t
    return driver


@cache
def install() -> ctypes.CDLL:
    """Put the driver under CuPy and nvCOMP. Returns: the library."""
    driver = load()
    from cupy_backends.cuda.api import runtime

    from gzarr.gpu.device import nvcomp
    from tests.gpu.driver import python

    driver.driver_start(python.start(driver))
    driver.driver_handle_signals()
    atexit.register(driver.driver_drain)
    kernels = ctypes.CDLL(str(build() / "libkernels.so"))
    for name, arguments in KERNELS.items():
        driver.driver_kernel(name.encode(), kernels[f"host_{name}"], len(arguments))
    redirect(Path(runtime.__file__), driver, "cuda", driver.driver_unsupported)
    redirect(Path(nvcomp.load()._name), driver, "nvcompBatched", None)
    return driver


def redirect(path: Path, driver: Any, prefix: str, instead: Any) -> None:
    """Overwrite the functions of a loaded library, whose names begin so, with jumps to those of the driver.

    instead: for functions that the driver lacks; None to leave them as they are.
    """
    base = _base_of(path)
    for name, start, nbytes in _functions(path, prefix):
        with contextlib.suppress(AttributeError):
            function = getattr(driver, name, instead)
            if function is not None and nbytes >= 12:
                address = ctypes.cast(function, ctypes.c_void_p).value
                _write(base + start, b"\x48\xb8" + struct.pack("<Q", address) + b"\xff\xe0")  # mov rax; jmp rax


def _functions(path: Path, prefix: str) -> Iterator[tuple[str, int, int]]:
    """Names, addresses and sizes of functions of an ELF file (System V ABI, "Object Files")."""
    data = path.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 40)
    size, n = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(n)]
    seen = set()
    for section in sections:
        if section[1] not in (_SYMTAB, _DYNSYM):
            continue
        names = sections[section[6]][4]
        for symbol in _SYMBOL.iter_unpack(data[section[4] : section[4] + section[5]]):
            if symbol[1] & 15 == _FUNCTION and symbol[4]:
                start = names + symbol[0]
                name = data[start : data.index(b"\0", start)].decode()
                if name.startswith(prefix) and name not in seen:
                    seen.add(name)
                    yield name, symbol[4], symbol[5]


def _base_of(path: Path) -> int:
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(path.resolve())):
            return int(line.partition("-")[0], 16)
    raise OSError(f"{path} is not loaded")


def _write(address: int, code: bytes) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    first = address // _PAGE * _PAGE
    nbytes = address + len(code) - first
    if library.mprotect(ctypes.c_void_p(first), ctypes.c_size_t(nbytes), 7):
        raise OSError(ctypes.get_errno(), "mprotect")
    ctypes.memmove(address, code, len(code))
