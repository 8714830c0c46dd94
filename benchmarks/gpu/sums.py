"""Questions about the correctness and speed of checksums, running sums, and streams written on hosts."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import google_crc32c
import numpy as np
from numcodecs import Zstd

from benchmarks.gpu.measure import device_seconds
from benchmarks.gpu.sizes import sized
from benchmarks.gpu.streams import Gpu, compressed, decoded
from gzarr.cpu.codecs.nvcomp import gdeflate_encode, installed
from gzarr.gpu.codecs import checksums
from gzarr.gpu.codecs.batch import BatchContext
from gzarr.gpu.device.pipeline_slots import PipelineSlot

#: Bytes that are summed, in ranges of these sizes.
SUM_NBYTES = sized(1 << 28)
RANGES = tuple(filter(SUM_NBYTES.__ge__, (1 << 12, 1 << 16, 1 << 20)))
#: Critical sizes of checksums: nothing, odd numbers, the edges of words, pieces and blocks.
EDGES = (0, 1, 3, 4, 7, 31, 32, 33, 1023, 1024, 1025, 65535, 65536, 65537, 1 << 20)
KINDS = ("crc32", "crc32c", "adler32", "fletcher32", "xxh64")


def sums_are_right(gpu: Gpu) -> Any:
    """Sizes at which a checksum differs from the host's, at critical sizes and odd addresses."""
    rng = np.random.default_rng(0)
    ranges = [rng.integers(0, 256, n, np.uint8) for n in EDGES]
    starts = np.cumsum([3, *(r.size + 5 for r in ranges)])
    staging_buffer = np.zeros(int(starts[-1]) + 64, np.uint8)
    for data, start in zip(ranges, starts.tolist(), strict=False):
        staging_buffer[start : start + data.size] = data
    sizes = np.array(EDGES, np.int64)
    answer = {}
    with PipelineSlot(gpu.device, 1 << 28).active():
        there = gpu.device.upload(staging_buffer)
        source = gpu.device.address(there) + starts[:-1].astype(np.int64)
        for kind, host in _HOST.items():
            pending = checksums.queue(BatchContext(gpu.device), kind, source, sizes)
            values = pending.values(gpu.device.download(pending.raw)).tolist()
            wanted = [host(data.tobytes()) for data in ranges]
            answer[kind] = {"wrong": [n for n, a, b in zip(EDGES, values, wanted, strict=True) if a != b]}
    return answer


def sum_rates(gpu: Gpu) -> Any:
    """GB/s of every checksum, by size of a range, and of running sums, by length of a row."""
    device, answer = gpu.device, {}
    with PipelineSlot(device, 3 * SUM_NBYTES).active():
        data = gpu.cupy.zeros(SUM_NBYTES, np.uint8)
        out = device.empty(SUM_NBYTES)
        for nbytes in RANGES:
            starts = device.address(data) + np.arange(SUM_NBYTES // nbytes, dtype=np.int64) * nbytes
            sizes = np.full(starts.size, nbytes, np.int64)
            rates = {}
            for kind in KINDS:
                queue = _queued(gpu, kind, starts, sizes)
                rates[kind] = SUM_NBYTES / device_seconds(gpu.cupy, queue, 3) / 1e9
            for itemsize in (4, 8):
                places = device.address(data), device.address(out)
                args = (starts.size, nbytes // itemsize, itemsize, 1, 0, 0, *places)
                seconds = device_seconds(gpu.cupy, lambda a=args: device.launch("running_sums", a[0], a), 3)
                rates[f"running sums of {itemsize} bytes"] = SUM_NBYTES / seconds / 1e9
            answer[nbytes] = rates
        device.synchronize()
    return answer


def _queued(gpu: Gpu, kind: str, starts: np.ndarray, sizes: np.ndarray) -> Callable[[], Any]:
    return lambda: checksums.queue(BatchContext(gpu.device), kind, starts, sizes)


def host_written(gpu: Gpu) -> Any:
    """Whether nvCOMP decodes streams of host libraries and the reverse, by codec and size."""
    rng = np.random.default_rng(0)
    sizes = (1, 100, 1000, 4096, 65535, 65536)
    plain = [np.repeat(rng.integers(0, 50, n // 8 + 1, np.uint8), 8)[:n].tobytes() for n in sizes]
    algorithms = installed()
    answer: dict[str, Any] = {}
    for codec in ("deflate", "gdeflate", "snappy"):
        if codec not in algorithms:
            answer[codec] = "the host's library is not installed"
            continue
        batch = decoded(gpu, codec, [_written(codec, data) for data in plain], [len(data) for data in plain])
        answer[codec] = {"statuses": dict(zip(sizes, batch.statuses, strict=True))}
        pairs = zip(sizes, batch.outputs, plain, strict=True)
        answer[codec]["wrong"] = [n for n, out, data in pairs if out != data]
        answer[codec]["wrong_on_host"] = _wrong_on_host(gpu, codec, algorithms[codec].decode, plain)
    return answer


def _wrong_on_host(gpu: Gpu, codec: str, decode: Callable[[bytes, int], Any], plain: list[bytes]) -> Any:
    wrong = []
    for data in plain:
        try:
            good = bytes(decode(compressed(gpu, codec, [data])[0], len(data))) == data
        except Exception as error:  # noqa: BLE001 - whatever it says is the answer
            good, wrong = True, [*wrong, f"{len(data)}: {type(error).__name__}: {error}"[:200]]
        if not good:
            wrong.append(str(len(data)))
    return wrong


def _written(codec: str, data: bytes) -> bytes:
    match codec:
        case "deflate":
            return zlib.compress(data, 6, wbits=-15)
        case "gdeflate":
            return bytes(gdeflate_encode(data, 6))
    import cramjam

    return bytes(cramjam.snappy.compress_raw(data))


def _fletcher32(data: bytes) -> int:
    from numcodecs import Fletcher32

    return int.from_bytes(bytes(Fletcher32().encode(data))[-4:], "little") if data else 0


def _xxh64(data: bytes) -> int:
    """The low half, from the content checksum of a Zstandard frame (RFC 8878, 3.1.1)."""
    return int.from_bytes(bytes(Zstd(1, checksum=True).encode(data))[-4:], "little")


_HOST: dict[str, Callable[[bytes], int]] = {
    "crc32": zlib.crc32,
    "crc32c": google_crc32c.value,
    "adler32": zlib.adler32,
    "fletcher32": _fletcher32,
    "xxh64": _xxh64,
}
QUESTIONS: dict[str, Callable[[Gpu], Any]] = {
    "sums_are_right": sums_are_right,
    "host_written": host_written,
    "sum_rates": sum_rates,
}
