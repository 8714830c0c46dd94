"""Chooses the backend for a device name. Only this module imports ``gzarr.gpu``, and it does so lazily.

One backend serves all arrays with the same device and options, so that they share device memory and its cap. A backend
for a stream of the caller's is made for each call.
"""

import re
import warnings
from collections.abc import Callable, Mapping, MutableMapping
from functools import cache
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Backend, Placement
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.concurrency import after_fork, new_lock
from gzarr.config import config
from gzarr.cpu.backend import CpuBackend
from gzarr.errors import DeviceError, GzarrError

#: Keywords of the functions that open and create, besides ``device``: see `backend_for`.
DEVICE_OPTIONS = ("stream", "max_device_nbytes", "strict", "reader")
READERS = ("auto", "host", "kvikio")

#: max_device_nbytes, strict, reader.
_Options: TypeAlias = tuple[int | None, bool, str]
_CPU = CpuBackend()
_NAMES = "'cpu', 'cuda', 'cuda:N', 'auto', or 'emulated' for tests"


def backend_for(
    device: str | Backend | None = None,
    *,
    stream: Any = None,
    max_device_nbytes: int | None = None,
    strict: bool | None = None,
    reader: str | None = None,
) -> Backend:
    """Return the backend of a device.

    Parameters
    ----------
    device : str or Backend, optional
        "cpu"; "cuda" or "cuda:N"; "auto", which is the first CUDA device if it can be used and has passed a self-check
        (`gzarr.gpu.detection.verify`, some seconds once per GPU and its software), and otherwise the CPU, with one
        warning if the check failed; "emulated", the GPU backend on host memory, slow, for tests without a GPU. Its
        arrays behave as CuPy's, or are NumPy arrays with the setting ``emulated.arrays="numpy"``. None stands for the
        setting ``device`` (environment ``GZARR_DEVICE``), by default "auto". A backend is returned as it is and takes
        no options.
    stream : cupy.cuda.Stream, optional
        Stream that results are ordered on. By default the current stream of each read.
    max_device_nbytes : int, optional
        Device memory in bytes that reads may use besides their results. By default the setting
        ``gpu.max_device_nbytes``, or a share of what is free.
    strict : bool, optional
        Whether a step that the device lacks is an error, instead of running on the host. By default the setting
        ``gpu.strict``. The CPU lacks nothing.
    reader : {"auto", "host", "kvikio"}, optional
        How files reach the device. By default the setting ``gpu.reader``; "auto" takes the better one.

    Returns
    -------
    Backend
        The backend.

    Raises
    ------
    DeviceError
        If the device cannot be used; the message says what is missing and how to install it.
    ValueError
        If an option is malformed, or the device has no use for it.

    Examples
    --------
    >>> from gzarr.devices import backend_for
    >>> backend_for("cpu").device
    'cpu'
    """
    chosen = _checked(max_device_nbytes, strict, reader)
    asked = config["device"] if device is None else device
    if not isinstance(asked, str):
        if stream is not None or max_device_nbytes is not None or strict is not None or reader is not None:
            names = ", ".join(DEVICE_OPTIONS)
            raise ValueError(f"device is a backend, which has its options already: leave out {names}")
        if not hasattr(asked, "prepare"):
            raise ValueError(f"device must be {_NAMES}; got {asked!r}")
        return asked
    name = asked.lower()
    if name == "auto":
        name = "cuda" if _takes_gpu(chosen) else "cpu"
    if name == "cpu":
        if stream is not None:
            raise ValueError(f"stream: device {asked!r} has no streams; leave it out, or choose 'cuda'")
        return _CPU
    which: int | str = config["emulated.arrays"]
    if name != "emulated":
        if re.fullmatch(r"cuda(:\d+)?", name) is None:
            raise DeviceError(f"no device {asked!r}; use {_NAMES}")
        which = int(name.partition(":")[2] or 0)
        _check_usable(name, which, chosen[2])
    return _shared(_gpu, which, *chosen) if stream is None else _gpu(which, *chosen, stream)


