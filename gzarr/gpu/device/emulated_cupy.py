"""The array module of the emulated device: NumPy's functions, as far as CuPy has them, on arrays of the device.

It is what `xp` is on ``device="emulated"``. A function takes arrays of the device and scalars, and refuses NumPy arrays
where CuPy (14.2) refuses them; what it returns is on the device. The names that CuPy lacks are missing here too.
CuPy's own kernels (``RawKernel`` and others) are CUDA, which nothing here runs.
"""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.gpu.device.emulated_arrays import TAKING_INDICES, Device, EmulatedArray, host_of, operand, sent, wrapped
from gzarr.gpu.device.emulated_streams import EmulatedEvent, EmulatedStream, current_stream
from gzarr.profiling import transfers
from gzarr.storage.extras import require

ndarray = EmulatedArray
cuda = SimpleNamespace(
    Device=Device,
    Event=EmulatedEvent,
    Stream=EmulatedStream,
    get_current_stream=current_stream,
    get_elapsed_time=lambda start, end: (end.time_s - start.time_s) * 1e3,
    is_available=lambda: True,
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


is_available = cuda.is_available
#: Names of NumPy that CuPy lacks.
_MISSING = _names(
    "asmatrix block bmat busday_count busday_offset busdaycalendar bytes_ char character clongdouble complex256 core "
    "ctypeslib datetime64 datetime_as_string datetime_data dtypes einsum_path emath errstate f2py flexible float128 "
    "frompyfunc fromregex geomspace get_include getbufsize geterr geterrcall histogram_bin_edges info insert is_busday "
    "isnat little_endian longdouble ma matrix matvec memmap nanpercentile nanquantile ndenumerate nditer nested_iters "
    "object_ polyder polydiv polyint rec recarray record sctypeDict setbufsize seterr seterrcall show_runtime spacing "
    "str_ strings test timedelta64 typecodes unstack vecdot vecmat void False_ True_ ScalarType"
)
_MISSING_IN = {
    "fft": _names("test"),
    "linalg": _names("diagonal matrix_norm multi_dot outer svdvals tensordot test trace vecdot vector_norm"),
    "random": _names(
        "MT19937 PCG64 PCG64DXSM Philox SFC64 SeedSequence bit_generator get_bit_generator get_state mtrand "
        "set_bit_generator set_state test"
    ),
}
_SCIPY = _names("fft fftpack interpolate linalg ndimage signal sparse spatial special stats")
#: Names of CuPy for its own kernels.
_KERNELS = ("ElementwiseKernel", "RawKernel", "RawModule", "ReductionKernel", "fuse", "vectorize")
#: Types of NumPy that make arrays of the host.
_MAKERS = ("Generator", "RandomState")
#: Objects of NumPy whose brackets make arrays.
_BRACKETS = ("c_", "mgrid", "ogrid", "r_")
#: Functions that call the method of their argument, whatever that is: NumPy arrays stay on the host.
_BY_METHOD = _names(
    "amax amin argpartition argsort clip copy diagonal dot max mean min partition prod put ravel repeat reshape sort "
    "squeeze std sum swapaxes take trace transpose var"
)
_TAKING_INDICES = _names(TAKING_INDICES) - {"compress"}  # whose first argument is the condition
#: Functions that describe or write what they are given.
_ON_HOST = _names("array2string array_repr array_str save savetxt savez savez_compressed")
#: Functions whose result is a Python bool in NumPy and an array in CuPy.
_TRUTHS = ("allclose", "array_equal", "array_equiv")


def array(
    obj: Any, dtype: Any = None, copy: bool | None = True, order: str = "K", subok: bool = False, ndmin: int = 0
) -> EmulatedArray:
    """Return values of the host or of the device as an array of the device, by default as a copy."""
    if isinstance(obj, EmulatedArray):
        host = host_of(obj)
        made = np.array(host, dtype, copy=True if copy else None, order=order, ndmin=ndmin)  # type: ignore[call-overload]
        return obj if made is host else wrapped(made, host)
    if _has_device_array(obj):
        return wrapped(np.array(_hosts(obj), dtype, order=order, ndmin=ndmin))  # type: ignore[call-overload]
    return wrapped(sent(obj, dtype, order, ndmin))


def asarray(
    a: Any, dtype: Any = None, order: str | None = None, *, copy: bool | None = None, blocking: bool = False
) -> EmulatedArray:
    """Return values of the host or of the device as an array of the device, by default without a copy."""
    return array(a, dtype, copy, order or "K")


asanyarray = asarray


def asnumpy(
    a: Any, stream: Any = None, order: str = "C", out: NDArray[Any] | None = None, *, blocking: bool = True
) -> NDArray[Any]:
    """Return an array of the device as a NumPy array, or what `numpy.asarray` makes of anything else."""
    if isinstance(a, EmulatedArray):
        return a.get(stream, order, out, blocking=blocking)
    made: NDArray[Any] = np.asarray(a, order=order)  # type: ignore[call-overload]
    if out is None:
        return made
    out[...] = made
    return out


def from_dlpack(array: Any, *, device: Any = None, copy: bool | None = None) -> EmulatedArray:
    """Return an array of the device that another library exports. Raises TypeError for arrays of the host."""
    if not isinstance(array, EmulatedArray):
        raise TypeError(
            "CPU arrays cannot be directly imported to CuPy. Use `cupy.array(numpy.from_dlpack(input))` instead."
        )
    return array.copy() if copy else array.view()


def get_default_memory_pool() -> Any:
    """Return what stands for CuPy's pool of memory: it keeps nothing, so that there is nothing to free."""
    nothing = dict.fromkeys(("free_bytes", "get_limit", "n_free_blocks", "total_bytes", "used_bytes"), lambda: 0)
    return SimpleNamespace(
        free_all_blocks=lambda stream=None: None, set_limit=lambda size=None, fraction=None: None, **nothing
    )


#: What stands for CuPy's pool of pinned memory.
get_default_pinned_memory_pool = get_default_memory_pool


def get_array_module(*args: Any) -> Any:
    """Return this module if an argument is an array of the device, and NumPy otherwise."""
    return sys.modules[__name__] if any(isinstance(arg, EmulatedArray) for arg in args) else np


def wrap_function(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function of NumPy or SciPy for arrays of the device."""

    def call(*args: Any, **keywords: Any) -> Any:
        if name in _ON_HOST or name.startswith("assert_"):
            return function(*map(_got, args), **{key: _got(value) for key, value in keywords.items()})
        if args:
            if name in _BY_METHOD and isinstance(args[0], (np.ndarray, np.generic)):
                return function(*args, **keywords)
            if name in _TAKING_INDICES and isinstance(args[0], EmulatedArray):
                return getattr(args[0], name)(*args[1:], **keywords)
        out = keywords.get("out")
        given = [_argument(arg) for arg in args]
        with np.errstate(all="ignore"):
            result = function(*given, **{key: _argument(value) for key, value in keywords.items()})
        if isinstance(out, EmulatedArray):
            return out
        if name in _TRUTHS:
            result = np.bool_(result)
        return _same(result, args, given)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = function.__doc__
    return call


class Namespace:
    """A module of NumPy or SciPy for arrays of the device.

    Parameters
    ----------
    module : module
        The module of the host.
    missing : frozenset of str
        Names that it does not have on a GPU.
    """

    def __init__(self, module: Any, missing: frozenset[str] = frozenset()) -> None:
        self._module, self._missing = module, missing

    def __getattr__(self, name: str) -> Any:
        if name in self._missing:
            raise AttributeError(f"{self!r} has no attribute {name!r}, as it is missing on GPUs")
        return _wrapped_member(getattr(self._module, name), name)

    def __repr__(self) -> str:
        return f"<{self._module.__name__} for the emulated device>"


class _Scipy:
    """SciPy's modules for arrays of the device, as far as ``cupyx.scipy`` has modules of these names."""

    def __getattr__(self, name: str) -> Any:
        if name not in _SCIPY:
            raise AttributeError(f"module 'cupyx.scipy' has no attribute {name!r}")
        return Namespace(require(f"scipy.{name}", "ome", f"scipy.{name} on the emulated device"))


EmulatedArray._namespace = sys.modules[__name__]  # noqa: SLF001 - the class belongs to this module
#: What ``cupyx.scipy`` is to CuPy.
scipy = _Scipy()


def __getattr__(name: str) -> Any:
    if name in _KERNELS:
        raise AttributeError(f"the emulated device runs no CUDA kernels: it has no {name}; test it with device='cuda'")
    if name in _MISSING or not hasattr(np, name):
        raise AttributeError(f"module 'cupy' has no attribute {name!r}")
    if name in ("linalg", "fft", "random"):
        return Namespace(getattr(np, name), _MISSING_IN.get(name, frozenset()))
    return _wrapped_member(getattr(np, name), name)


def _wrapped_member(member: Any, name: str) -> Any:
    """Return a member of a module for arrays of the device: types and constants are the same."""
    if name in _BRACKETS:
        return _Brackets(member)
    if (isinstance(member, type) and name not in _MAKERS) or not callable(member):
        return Namespace(member) if hasattr(member, "__path__") else member
    if isinstance(member, np.ufunc):
        return _Ufunc(member)
    return wrap_function(member, name)


class _Brackets:
    """An object of NumPy whose brackets make arrays, here of the device."""

    def __init__(self, maker: Any) -> None:
        self._maker = maker

    def __getitem__(self, key: Any) -> Any:
        return wrapped(self._maker[_argument(key)])


class _Ufunc:
    """A ufunc of NumPy for arrays of the device; its results are on the device also for scalars."""

    def __init__(self, ufunc: np.ufunc) -> None:
        self._ufunc = ufunc

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        for arg in (*args, keywords.get("out")):
            if isinstance(arg, (np.ndarray, list, tuple)):
                raise TypeError(f"Unsupported type {type(arg)}")
        result = self._ufunc(*args, **keywords)
        return result if isinstance(result, EmulatedArray) else wrapped(result)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ufunc, name)


def _argument(value: Any) -> Any:
    """Return an argument for NumPy. Raises TypeError for arrays of the host."""
    if type(value) in (list, tuple):
        return type(value)([_argument(item) for item in value])
    if isinstance(value, _Ufunc):
        return value._ufunc  # noqa: SLF001 - they belong together
    if callable(value) and not isinstance(value, (type, EmulatedArray)):
        return lambda *args: _argument(value(*map(wrapped, args)))
    return operand(value)


def _same(result: Any, args: Any, given: Any) -> Any:
    """Return a result on the device: the argument itself if NumPy returned that."""
    for arg, host in zip(args, given, strict=True):
        if isinstance(arg, EmulatedArray) and result is host:
            return arg
    if type(result).__module__.startswith("numpy.random"):  # a generator
        return Namespace(result)
    return wrapped(result)


def _got(value: Any) -> Any:
    return value.get() if isinstance(value, EmulatedArray) else value


def _has_device_array(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(
        isinstance(item, EmulatedArray) or _has_device_array(item) for item in value
    )


def _hosts(value: Any) -> Any:
    """Return nested lists of arrays of the device as lists of NumPy arrays."""
    if isinstance(value, (list, tuple)):
        return [_hosts(item) for item in value]
    if isinstance(value, EmulatedArray):
        return host_of(value)
    transfers.notify("to_device", np.asarray(value).nbytes)
    return value
