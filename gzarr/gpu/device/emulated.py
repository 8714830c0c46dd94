"""A device without hardware: NumPy for memory, host codecs for the batched calls, and kernels compiled by g++.

It is for tests, and for trying the GPU pipeline on a machine without a GPU; it is slow. It refuses what nvCOMP refuses
(empty batches, misaligned sources, streams that are too large), so tests on it show that nvCOMP is called correctly. It
cannot show races, warp-level behaviour, the order of streams, or speed.
"""

import ctypes
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import perf_counter
from typing import Any

import numpy as np
from numcodecs.lz4 import compress as lz4_compress
from numcodecs.lz4 import decompress as lz4_decompress
from numcodecs.zstd import compress as zstd_compress
from numcodecs.zstd import decompress as zstd_decompress
from numpy.typing import NDArray

from gzarr.backend import T
from gzarr.concurrency import new_lock
from gzarr.cpu.backend import Owned, owned_by
from gzarr.cpu.codecs.nvcomp import installed
from gzarr.cpu.scratch import measured
from gzarr.errors import DeviceError
from gzarr.gpu.device import emulated_cupy, emulated_streams, hostbuild, nvcomp_tables
from gzarr.gpu.device.emulated_arrays import EmulatedArray, address_of, allocated, host_of, view
from gzarr.gpu.device.emulated_streams import EmulatedStream
from gzarr.gpu.device.memory import Arena, Staging
from gzarr.gpu.device.protocol import Checksums, Device, Outcome, Table
from gzarr.profiling import transfers
from gzarr.storage.extras import require

#: nvCOMP's status for a damaged stream (nvcompErrorCannotDecompress).
_DAMAGED = 12
#: And for a chunk that it could not compress (nvcompErrorCannotCompress).
_NOT_COMPRESSED = 19