def take_backend(device: str | Backend | None, keywords: MutableMapping[str, Any]) -> Backend:
    """Return `backend_for` a device with the options among a caller's keywords, which are removed from them."""
    return backend_for(device, **{name: keywords.pop(name) for name in DEVICE_OPTIONS if name in keywords})


def backend_or_auto(device: str, options: Mapping[str, Any]) -> Backend:
    """Return `backend_for` a device that another process had, or the best there is if this one cannot use it."""
    try:
        return backend_for(device, **options)
    except GzarrError:
        return backend_for("auto")


def describe_gpu() -> str:
    """Whether the GPU backend can be used, in a line: the devices that there are, or what is missing."""
    from gzarr.gpu.detection.driver import device_count, identify

    if problems := _problems(kvikio=False):
        return "off: " + "; ".join(problems)
    return ", ".join(f"cuda:{number} ({identify(number).name})" for number in range(device_count()))


@cache
def gpu_extra() -> str:
    """Return the extra of gzarr for the CUDA that CuPy is built for, or else that the driver runs."""
    from gzarr.gpu.detection.driver import extra

    return extra()


def gpu_report(*, check: bool = False, warm: bool = False) -> dict[str, Any]:
    """Everything that is known of GPUs here: see `gzarr.gpu.detection.report`."""
    from gzarr.gpu.detection import report

    return report.gpu_report(check=check, warm=warm)


def gpu_has_dtype(dtype: np.dtype[Any]) -> bool:
    """Return whether arrays on a GPU can have a dtype, byte order aside. Needs no GPU."""
    from gzarr.gpu.codecs.batch import has_dtype

    return has_dtype(dtype)


def gpu_has_codec(name: str) -> bool:
    """Whether a GPU runs a codec, for some chunks at least. Needs no GPU."""
    from gzarr.gpu.codecs import device_codec

    return device_codec(name) is not None


def gpu_placement(steps: tuple[Step, ...], chunk: ArrayRepr, *, whole_records: bool = True) -> tuple[Placement, ...]:
    """Return where a GPU would run each step of a chain, and why, by its tables. Needs neither a GPU nor its libraries.

    ``whole_records`` says whether records are read whole, which the host does, or field by field. Raises
    UnknownCodecError and MissingExtraError, as `Backend.prepare` does.
    """
    from gzarr.gpu.device.nvcomp_tables import DECODERS, ENCODERS
    from gzarr.gpu.pipeline.placement import make_device_plan

    host = _CPU.prepare(steps, chunk)
    if chunk.nbytes is None:
        return tuple(Placement(step.spec.name, "host", "Python objects live on the host") for step in steps)
    # Planning asks no more of a device: here it has all of nvCOMP's decoders and encoders.
    any_gpu: Any = SimpleNamespace(name="cuda", decoders=DECODERS, encoders=ENCODERS)
    placement = make_device_plan(steps, chunk, host.codecs, any_gpu, strict=False)[1]
    if gpu_has_dtype(chunk.dtype) or (chunk.dtype.names is not None and not whole_records):
        return placement
    why = f"arrays on a GPU cannot have dtype {chunk.dtype}"
    if chunk.dtype.names is not None:
        why = "records are put together on the host; one field of numbers is read and written on the GPU"
    return tuple(Placement(step.spec.name, "host", why) for step in steps)


def _checked(max_nbytes: Any, strict: Any, reader: Any) -> _Options:
    """Return the options, from the settings where they are None. Raises ValueError."""
    cap = config["gpu.max_device_nbytes"] if max_nbytes is None else max_nbytes
    is_strict = config["gpu.strict"] if strict is None else strict
    chosen = config["gpu.reader"] if reader is None else reader
    if cap is not None:
        if isinstance(cap, bool) or not isinstance(cap, (int, np.integer)) or cap < 1:
            name = _origin("max_device_nbytes", max_nbytes)
            raise ValueError(f"{name} must be a number of bytes >= 1 or None, got {cap!r}")
        cap = int(cap)
    # Environment variables give 1 and 0.
    if not isinstance(is_strict, (bool, np.bool_, int)) or is_strict not in (0, 1):
        raise ValueError(f"{_origin('strict', strict)} must be True or False, got {is_strict!r}")
    if chosen not in READERS:
        name = _origin("reader", reader)
        raise ValueError(f"{name} must be one of {', '.join(map(repr, READERS))}; got {chosen!r}")
    return cap, bool(is_strict), str(chosen)


