"""Every call of CuPy, KvikIO and nvCOMP, with the parameters that the packages have.

That each name and each call fits the table is tested everywhere; that the packages fit it, where they are installed
(`make test-gpu-driver`).
"""

import ast
import ctypes
import importlib
import inspect
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import gzarr
from gzarr.gpu.device import nvcomp, nvcomp_tables

GPU = Path(gzarr.__file__).parent / "gpu"
LIBRARIES = {"cupy", "kvikio"}
#: Functions and classes that are named in full, and their parameters.
CALLS = {
    "cupy.RawModule": (
        "code=None, *, path=None, options=(), backend='nvrtc', translate_cucomplex=False, "
        "enable_cooperative_groups=False, name_expressions=None, jitify=None"
    ),
    "cupy.asarray": "a, dtype=None, order=None, *, copy=None, blocking=False",
    "cupy.asnumpy": "a, stream=None, order='C', out=None, *, blocking=True",
    "cupy.cuda.Device": "device=None",
    "cupy.cuda.Event": "block=False, disable_timing=False, interprocess=False",
    "cupy.cuda.MemoryHook": "",
    "cupy.cuda.MemoryPointer": "mem, offset",
    "cupy.cuda.MemoryPool": "allocator=None",
    "cupy.cuda.PinnedMemory": "size, flags=0",
    "cupy.cuda.PinnedMemoryPointer": "mem, offset",
    "cupy.cuda.Stream": "null=False, non_blocking=False, ptds=False, priority=None",
    "cupy.cuda.Stream.from_external": "obj",
    "cupy.cuda.UnownedMemory": "ptr, size, owner, device_id=-1",
    "cupy.cuda.driver.CUDADriverError": "status",
    "cupy.cuda.get_allocator": "",
    "cupy.cuda.get_current_stream": "device_id=-1",
    "cupy.cuda.get_elapsed_time": "start_event, end_event",
    "cupy.cuda.nvtx.RangePop": "",
    "cupy.cuda.nvtx.RangePush": "message, id_color=-1",
    "cupy.cuda.runtime.CUDARuntimeError": "status",
    "cupy.cuda.runtime.getDeviceCount": "",
    "cupy.cuda.runtime.hostRegister": "ptr, size, flags",
    "cupy.cuda.runtime.memGetInfo": "",
    "cupy.cuda.runtime.pointerGetAttributes": "ptr",
    "cupy.cuda.runtime.runtimeGetVersion": "",
    "cupy.cuda.using_allocator": "allocator=None",
    "cupy.empty": "shape, dtype=float, order='C'",
    "cupy.from_dlpack": "array, *, device=None, copy=None",
    "cupy.get_default_memory_pool": "",
    "cupy.ndarray": "*args, _obj=None, _no_init=False, **kwargs",
    "kvikio.CuFile": "file, flags='r'",
    "kvikio.cufile_driver.get": "config_name",
    "kvikio.defaults.get": "config_name",
    "kvikio.defaults.set": "*config",
}
#: Methods of objects of these libraries: where they are called, and their parameters but for the object.
METHODS = {
    "detection/detect.py: nvrtc.getVersion": ("cupy_backends.cuda.libs.nvrtc.getVersion", ""),
    "device/cuda.py: array.get": ("cupy.ndarray.get", "stream=None, order='C', out=None, blocking=True"),
    "device/cuda.py: array.set": ("cupy.ndarray.set", "arr, stream=None"),
    "device/cuda.py: stream.record": ("cupy.cuda.Stream.record", "event=None"),
    "device/cuda.py: stream.wait_event": ("cupy.cuda.Stream.wait_event", "event"),
    "device/cuda.py: cupy.cuda.get_current_stream().synchronize": ("cupy.cuda.Stream.synchronize", ""),
    "device/cuda.py: module.get_function": ("cupy.RawModule.get_function", "name"),
    "device/cuda.py: pool.total_bytes": ("cupy.cuda.MemoryPool.total_bytes", ""),
    "reading/kvikio.py: file.pread": ("kvikio.CuFile.pread", "buf, size=None, file_offset=0, task_size=None"),
    "reading/kvikio.py: future.get": ("kvikio.cufile.IOFuture.get", ""),
    "reading/kvikio.py: file.close": ("kvikio.CuFile.close", ""),
}
#: Names that are not called.
VALUES = {"kvikio.CompatMode.ON", "cupy.int32", "cupy.uint8", "cupy.uint32", "cupy.uint64"}
VALUES |= {"cupy.cuda.runtime.hostAllocMapped", "cupy.cuda.runtime.hostUnregister"}


