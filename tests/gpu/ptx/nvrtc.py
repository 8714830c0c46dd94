"""NVRTC through ctypes: compiles the kernels as CuPy does, which needs no GPU, and reads what ptxas says about them."""

import ctypes
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from gzarr.gpu.detection.driver import cache_folder
from gzarr.gpu.kernels.sources import COMPILER_OPTIONS, KERNELS, source

#: The options of `gzarr.gpu.device.cuda` and those that CuPy adds (cupy/cuda/compiler.py); -v makes ptxas talk.
OPTIONS = (*COMPILER_OPTIONS, "--device-as-default-execution-space", "-ftz=true", "--ptxas-options=-v")


class Resources(NamedTuple):
    """What a kernel takes of a multiprocessor: registers of a thread, and bytes."""

    registers: int
    stack: int
    spills: int
    shared: int


class Module(NamedTuple):
    """What was compiled: PTX, what each kernel takes, and the seconds of CPU that compiling took."""

    ptx: str
    resources: dict[str, Resources]
    seconds: float


def why_missing() -> str | None:
    """Why nothing can be compiled; None if NVRTC is there."""
    return None if _path() else "nvidia-cuda-nvrtc is not installed (it is in the extra 'test', for Linux)"


@cache
def kernels(arch: int) -> Module:
    """All kernels of the package, one by one, for an architecture such as 90, compiled once and cached on disk."""
    texts = [source(name) for name in KERNELS]
    folder = cache_folder("ptx")
    digest = hashlib.sha256("\0".join([*texts, str(_path()), str(arch), *OPTIONS]).encode()).hexdigest()[:24]
    cached = folder / f"{digest}.json" if folder else None
    if cached and cached.exists():
        ptx, resources, seconds = json.loads(cached.read_text())
        return Module(ptx, {name: Resources(*row) for name, row in resources.items()}, seconds)
    made = [compile_module(text, arch) for text in texts]
    resources = {name: row for module in made for name, row in module.resources.items()}
    module = Module("\n".join(module.ptx for module in made), resources, sum(module.seconds for module in made))
    if cached and folder:
        with tempfile.NamedTemporaryFile("w", dir=folder, delete=False) as file:
            json.dump(module, file)
        Path(file.name).replace(cached)
    return module


def compile_module(text: str, arch: int, options: Sequence[str] = OPTIONS) -> Module:
    """Compile CUDA C++. Raises: SyntaxError with the compiler's messages."""
    library = ctypes.CDLL(str(_path()))
    program = ctypes.c_void_p()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None))
    given = [option.encode() for option in (*options, f"-arch=sm_{arch}")]
    begin = time.process_time()
    status = library.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
    seconds = time.process_time() - begin
    try:
        log = _text(library, program, "ProgramLog")
        if status:
            raise SyntaxError(log)
        return Module(_text(library, program, "PTX"), _resources(log), seconds)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def architectures() -> list[int]:
    """What NVRTC compiles for, such as 90."""
    library, n = ctypes.CDLL(str(_path())), ctypes.c_int()
    _check(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(n)))
    found = (ctypes.c_int * n.value)()
    _check(library, library.nvrtcGetSupportedArchs(found))
    return list(found)


def _resources(log: str) -> dict[str, Resources]:
    found = {}
    for part in re.split(r"Compiling entry function '", log)[1:]:
        name = part.partition("'")[0]
        stack, stores, loads = map(int, re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", part)[:3])
        registers = int(re.findall(r"Used (\d+) registers", part)[0])
        shared = sum(map(int, re.findall(r"(\d+) bytes smem", part)[:1]))
        found[name] = Resources(registers, stack, stores + loads, shared)
    return found


def _text(library: Any, program: Any, what: str) -> str:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.value.decode()


def _check(library: Any, status: int) -> None:
    if status:
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise OSError(f"NVRTC: {library.nvrtcGetErrorString(status).decode()}")


@cache
def _path() -> Path | None:
    spec = find_spec("nvidia")
    folders = spec.submodule_search_locations if spec else None
    found = [path for folder in folders or () for path in Path(folder).glob("*/lib/libnvrtc.so.*")]
    return max(found, default=None)
