"""What the driver leaves to Python: kernels of CuPy, as PTX, and nvCOMP's batched calls, by codecs of the host."""

import ctypes
import os
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.nvcomp_tables import CODECS, bound_compress_temp_nbytes, compress_options
from gzarr.gpu.device.protocol import Outcome
from tests.gpu.ptx import machine, program
from tests.gpu.ptx.memory import Global

_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(ctypes.c_uint64), ctypes.c_int)
_CODEC = {codec.symbol: name for name, codec in CODECS.items()}
_HOST = EmulatedDevice()
#: Warps that are interpreted together.
_WARPS = 4096
#: crc32c (RFC 3720, 12.1); the other polynomial is that of gzip.
_CASTAGNOLI = 0x1EDC6F41
#: nvcompErrorCannotDecompress.
_UNDECODABLE = 12
#: Names of what was called, in order: kernels as PTX, and nvCOMP's calls.
calls: list[str] = []
#: Of tables that are copied beside chunks.
_SMALL_NBYTES = 13_000
_kept: list[Any] = []


class Engines:
    """Those of a device on which streams go on as they can (`tests.gpu.driver.driver.watched_engines`)."""

    def __init__(self) -> None:
        self.come: Callable[[str], object] | None = None

    def work(self, engine: str, nbytes: int) -> None:
        """Tell that an engine is at work, and let the stream wait for whoever is told. Small tables do not count."""
        if self.come is not None and nbytes > _SMALL_NBYTES:
            self.come(engine)


ENGINES = Engines()


def start(driver: ctypes.CDLL) -> Any:
    """The function that the driver calls. Its errors become errors of the device."""

    def call(what: bytes, arguments: Any, n: int) -> int:
        try:
            name, _, codec = what.decode().partition(" ")
            row = arguments[:n]
            if name == "ptx":
                _run(driver, row)
            elif codec:
                calls.append(what.decode())
                _WORK[name](_CODEC[codec], *row)
            else:
                _WORK[name](*row)
        except BaseException as error:  # noqa: BLE001 - it cannot pass through the driver
            driver.driver_report(f"{what.decode()}: {type(error).__name__}: {error}".encode())
            return 1
        return 0

    _kept.append(_Callback(call))
    return _kept[-1]


# -- kernels of PTX


@cache
def _entries(image: bytes) -> dict[str, program.Entry]:
    return program.entries(image.decode())


def _parse(image: int, name: int, out: int) -> None:
    entry = _entries(ctypes.string_at(image))[ctypes.string_at(name).decode()]
    sizes = [nbytes for _, nbytes in entry.params.values()]
    _table(out, 2 + len(sizes), np.uint64)[:] = [len(sizes), entry.shared_nbytes, *sizes]


@cache
def _entry(image: bytes, name: str, shared: int) -> program.Entry:
    """A kernel, with so much shared memory besides its own."""
    entry = _entries(image)[name]
    return replace(entry, shared_nbytes=entry.shared_nbytes + shared)


def _run(driver: ctypes.CDLL, row: list[int]) -> None:
    image, name, *shape, shared = row[:9]
    entry = _entry(ctypes.string_at(image), ctypes.string_at(name).decode(), shared)
    calls.append(entry.name)
    pairs = zip(row[9:], entry.params.values(), strict=True)
    arguments = [int.from_bytes(ctypes.string_at(at, nbytes), "little") for at, (_, nbytes) in pairs]
    grid = machine.Grid(tuple(shape[:3]), tuple(shape[3:]))
    each = -(-grid.block_threads // 32)
    n = each * int(np.prod(grid.blocks))
    step = max(_WARPS // each, 1) * each
    for first in range(0, n, step):
        machine.run(entry, grid, arguments, range(first, min(first + step, n)), Global(_blocks(driver)), checked=False)


def _blocks(driver: ctypes.CDLL) -> np.ndarray:
    out = np.empty((1 << 16, 2), np.int64)
    n = driver.driver_blocks(ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t(len(out)))
    return out[:n]


# -- nvCOMP


def _table(address: int, n: int, dtype: Any) -> np.ndarray:
    nbytes = n * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), dtype)


