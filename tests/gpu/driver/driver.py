"""What tests ask of the driver made of software, and tell it to do. Importing it installs the driver."""

import ctypes
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from tests.gpu.driver.install import headers, install, install_later

install_later()
LIBRARY, CUFILE = install(), ctypes.CDLL("libcufile.so.0")

DEVICE, PINNED = 0, 1
#: The order of work: a seed, or None to do nothing but what is waited for.
_orders: list[int | None] = [int(os.environ.get("GZARR_TEST_SEED", "0"))]


def _set_order() -> None:
    seed = _orders[-1]
    LIBRARY.driver_schedule(ctypes.c_long(seed or 0), seed is not None)


_set_order()


def faults() -> str:
    """What the driver has noticed since the last call. The queues are empty then, and the device works again."""
    drain()
    return _text("driver_faults")


def called() -> list[str]:
    """Names of all calls that were made."""
    return _text("driver_called").split("\n")[:-1]


def _text(function: str) -> str:
    text = ctypes.create_string_buffer(1 << 15)
    LIBRARY[function](text, ctypes.c_size_t(len(text) - 1))
    return text.value.decode()


@contextmanager
def schedule(seed: int | None) -> Iterator[None]:
    """A context with another order of work. seed: None to do nothing but what is waited for."""
    _orders.append(seed)
    _set_order()
    try:
        yield
    finally:
        _orders.pop()
        _set_order()


@contextmanager
def watched_engines(come: Callable[[str], object]) -> Iterator[None]:
    """A context with a device on which each stream goes on as it can.

    come: called on a thread of the stream before it copies ("up", "down") or decodes and encodes, which it waits for.
    """
    from tests.gpu.driver.python import ENGINES

    ENGINES.come = come
    LIBRARY.driver_slow(1)
    try:
        yield
    finally:
        LIBRARY.driver_slow(0)
        ENGINES.come = None


@contextmanager
def failing(call: str, error: int, after: int = 0) -> Iterator[None]:
    """A context in which one call gives an error, after some that do not."""
    LIBRARY.driver_inject(call.encode(), ctypes.c_long(after), error, error in lasting_errors())
    try:
        yield
    finally:
        LIBRARY.driver_injections()


@cache
def errors() -> dict[int, str]:
    """What CUDA can report, and what its header says about each error. Those that it calls deprecated are left out."""
    text = next(path.read_text() for folder in headers() for path in folder.glob("driver_types.h"))
    body = text[text.index("cudaError\n") :].partition("};")[0]
    entries = re.findall(r"/\*\*((?:(?!\*/).)*)\*/\s*cudaError\w+\s*=\s*(\d+)", body, re.DOTALL)
    return {
        int(number): " ".join(said.replace("*", " ").split()) for said, number in entries if "\\deprecated" not in said
    }


@cache
def lasting_errors() -> frozenset[int]:
    """Errors after which CUDA refuses all work of a process: uncorrectable ones of memory, and those that say so."""
    return frozenset({214} | {number for number, said in errors().items() if "terminated and relaunched" in said})


def calls(name: str) -> int:
    """How often a function was called."""
    return int(LIBRARY.driver_calls(name.encode()))


def live_nbytes(kind: int = DEVICE) -> int:
    """Bytes that are allocated."""
    return int(LIBRARY.driver_live(kind))


def peak_nbytes(kind: int = DEVICE) -> int:
    """Most bytes that were allocated at once since this was last called."""
    return int(LIBRARY.driver_peak(kind))


@contextmanager
def memory() -> Iterator[Callable[[int], None]]:
    """A context that yields a function, which sets how much memory devices have."""
    try:
        yield lambda nbytes: LIBRARY.driver_memory(ctypes.c_size_t(nbytes))
    finally:
        LIBRARY.driver_memory(ctypes.c_size_t(2 << 30))


def cufile_nbytes() -> int:
    """Bytes that cuFile has read since this was last called."""
    return int(CUFILE.driver_cufile_nbytes())


def drain() -> None:
    """Do all work that is queued."""
    LIBRARY.driver_drain()