def dotted(node: ast.AST) -> str:
    """``cupy.cuda.Stream`` of such an expression; "" of others."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr) if base := dotted(value):
            return f"{base}.{attr}"
    return ""


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(GPU.rglob("*.py")):
        yield path.relative_to(GPU).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def signature(parameters: str) -> inspect.Signature:
    """The signature of a function with such parameters."""
    return inspect.signature(eval(f"lambda {parameters}: 0"))


def fits(call: ast.Call, parameters: str) -> bool:
    """Whether a call passes what there is. One with ``*args`` fits if its keywords do."""
    some = any(isinstance(argument, ast.Starred) for argument in call.args)
    bind = signature(parameters).bind_partial if some else signature(parameters).bind
    try:
        bind(*[0] * (0 if some else len(call.args)), **{one.arg: 0 for one in call.keywords if one.arg})
    except TypeError:
        return False
    return True


def test_every_name_of_the_libraries_is_listed() -> None:
    used = set()
    for _, tree in trees():
        names = {dotted(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        used |= {name for name in names if name.partition(".")[0] in LIBRARIES}
    inner = {name for name in used if any(other.startswith(f"{name}.") for other in used)}
    assert used - inner == (set(CALLS) | VALUES) - inner


def test_every_call_passes_what_the_table_lists() -> None:
    wrong, seen = [], set()
    for path, tree in trees():
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            name = dotted(call.func)
            method = f"{path}: {ast.unparse(call.func)}"
            parameters = CALLS.get(name) if name in CALLS else METHODS.get(method, ("", None))[1]
            seen.add(name if name in CALLS else method)
            if parameters is not None and not fits(call, parameters):
                wrong.append(f"{path}:{call.lineno}: {ast.unparse(call)}")
    assert wrong == []
    assert set(METHODS) <= seen


def test_a_call_that_does_not_fit_is_seen() -> None:
    def call(text: str) -> ast.Call:
        node = ast.parse(text).body[0]
        assert isinstance(node, ast.Expr)
        assert isinstance(node.value, ast.Call)
        return node.value

    assert fits(call("f(1, b=2)"), "a, b=1")
    assert fits(call("f(*x)"), "a, b=1")
    assert not fits(call("f(1, 2, 3)"), "a, b=1")
    assert not fits(call("f(1, c=2)"), "a, b=1")


def real(name: str) -> Any:
    """What a name means: parts of it may be modules."""
    library, *parts = name.split(".")
    found = importlib.import_module(library)
    for number, part in enumerate(parts):
        if not hasattr(found, part):
            importlib.import_module(".".join([library, *parts[: number + 1]]))
        found = getattr(found, part)
    return found


def parameters_of(function: Any) -> str:
    """Its parameters without types. Functions of Cython have them in the first line of their documentation."""
    try:
        text = str(inspect.signature(function))
    except (TypeError, ValueError):
        text = str(function.__doc__).partition("\n")[0]
    text = text[text.index("(") + 1 : text.rindex(")")]
    parts = re.split(r",\s*(?![^\[({]*[\])}])", text) if text else []
    names = []
    for part in parts:
        name, equals, default = (piece.strip() for piece in part.partition("="))
        default = re.sub(r"<class '(\w+)'>", r"\1", default)
        names.append(f"{name.partition(':')[0].split()[-1]}{equals}{default}")
    return ", ".join(name for name in names if name not in ("self", "/"))


CHECKED = CALLS | dict(METHODS.values())


@pytest.mark.parametrize("library", sorted({name.partition(".")[0] for name in [*CHECKED, *VALUES]}))
def test_the_installed_package_has_these_names_and_parameters(library: str) -> None:
    if find_spec(library) is None:
        pytest.skip(f"make test-gpu-driver runs it: {library} is not installed")
    wanted = {name: given for name, given in CHECKED.items() if name.startswith(f"{library}.")}
    assert {name: parameters_of(real(name)) for name in wanted} == wanted
    assert all(real(name) is not None for name in VALUES if name.startswith(f"{library}."))


def headers() -> str:
    """nvCOMP's own declarations, in the wheel; "" without it."""
    spec = find_spec("nvidia.libnvcomp") if find_spec("nvidia") else None
    folders = [Path(place) / "include" / "nvcomp" for place in (spec.submodule_search_locations or ())] if spec else []
    text = "\n".join(path.read_text() for folder in folders for path in sorted(folder.glob("*.h")))
    return re.sub(r"//[^\n]*|/\*[\s\S]*?\*/", "", text)


def kind_of(parameter: str) -> str:
    """What is passed for a parameter of C."""
    words = parameter.split()
    if "*" in parameter or "cudaStream_t" in words:
        return "pointer"
    return {"size_t": "size", "int": "int", "nvcompCRC32SegmentKind_t": "int"}.get(words[-2], words[-2])


def passed(argument: Any) -> str:
    """The same for an argument type of ctypes."""
    kinds = {ctypes.c_size_t: "size", ctypes.c_int: "int", nvcomp._Options: "options", nvcomp._CrcOptions: "options"}
    return kinds.get(argument, "pointer")


@pytest.mark.skipif(not headers(), reason="nvCOMP's headers are not installed")
@pytest.mark.parametrize("kind", nvcomp._SIGNATURES)
def test_functions_of_nvcomp_are_declared_so_in_its_headers(kind: str) -> None:
    text = headers()
    symbols = [""] if kind.startswith("CRC32") else [codec.symbol for codec in nvcomp_tables.CODECS.values()]
    for symbol in symbols:
        (declared,) = re.findall(rf"nvcompStatus_t\s+nvcompBatched{symbol}{kind}\s*\(([^)]*)\)", text)
        kinds = [kind_of(" ".join(parameter.split())) for parameter in declared.split(",")]
        assert [re.sub(r"nvcomp\w+Opts_t", "options", kind) for kind in kinds] == [
            passed(argument) for argument in nvcomp._SIGNATURES[kind]
        ]