def _sizes(address: int, n: int) -> np.ndarray:
    return _table(address, n, np.uint64).astype(np.int64)


def _decompress(
    codec: str,
    source: int,
    nbytes: int,
    capacities: int,
    sizes: int,
    n: int,
    temp: int,
    temp_nbytes: int,
    target: int,
    statuses: int,
    options: int,
) -> None:
    decode = _gunzip if codec == "gzip" else partial(_HOST.decompress, codec)
    found = decode(*(_sizes(at, n) for at in (source, nbytes, target, capacities)))
    if statuses:
        _table(statuses, n, np.int32)[:] = found.statuses
    _table(sizes, n, np.uint64)[:] = found.sizes
    _spoil(codec, int(_sizes(target, 1)[0]))
    ENGINES.work("decode", int(found.sizes.sum()))


def _gunzip(source: np.ndarray, nbytes: np.ndarray, target: np.ndarray, capacity: np.ndarray) -> Outcome:
    """The format that gzarr does not ask of nvCOMP; the questions for hardware do."""
    statuses, sizes = np.full(source.size, _UNDECODABLE, np.int32), np.zeros(source.size, np.int64)
    for i, (at, n, to, room) in enumerate(zip(source, nbytes, target, capacity, strict=True)):
        with suppress(zlib.error):
            unpacker = zlib.decompressobj(wbits=31)
            data = unpacker.decompress(ctypes.string_at(int(at), int(n)))
            if unpacker.eof and len(data) <= room:
                ctypes.memmove(int(to), data, len(data))
                statuses[i], sizes[i] = 0, len(data)
    return Outcome(statuses, sizes)


def _spoil(codec: str, address: int) -> None:
    """In a process that checks the device, do what DRIVER_SPOILS says: decode a codec wrongly, or crash."""
    spoilt = os.environ.get("DRIVER_SPOILS") if "gzarr.selfcheck" in sys.modules else None
    if spoilt == "crash":
        os.abort()
    if spoilt == codec:
        _table(address, 1, np.uint8)[0] ^= 1


def _compress(
    codec: str,
    source: int,
    nbytes: int,
    largest: int,
    n: int,
    temp: int,
    temp_nbytes: int,
    target: int,
    sizes: int,
    statuses: int,
    *options: int,
) -> None:
    words = b"".join(word.to_bytes(8, "little") for word in options)
    typesize = next(size for size in (1, 2, 4, 8) if compress_options(codec, size).startswith(words))
    rows = [_sizes(at, n) for at in (source, nbytes, target)]
    if rows[1].max() > largest or temp_nbytes < bound_compress_temp_nbytes(codec, n, largest):
        raise ValueError("a chunk is larger than the call says, or there is too little scratch")
    found = _HOST.compress(codec, *rows, CODECS[codec].compress_bound(largest), typesize)
    ENGINES.work("encode", int(rows[1].sum()))
    _table(statuses, n, np.int32)[:] = found.statuses
    _table(sizes, n, np.uint64)[:] = found.sizes


def _scratch(codec: str, n: int, largest: int, total: int, out: int) -> None:
    _table(out, 1, np.uint64)[:] = bound_compress_temp_nbytes(codec, n, largest)


def _crc(source: int, nbytes: int, n: int, out: int, statuses: int, polynomial: int) -> None:
    found = _HOST.crc("crc32c" if polynomial == _CASTAGNOLI else "crc32", _sizes(source, n), _sizes(nbytes, n))
    _table(out, n, np.uint32)[:] = found.sums
    if statuses:
        _table(statuses, n, np.int32)[:] = found.statuses


_WORK: dict[str, Callable[..., None]] = {
    "up": lambda nbytes: ENGINES.work("up", nbytes),
    "down": lambda nbytes: ENGINES.work("down", nbytes),
    "parse": _parse,
    "decompress": _decompress,
    "compress": _compress,
    "scratch": _scratch,
    "crc": _crc,
}
