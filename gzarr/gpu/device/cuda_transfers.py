"""Tells `gzarr.profiling.transfers` of CuPy's copies, waits and allocations while someone observes.

CuPy reports allocations to hooks of a thread, and nothing else. So the functions and methods through which Python
copies and waits are replaced meanwhile by functions that tell of it first. What CuPy's C code does by itself,
allocations on other threads, other libraries, and functions that code has imported by name are not seen.

Not verified on a GPU.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from types import FrameType
from typing import Any

from gzarr.concurrency import new_lock
from gzarr.profiling import transfers

#: Functions that make an array on the device of one on the host.
_MAKERS = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray")
#: Modules whose functions are steps of a transfer, not what asked for it.
_STEPS = ("cupy", "contextlib")


#: What restores CuPy's functions, and how many contexts need them replaced.
_restoring: list[Callable[[], None]] = []
_n_watching = 0
_changing = new_lock()
_local = threading.local()


@contextmanager
def watching(cupy: Any) -> Iterator[None]:
    """A context that tells of what Python does with CuPy, and of the allocations of this thread.

    Contexts may overlap, also those of other threads: the first replaces functions, the last restores them.
    """
    global _n_watching  # noqa: PLW0603 - a count, changed under the lock
    with _changing:
        if not _n_watching:
            _restoring.extend(_replace_all(cupy))
        _n_watching += 1
    try:
        with nullcontext() if getattr(_local, "has_hook", False) else _hooked(cupy):
            yield
    finally:
        with _changing:
            _n_watching -= 1
            while not _n_watching and _restoring:
                _restoring.pop()()


@contextmanager
def _hooked(cupy: Any) -> Iterator[None]:
    """A context in which allocations of this thread are told."""
    with _hook(cupy):
        _local.has_hook = True
        try:
            yield
        finally:
            _local.has_hook = False


def _replace_all(cupy: Any) -> list[Callable[[], None]]:
    """Replace what copies and waits; returns what restores it."""
    return [
        _replace(cupy.ndarray, "get", _telling_get),
        _replace(cupy.ndarray, "set", _telling_set),
        _replace(cupy.cuda.Stream, "synchronize", _telling_wait),
        *(_replace(cupy, name, _telling_maker) for name in _MAKERS if hasattr(cupy, name)),
    ]


def _replace(owner: Any, name: str, telling: Callable[[Any], Any]) -> Callable[[], None]:
    """Replace a function; returns what restores it."""
    own = vars(owner).get(name)
    setattr(owner, name, telling(getattr(owner, name)))
    return (lambda: delattr(owner, name)) if own is None else lambda: setattr(owner, name, own)


def _telling_get(get: Any) -> Any:
    @wraps(get)
    def call(self: Any, stream: Any = None, order: str = "C", out: Any = None, blocking: bool = True) -> Any:
        inside = _is_inside(_asking())
        transfers.notify("to_host", self.nbytes, inside=inside)
        if blocking:
            transfers.notify("synchronize", inside=inside)
        return get(self, stream, order, out, blocking)

    return call


def _telling_set(set_: Any) -> Any:
    @wraps(set_)
    def call(self: Any, arr: Any, stream: Any = None) -> None:
        asking = _asking()
        if asking is None or asking.f_globals is not globals():  # else a maker has told of it
            transfers.notify("to_device", self.nbytes, inside=_is_inside(asking))
        set_(self, arr, stream)

    return call


def _telling_wait(wait: Any) -> Any:
    @wraps(wait)
    def call(self: Any) -> None:
        transfers.notify("synchronize", inside=_is_inside(_asking()))
        wait(self)

    return call


def _telling_maker(make: Any) -> Any:
    @wraps(make)
    def call(value: Any, *args: Any, **keywords: Any) -> Any:
        made = make(value, *args, **keywords)
        items = value if isinstance(value, (list, tuple)) else (value,)
        if not any(hasattr(item, "__cuda_array_interface__") for item in items):
            transfers.notify("to_device", made.nbytes, inside=_is_inside(_asking()))
        return made

    return call


def _hook(cupy: Any) -> Any:
    """What CuPy tells of allocations on the thread that enters it."""

    class Hook(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "gzarr.profiling.transfers"

        def __init__(self) -> None:
            self._live: dict[int, Callable[[], None]] = {}

        def malloc_preprocess(self, *, mem_size: int, **about: Any) -> None:
            transfers.notify("allocate", mem_size, inside=_is_inside(_asking()))

        def malloc_postprocess(self, *, mem_size: int, mem_ptr: int, **about: Any) -> None:
            self._live[mem_ptr] = transfers.freeing(mem_size, inside=_is_inside(_asking()) or transfers.is_inside())

        def free_postprocess(self, *, mem_ptr: int, **about: Any) -> None:
            tell = self._live.pop(mem_ptr, None)
            if tell is not None:  # else it was allocated before
                tell()

    return Hook()


def _asking() -> FrameType | None:
    """The function that asked for a transfer."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - the stack, without the cost of reading its source
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_STEPS):
        frame = frame.f_back
    return frame


def _is_inside(asking: FrameType | None) -> bool:
    """Whether gzarr's own code for GPUs works with CuPy; a result is the caller's."""
    if asking is None:
        return False
    return asking.f_globals.get("__name__", "").startswith("gzarr.gpu.") and asking.f_code.co_name != "result"