class Tally:
    """Counts allocations.

    Attributes
    ----------
    live
        Bytes that are allocated now.
    peak
        Most bytes that were allocated at once.
    n
        Number of allocations.
    """

    def __init__(self) -> None:
        self.live = self.peak = self.n = 0
        self._lock = new_lock()

    def count(self, array: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Count an array as long as something refers to it."""
        with self._lock:
            self.n += 1
            self.live += array.nbytes
            self.peak = max(self.peak, self.live)
        weakref.finalize(array, self._freed, array.nbytes)
        return array

    def _freed(self, nbytes: int) -> None:
        with self._lock:
            self.live -= nbytes


class EmulatedDevice(Device):
    """A device whose memory is the host's.

    Parameters
    ----------
    free : int
        Free device memory that it reports, in bytes.
    arrays : {"numpy", "device"}
        What its arrays are: NumPy arrays, or those of `gzarr.gpu.device.emulated_arrays`, which behave as CuPy's.

    Attributes
    ----------
    name
        "emulated".
    xp
        The array module: numpy or `gzarr.gpu.device.emulated_cupy`.
    launches
        Names of launched kernels and called decoders, in order, for tests.
    free : int
        Free device memory that it reports, in bytes.
    memory
        Counts device memory, for tests.
    pinned
        Counts pinned host memory.
    """

    name = "emulated"

    def __init__(self, *, free: int = 1 << 30, arrays: str = "numpy") -> None:
        super().__init__()
        self.xp: Any = np if arrays == "numpy" else emulated_cupy
        self._made: Callable[[Any], Any] = _unchanged if arrays == "numpy" else view
        self.decoders, self.encoders = frozenset(_DECODE), frozenset(_ENCODE)  # formats of the host's libraries
        self.launches: list[str] = []
        self.free = free
        self.memory = Tally()
        self.pinned = Tally()

    def owns(self, array: Any) -> bool:
        """Whether an array is in the device's memory: one of its own arrays, of a dtype that a GPU has."""
        if self.xp is not np:
            return isinstance(array, EmulatedArray)
        return isinstance(array, np.ndarray) and not array.dtype.hasobject

    def adopt(self, value: Any, stream: Any = None) -> Any:
        """An array that shares the memory of an object with a CUDA interface, whose address is trusted."""
        if isinstance(value, EmulatedArray):
            return value if self.xp is not np else host_of(value)
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is None:
            return None
        fields = {name: field for name, field in interface.items() if name != "stream"} | {"version": 3}
        return self._made(np.asarray(Owned(fields, value)))

    def current_stream(self) -> EmulatedStream:
        """The stream that this thread's work goes to."""
        return emulated_streams.current_stream()

    def as_stream(self, stream: Any) -> EmulatedStream:
        """The stream itself. Raises: DeviceError if it is not a stream of this device."""
        if not isinstance(stream, EmulatedStream):
            raise DeviceError(f"stream: expected an EmulatedStream, got {type(stream).__name__}")
        return stream

    def new_stream(self) -> EmulatedStream:
        """A new stream, which only notes what it was made to wait for."""
        return EmulatedStream()

    def use(self, stream: EmulatedStream) -> AbstractContextManager[Any]:
        """Make a stream current for this thread."""
        return stream

    def record(self, stream: EmulatedStream) -> EmulatedStream:
        """An event, represented by the stream that it was recorded on."""
        return stream

    def wait(self, stream: EmulatedStream, event: EmulatedStream) -> None:
        """Note the event."""
        stream.waited_for.append(event)

    def is_done(self, event: EmulatedStream) -> bool:
        """Yes: no work is pending."""
        return True

    @contextmanager
    def activate(self, stream: EmulatedStream, memory: Arena, staging: Staging) -> Iterator[None]:
        """Take this thread's memory from arenas."""
        with self._active(memory=memory, staging=staging), stream, transfers.inside():
            yield

    def allocate(self, nbytes: int) -> Any:
        """A new block, which is counted."""
        block = self._allocated(lambda: allocated((nbytes,), np.dtype(np.uint8), inside=True))
        return self._made(self.memory.count(block))

    def _empty_pools(self) -> None:
        """Do nothing, as there are none."""

    def allocate_pinned(self, nbytes: int) -> NDArray[np.uint8]:
        """A new block, which is counted."""
        return self.pinned.count(np.empty(nbytes, np.uint8))

    def empty(self, nbytes: int) -> Any:
        """Memory filled with a pattern, which shows reads of uninitialized memory."""
        arena: Arena | None = getattr(self._local, "memory", None)
        memory = self.allocate(nbytes) if arena is None else arena.take(nbytes)
        _host(memory)[:] = 0xA5
        return memory

    def result(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: Any = None) -> Any:
        """An uninitialized array. It is the caller's, so it is not counted."""
        return self._made(self._allocated(lambda: allocated(shape, dtype)))

    def mapped(self, host: NDArray[Any]) -> Any:
        """The same memory."""
        return self._made(host)

    def owned_by(self, array: Any, owner: object) -> Any:
        """An array in the same memory, which keeps an owner alive."""
        return self._made(owned_by(_host(array), owner))

    def upload(self, host: NDArray[Any]) -> Any:
        """A copy."""
        transfers.notify("to_device", host.nbytes, inside=True)
        copied = _host(self.empty(host.nbytes)).view(host.dtype).reshape(host.shape)
        copied[...] = host
        return self._made(copied)

    def download(self, array: Any, into: NDArray[Any] | None = None) -> NDArray[Any]:
        """A copy."""
        transfers.notify("to_host", array.nbytes, inside=True)
        self.synchronize()
        if into is None:
            return np.array(_host(array), copy=True)
        into[...] = _host(array)
        return into

    def _begin_download(self, array: Any, host: NDArray[Any]) -> None:
        transfers.notify("to_host", array.nbytes, inside=True)
        host[...] = _host(array)

    def synchronize(self) -> None:
        """Tell observers, as no work is pending."""
        transfers.notify("synchronize", inside=True)

    def push_range(self, name: str) -> None:
        """Do nothing."""

    def pop_range(self) -> None:
        """Do nothing."""

    def mark(self) -> float:
        """The time, as no work is pending."""
        return perf_counter()

    def seconds_between(self, start: float, end: float) -> float:
        """The difference of two times."""
        return end - start

    def address(self, array: Any) -> int:
        """Address of an array's first element."""
        return address_of(_host(array))

    def launch(self, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
        """Run a kernel, one thread after the other."""
        self.launches.append(kernel)
        plain = tuple(self.address(a) if isinstance(a, (np.ndarray, EmulatedArray)) else a for a in args)
        hostbuild.launch(kernel, n_threads, plain)

    def decompress(self, decoder: str, source: Table, nbytes: Table, target: Table, capacity: Table) -> Outcome:
        """Decode one stream after the other. Raises: DeviceError for calls that nvCOMP refuses."""
        self.launches.append(decoder)
        check_call(decoder, source, target, capacity)
        self.empty(4 * source.nbytes)  # memory for the tables, and for nvCOMP's scratch
        self.empty(nvcomp_tables.decompress_temp_nbytes(decoder, source.size, int(capacity.max()), int(capacity.sum())))
        outcome = Outcome(self.upload(np.zeros(source.size, np.int32)), self.upload(np.zeros(source.size, np.int64)))
        statuses, sizes = map(_host, outcome)
        decode = _DECODE[decoder]
        table = zip(source.tolist(), nbytes.tolist(), target.tolist(), capacity.tolist(), strict=True)
        for i, (src, n, dst, room) in enumerate(table):
            try:
                data = decode(ctypes.string_at(src, n), room)
            except Exception:  # noqa: BLE001  any library's complaint is a damaged stream
                statuses[i] = _DAMAGED
                continue
            if len(data) > room:
                statuses[i] = _DAMAGED
                continue
            ctypes.memmove(dst, bytes(data), len(data))
            sizes[i] = len(data)
        return outcome

    def compress(
        self, encoder: str, source: Table, nbytes: Table, target: Table, capacity: int, typesize: int = 1
    ) -> Outcome:
        """Encode one chunk after the other. Raises: DeviceError for calls that nvCOMP refuses, or that are unsafe."""
        self.launches.append(f"compress {encoder}")
        largest = int(nbytes.max(initial=0))
        nvcomp_tables.check_compression(encoder, source.size, largest)
        nvcomp_tables.check_capacity(encoder, largest, capacity)
        nvcomp_tables.compress_options(encoder, typesize)
        alignment = nvcomp_tables.compress_alignment(encoder, typesize)
        _check_alignment(encoder, "a chunk", source, alignment.input)
        _check_alignment(encoder, "an output", target, alignment.output)
        if (nbytes % typesize).any():
            raise DeviceError(f"{encoder}: a chunk is no whole number of {typesize} bytes (nvCOMP status 20)")
        self.empty(3 * source.nbytes)  # memory for the tables, and for nvCOMP's scratch
        self.empty(nvcomp_tables.bound_compress_temp_nbytes(encoder, source.size, largest))
        outcome = Outcome(self.upload(np.zeros(source.size, np.int32)), self.upload(np.zeros(source.size, np.uint64)))
        statuses, sizes = map(_host, outcome)
        for i, (src, n, dst) in enumerate(zip(source.tolist(), nbytes.tolist(), target.tolist(), strict=True)):
            try:
                data = bytes(self.encode(encoder, ctypes.string_at(src, n)))
            except Exception:  # noqa: BLE001  any library's complaint
                statuses[i] = _NOT_COMPRESSED
                continue
            room = nvcomp_tables.CODECS[encoder].compress_bound(n)
            if len(data) > room:
                raise DeviceError(f"{encoder}: {n} bytes became {len(data)}, above the {room} that nvCOMP allows")
            ctypes.memmove(dst, data, len(data))
            sizes[i] = len(data)
        return outcome

    def encode(self, encoder: str, data: bytes) -> bytes:
        """Encode one chunk. Tests replace this for formats that no host library encodes."""
        return _ENCODE[encoder](data)

    def crc(self, kind: str, source: Table, nbytes: Table) -> Checksums:
        """Checksums of many byte ranges."""
        self.launches.append(kind)
        compute = zlib.crc32 if kind == "crc32" else require("google_crc32c", "", "codec 'crc32c'").value
        pairs = zip(source.tolist(), nbytes.tolist(), strict=True)
        sums = np.array([compute(ctypes.string_at(src, n)) for src, n in pairs], np.uint32)
        return Checksums(self.upload(sums), self.upload(np.zeros(sums.size, np.int32)))

    def measured(self, call: Callable[[], T]) -> tuple[T, int | None]:
        """The result of a call, and the host memory that it took."""
        return measured(call)

    def free_nbytes(self) -> int:
        """The free device memory that it reports."""
        return self.free


def _unchanged(array: NDArray[Any]) -> NDArray[Any]:
    return array


def _host(array: Any) -> NDArray[Any]:
    """The NumPy array of the same memory."""
    return host_of(array) if isinstance(array, EmulatedArray) else array


def check_call(decoder: str, source: Table, target: Table, capacity: Table) -> None:
    """Refuse what nvCOMP refuses. Raises: DeviceError."""
    nvcomp_tables.check_batch(decoder, source.size, int(capacity.max(initial=0)))
    _check_alignment(decoder, "a stream", source, nvcomp_tables.CODECS[decoder].alignment.input)
    _check_alignment(decoder, "an output", target, nvcomp_tables.CODECS[decoder].alignment.output)


def _check_alignment(codec: str, what: str, addresses: Table, need: int) -> None:
    if (addresses % need).any():
        raise DeviceError(f"{codec}: {what} is not aligned to {need} bytes (nvCOMP status 17)")


def _lz4(data: bytes, room: int) -> Any:
    # numcodecs' LZ4 has the decoded size in front; a raw block does not say it, so the room is tried.
    return lz4_decompress(room.to_bytes(4, "little") + data) if room else b""


def _deflate(data: bytes, room: int) -> Any:
    # Bytes behind the stream are ignored, as nvCOMP does; `gzarr.cpu.codecs.nvcomp.deflate_decode` refuses them.
    decoder = zlib.decompressobj(-15)
    decoded = decoder.decompress(data, room + 1)
    if not decoder.eof:
        raise zlib.error("the stream does not end")
    return decoded


def _at_level_6(encode: Callable[[bytes, int], Any]) -> Callable[[bytes], bytes]:
    return lambda data: bytes(encode(data, 6))


_HOST = installed()
_DECODE: dict[str, Callable[[bytes, int], Any]] = {
    **{name: algorithm.decode for name, algorithm in _HOST.items()},
    "lz4": _lz4,
    "zstd": lambda data, room: zstd_decompress(data),
    "deflate": _deflate,
}
_ENCODE: dict[str, Callable[[bytes], bytes]] = {
    **{name: _at_level_6(algorithm.encode) for name, algorithm in _HOST.items()},
    "lz4": lambda data: bytes(lz4_compress(data))[4:] if data else b"\0",
    "zstd": lambda data: bytes(zstd_compress(data, 3)),
    "gzip": lambda data: zlib.compress(data, 6, wbits=31),
}
