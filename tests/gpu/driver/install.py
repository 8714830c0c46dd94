"""Puts the driver made of software under CuPy, KvikIO, nvCOMP and RMM: call `install_later` before CuPy is imported.

libcuda.so.1 is found by its name, as it is loaded already. CuPy's wheel has the CUDA runtime inside, and nvCOMP's and
RMM's libraries their own, so the functions there are overwritten with jumps to those of the same names here; functions
of the runtime that the driver lacks report that they were called. RMM's libraries are stripped of symbols, but each
function of the runtime still says its name to profilers.
"""

import atexit
import contextlib
import ctypes
import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterator
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
#: The table of .eh_frame_hdr: four bytes of encodings, and entries: where a function begins, from there, and more.
_ENCODINGS, _ENTRY = b"\x01\x1b\x03\x3b", struct.Struct("<ii")
#: ``lea register, [rip + ...]``, which loads an address, and the distance to it from behind.
_LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](?=(.{4}))", re.DOTALL)

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
    """Puts the driver under CuPy and RMM when they are imported: a process that does not import them loads little."""

    def find_spec(self, name: str, *_: Any) -> None:
        """Install, and leave the import to others."""
        _LATER.pop(name, lambda: None)()


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


def install_under_rmm() -> None:
    """Put the driver under RMM, as far as it has a CUDA runtime of its own."""
    if find_spec("librmm") is None:
        return
    import librmm
    from cuda import bindings

    driver = install()
    librmm.load_library()
    rmm = Path(librmm.__file__).parent
    places = [rmm / "lib64", rmm.with_name("rmm"), *map(Path, bindings.__path__)]
    for path in (path for place in places for path in place.rglob("*.so")):
        if b"\0cudaMallocAsync_ptsz\0" in path.read_bytes():  # the runtime is inside
            ctypes.CDLL(str(path))
            redirect(path, driver, "cuda", driver.driver_unsupported)


_LATER: dict[str, Callable[[], Any]] = {_RUNTIME: install, "rmm": install_under_rmm}


def redirect(path: Path, driver: Any, prefix: str, instead: Any) -> None:
    """Overwrite the functions of a loaded library, whose names begin so, with jumps to those of the driver.

    instead: for functions that the driver lacks; None to leave them as they are.
    """
    base, data = _base_of(path), path.read_bytes()
    for name, start, nbytes in {*_functions(data, prefix)} or {*_stripped_functions(data, prefix)}:
        with contextlib.suppress(AttributeError):
            function = getattr(driver, name, instead)
            if function is not None and nbytes >= 12:
                address = ctypes.cast(function, ctypes.c_void_p).value
                _write(base + start, b"\x48\xb8" + struct.pack("<Q", address) + b"\xff\xe0")  # mov rax; jmp rax


def _sections(data: bytes) -> list[tuple[int, ...]]:
    """Section headers of an ELF file (System V ABI, "Object Files"): 1 is a type, 3 an address, 4 and 5 a place."""
    (table,) = struct.unpack_from("<Q", data, 40)
    size, n = struct.unpack_from("<HH", data, 58)
    return [struct.unpack_from("<IIQQQQIIQQ", data, table + i * size) for i in range(n)]


def _functions(data: bytes, prefix: str) -> Iterator[tuple[str, int, int]]:
    """Names, addresses and sizes of functions of an ELF file."""
    sections = _sections(data)
    for section in sections:
        if section[1] not in (_SYMTAB, _DYNSYM):
            continue
        names = sections[section[6]][4]
        for symbol in _SYMBOL.iter_unpack(data[section[4] : section[4] + section[5]]):
            if symbol[1] & 15 == _FUNCTION and symbol[4]:
                name = _text(data, names + symbol[0])
                if name.startswith(prefix):
                    yield name, symbol[4], symbol[5]


def _stripped_functions(data: bytes, prefix: str) -> Iterator[tuple[str, int, int]]:
    """The same of a file without symbols, for functions that load the address of their own name, and no others do."""
    sections = _sections(data)
    (names,) = struct.unpack_from("<H", data, 62)
    parts = {_text(data, sections[names][4] + one[0]): (one[3], data[one[4] : one[4] + one[5]]) for one in sections}
    at, table = parts[".eh_frame_hdr"]
    if not table.startswith(_ENCODINGS):
        raise ValueError("functions are listed in another way")
    n = int.from_bytes(table[8:12], "little")
    starts = [at + start for start, _ in _ENTRY.iter_unpack(table[12 : 12 + n * _ENTRY.size])]
    at, strings = parts[".rodata"]
    found = re.finditer(rb"(?<=\0)" + prefix.encode() + rb"[A-Z]\w+(?=\0)", strings)
    known = {at + match.start(): match[0].decode() for match in found}
    at, code = parts[".text"]
    for match in _LEA.finditer(code):
        end = at + match.end() + 4
        name = known.get(end + int.from_bytes(match[1], "little", signed=True))
        if name is not None:
            i = bisect_right(starts, end)
            yield name, starts[i - 1], starts[i] - starts[i - 1]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


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