def _origin(option: str, given: Any) -> str:
    """Return where the value of an option came from, for an error."""
    return option if given is not None else f"the setting gpu.{option} (environment GZARR_GPU__{option.upper()})"


def _check_usable(name: str, number: int, reader: str) -> None:
    from gzarr.gpu.detection.driver import device_count

    reasons = _problems(reader == "kvikio")
    if reasons:
        listed = "".join(f"\n- {reason}" for reason in reasons)
        raise DeviceError(f"device {name!r} cannot be used:{listed}\nUse device='cpu' or 'auto' without them.")
    count = device_count()
    if number >= count:
        there = "is one device, cuda:0" if count == 1 else f"are {count} devices, cuda:0 to cuda:{count - 1}"
        raise DeviceError(f"no device 'cuda:{number}': there {there}")


@cache
def _problems(kvikio: bool) -> tuple[str, ...]:
    """Return what is missing for a GPU to be used, with the remedies."""
    from gzarr.gpu.detection.detect import find_problems

    return tuple(find_problems(kvikio=kvikio))


def _takes_gpu(options: _Options) -> bool:
    """Return whether "auto" is the first CUDA device: it is complete, has passed its check, and can be opened."""
    if not _has_gpu(options[2] == "kvikio"):
        return False
    with _sharing:
        faults = _faults() or _opening_faults(options)
        if faults and not _warned:
            _warned.extend(faults)
            listed = "".join(f"\n- {fault}" for fault in faults)
            warnings.warn(
                f"device='auto' is the CPU, because the GPU has failed:{listed}\ndevice='cuda' or GZARR_DEVICE=cuda "
                "uses it nevertheless; device='cpu' or GZARR_DEVICE=cpu avoids it; `gzarr gpu` says more.",
                RuntimeWarning,
                stacklevel=4,
            )
    return not faults


@cache
def _has_gpu(kvikio: bool) -> bool:
    from gzarr.gpu.detection.driver import device_count, may_be_usable

    return may_be_usable() and device_count() > 0 and not _problems(kvikio)


@cache
def _faults() -> list[str]:
    from gzarr.gpu.detection.verify import find_faults

    return find_faults()


@cache
def _opening_faults(options: _Options) -> list[str]:
    """Return what CUDA says when the device is opened: another process may hold it, or all of its memory."""
    try:
        _shared(_gpu, 0, *options)
    except Exception as error:  # noqa: BLE001 - whatever a driver or a library raises
        return [f"it cannot be opened: {type(error).__name__}: {error}"]
    return []


#: The faults that this process has warned of.
_warned: list[str] = []


@cache
def _device(which: int | str) -> Any:
    """Return the CUDA device with a number, or the emulated one with a kind of arrays."""
    if isinstance(which, str):
        from gzarr.gpu.device.emulated import EmulatedDevice

        return EmulatedDevice(arrays=which)
    from gzarr.gpu.device.cuda import CudaDevice

    return CudaDevice(which)


def _gpu(which: int | str, max_nbytes: int | None, strict: bool, reader: str, stream: Any = None) -> Backend:
    from gzarr.gpu.backend import GpuBackend

    device = _device(which)
    return GpuBackend(device, max_device_nbytes=max_nbytes, strict=strict, reader=reader, stream=stream)


@cache
def _cached(make: Callable[..., Backend], *options: Any) -> Backend:
    return make(*options)


#: Threads that ask at the same time get one backend: two would have twice the cap.
_sharing = new_lock()


def _shared(make: Callable[..., Backend], *options: Any) -> Backend:
    with _sharing:
        return _cached(make, *options)


@after_fork
def _forget_gpu() -> None:
    """Forget in a forked process what the driver told its parent."""
    for answer in (_problems, _has_gpu, _faults, _opening_faults):
        answer.cache_clear()
