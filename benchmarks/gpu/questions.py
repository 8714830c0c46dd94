"""Asks a GPU what no documentation answers. It records measurements and asserts nothing.

    python -m benchmarks.gpu.questions --out FILE [--only NAME ... | --deciding | --others] [--budget-s 240]

Each question runs in its own process, so that one that hangs or breaks its CUDA context does not affect the others. The
file is rewritten after every answer, so that an interrupted run still gives answers. `--others` keeps those of
`--deciding` in the file.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numcodecs import LZ4, Blosc, Zstd

from benchmarks.gpu import deciding, reads, sums
from benchmarks.gpu.measure import ROOT, describe_machine, device_seconds, wall_seconds, write_json
from benchmarks.gpu.sizes import MEANINGLESS, rounds, sized, sized_side
from benchmarks.gpu.streams import Batch, Gpu, Tables, compressed, decoded, open_gpu
from gzarr.gpu.detection.detect import find_missing
from gzarr.gpu.device import nvcomp_tables
from gzarr.gpu.device.pipeline_slots import PipelineSlots

Question = Callable[[Gpu], Any]
#: Bytes of the copies; streams of a call; rows and columns of the array that is placed.
COPY_NBYTES, STREAMS, SIDE = sized(1 << 30), tuple(sized(n) for n in (1000, 10_000, 100_000)), sized_side(8192)
#: The content of single streams.
TEXT = bytes(np.repeat(np.random.default_rng(0).integers(0, 50, 8192, np.uint8), 8))


def main() -> None:
    """Ask everything, or one thing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="where the answers go, as JSON")
    parser.add_argument("--only", nargs="*", choices=sorted(QUESTIONS), help="ask these only")
    parser.add_argument("--deciding", action="store_true", help="ask those that decide the design")
    parser.add_argument("--others", action="store_true", help="ask all others, and keep the answers in the file")
    parser.add_argument("--timeout-s", type=float, default=45, help="for one question")
    parser.add_argument("--budget-s", type=float, default=240, help="for all of them")
    parser.add_argument("--child", choices=sorted(QUESTIONS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print("\n" + json.dumps({"answer": QUESTIONS[arguments.child](open_gpu())}))
        return
    missing = find_missing()
    if missing is not None:
        sys.exit(f"no usable GPU: {missing}")
    names = arguments.only or [name for name in QUESTIONS if not arguments.others or name not in deciding.QUESTIONS]
    if arguments.deciding:
        names = list(deciding.QUESTIONS)
    known = json.loads(arguments.out.read_text()) if arguments.others and arguments.out.exists() else {}
    answers = ask_all(names, arguments.out, arguments.timeout_s, arguments.budget_s, known)
    if not arguments.out:
        print(json.dumps(answers, indent=1))


def ask_all(
    names: list[str], out: Path | None, timeout_s: float, budget_s: float, known: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Ask questions. known: earlier answers.

    Returns: question -> {"answer": ...} or {"error": ...}, with the seconds it took.
    """
    answers: dict[str, Any] = {"note": MEANINGLESS, **(known or {})} if MEANINGLESS else dict(known or {})
    end = time.monotonic() + budget_s
    for name in names:
        start = time.monotonic()
        left = min(timeout_s, end - start)
        answers[name] = ask(name, left) if left > 0 else {"error": "not asked: the time was used up"}
        answers[name]["seconds"] = round(time.monotonic() - start, 2)
        print(f"{name}: {'answered' if 'answer' in answers[name] else answers[name]['error'][-200:]}", file=sys.stderr)
        if out:
            write_json(out, answers)
    return answers


def ask(name: str, timeout_s: float) -> dict[str, Any]:
    """Ask one question in its own process."""
    command = [sys.executable, "-m", "benchmarks.gpu.questions", "--child", name]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {timeout_s:.0f} s"}
    if done.returncode:
        return {"error": f"exit status {done.returncode}: {done.stderr.strip()[-1500:]}"}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


# -- streams ---------------------------------------------------------------------------------------------------------


def bare(codec: str, data: bytes) -> bytes:
    """A stream that nvCOMP decodes, encoded on the host."""
    if codec == "lz4":
        return bytes(LZ4().encode(data))[4:]
    if codec == "zstd":
        return bytes(Zstd(3).encode(data))
    packer = zlib.compressobj(6, zlib.DEFLATED, {"deflate": -15, "gzip": 31}[codec])
    return packer.compress(data) + packer.flush()


HOST_CODECS = ("lz4", "zstd", "deflate", "gzip")


def summary(batch: Batch, wanted: list[bytes]) -> dict[str, Any]:
    """Statuses, sizes, and which outputs are right."""
    right = [output == data for output, data in zip(batch.outputs, wanted, strict=True)]
    return {"statuses": batch.statuses, "sizes": batch.sizes, "right": right, "wrote_past_end": batch.canary_dead}


def zstd_without_size(data: bytes) -> bytes:
    """A frame of numcodecs with a window of 1 MiB instead of the content size."""
    frame = bytes(Zstd(3).encode(data))
    size_nbytes = {0: 1, 1: 2, 2: 4, 3: 8}[frame[4] >> 6]
    return frame[:4] + bytes([0, 0x50]) + frame[5 + size_nbytes :]


def skippable(n: int) -> bytes:
    """A skippable frame of n bytes."""
    return bytes.fromhex("502a4d18") + n.to_bytes(4, "little") + bytes(n)


def gzip_with(flags: int, extra: bytes) -> bytes:
    """A gzip member with optional header fields."""
    plain = bare("gzip", TEXT)
    return plain[:3] + bytes([flags]) + plain[4:10] + extra + plain[10:]


# -- questions -------------------------------------------------------------------------------------------------------


def machine(gpu: Gpu) -> Any:
    """Versions, and whether nvCOMP can be located beside other packages named nvidia."""
    import importlib.util

    spec = importlib.util.find_spec("nvidia.libnvcomp")
    return {**describe_machine(gpu), "nvidia.libnvcomp": str(spec and spec.submodule_search_locations)}


def temp_sizes(gpu: Gpu) -> Any:
    """Scratch sizes of the library on a device, beside the formula of gzarr.gpu.device.nvcomp_tables."""
    rows = []
    for codec in nvcomp_tables.CODECS:
        for n, each in ((1, 1), (1, 1 << 20), (1000, 4096), (1000, 1 << 16), (100, 3_000_000), (7, 100_001)):
            asked = gpu.nvcomp.query_temp_nbytes(codec, n, each, n * each)
            rows.append([codec, n, each, asked, nvcomp_tables.decompress_temp_nbytes(codec, n, each, n * each)])
    return {"columns": ["codec", "n", "chunk", "library", "formula"], "rows": rows}


def zstd_temp_sync(gpu: Gpu) -> Any:
    """Whether the library needs less scratch if it reads the streams first."""
    tables = Tables(gpu, "zstd", [bare("zstd", TEXT)] * 100, [len(TEXT)] * 100)
    function = gpu.nvcomp.load()["nvcompBatchedZstdDecompressGetTempSizeSync"]
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    options = gpu.nvcomp._by_value(nvcomp_tables.CODECS["zstd"].decompress_options)  # noqa: SLF001 - a trial
    kinds = [pointer, pointer, size, size, ctypes.POINTER(size), size, type(options), pointer, pointer]
    function.argtypes, function.restype = kinds, ctypes.c_int
    needed = size()
    source, nbytes = (t.data.ptr for t in tables._tables[:2])  # noqa: SLF001 - a trial
    args = (source, nbytes, 100, len(TEXT), ctypes.byref(needed), 100 * len(TEXT), options, tables.statuses.data.ptr, 0)
    return {"status": function(*args), "sync": needed.value, "plain": tables.temp_nbytes, "decoded": 100 * len(TEXT)}


def overflow(gpu: Gpu) -> Any:
    """Status and size if the output has room for half, for all but a byte, and for one byte more."""
    rooms = [len(TEXT) // 2, len(TEXT) - 1, len(TEXT), len(TEXT) + 1]
    answer = {}
    for codec in (*HOST_CODECS, "snappy"):
        stream = compressed(gpu, codec, [TEXT])[0] if codec == "snappy" else bare(codec, TEXT)
        answer[codec] = summary(decoded(gpu, codec, [stream] * 4, rooms), [TEXT] * 4)
    return answer


def misaligned_deflate(gpu: Gpu) -> Any:
    """Deflate input that is misaligned by 0 to 3 bytes."""
    return {
        shift: summary(decoded(gpu, "deflate", [bare("deflate", TEXT)] * 3, [len(TEXT)] * 3, shift=shift), [TEXT] * 3)
        for shift in (0, 2, 1, 3)
    }


def dummy_streams(gpu: Gpu) -> Any:
    """Empty streams beside real ones: LZ4 00, the empty Zstd frame."""
    answer = {}
    for codec, nothing in (("lz4", b"\0"), ("zstd", bytes.fromhex("28b52ffd2000010000"))):
        for room in (0, 1):
            streams, rooms = [nothing, bare(codec, TEXT), nothing], [room, len(TEXT), room]
            answer[f"{codec}, room {room}"] = summary(decoded(gpu, codec, streams, rooms), [b"", TEXT, b""])
    return answer


def null_statuses(gpu: Gpu) -> Any:
    """Whether NULL is accepted for the statuses, and sizes are written then."""
    answer = {}
    for codec in HOST_CODECS:
        tables = Tables(gpu, codec, [bare(codec, TEXT)] * 3, [len(TEXT)] * 3)
        tables.decode_without_statuses(gpu)
        answer[codec] = summary(tables.result(), [TEXT] * 3)
    return answer


def zstd_frames(gpu: Gpu) -> Any:
    """Whether nvCOMP decodes the frames that gzarr sends to the host."""
    frame, checked = bare("zstd", TEXT), bytes(Zstd(3, checksum=True).encode(TEXT))
    cases = {
        "plain": (frame, TEXT),
        "checksum": (checked, TEXT),
        "wrong checksum": (checked[:-1] + bytes([checked[-1] ^ 1]), TEXT),
        "no content size": (zstd_without_size(TEXT), TEXT),
        "two frames": (frame * 2, TEXT * 2),
        "skippable, then a frame": (skippable(100) + frame, TEXT),
        "a frame, then skippable": (frame + skippable(100), TEXT),
        "skippable alone": (skippable(100), b""),
        "trailing bytes": (frame + b"trailing", TEXT),
    }
    answer = {}
    for name, (stream, wanted) in cases.items():
        answer[name] = summary(decoded(gpu, "zstd", [stream], [max(len(wanted), 1)]), [wanted])
    return answer


def gzip_members(gpu: Gpu) -> Any:
    """Optional header fields, wrong trailers, two members."""
    plain = bare("gzip", TEXT)
    cases = {
        "plain": (plain, TEXT),
        "FNAME": (gzip_with(8, b"name\0"), TEXT),
        "FEXTRA": (gzip_with(4, b"\x03\0abc"), TEXT),
        "FEXTRA and FNAME": (gzip_with(12, b"\x03\0abcname\0"), TEXT),
        "wrong CRC": (plain[:-8] + bytes([plain[-8] ^ 1]) + plain[-7:], TEXT),
        "wrong ISIZE": (plain[:-4] + bytes([plain[-4] ^ 1]) + plain[-3:], TEXT),
        "two members": (plain * 2, TEXT * 2),
    }
    return {
        name: summary(decoded(gpu, "gzip", [stream], [len(wanted)]), [wanted])
        for name, (stream, wanted) in cases.items()
    }


def damaged(codec: str) -> Question:
    """What a decoder reports for 200 streams with one flipped bit, and whether the device works afterwards."""

    def ask_one(gpu: Gpu) -> Any:
        rng = np.random.default_rng(0)
        good = bare(codec, TEXT)
        bad = []
        for _ in range(200):
            data = bytearray(good)
            data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
            bad.append(bytes(data))
        batch = decoded(gpu, codec, bad, [len(TEXT)] * len(bad))
        silent = [
            s == 0 and n == len(TEXT) and out != TEXT
            for s, n, out in zip(batch.statuses, batch.sizes, batch.outputs, strict=True)
        ]
        again = decoded(gpu, codec, [good], [len(TEXT)])
        return {
            "statuses": dict(collections.Counter(map(str, batch.statuses))),
            "right_size": sum(n == len(TEXT) for n in batch.sizes),
            "wrong_and_silent": sum(silent),
            "wrote_past_end": batch.canary_dead,
            "works_afterwards": again.outputs == [TEXT],
        }

    return ask_one


def truncated(codec: str) -> Question:
    """What a decoder reports for truncated streams."""

    def ask_one(gpu: Gpu) -> Any:
        good = bare(codec, TEXT)
        cut = [good[: max(len(good) * k // 20, 1)] for k in range(20)]
        batch = decoded(gpu, codec, cut, [len(TEXT)] * len(cut))
        again = decoded(gpu, codec, [good], [len(TEXT)])
        return {**summary(batch, [TEXT] * len(cut)), "works_afterwards": again.outputs == [TEXT]}

    return ask_one


def streams_per_second(codec: str) -> Question:
    """Rates of calls with 10^3 to 10^5 streams of 16 KiB, decoded."""

    def ask_one(gpu: Gpu) -> Any:
        rng, nbytes = np.random.default_rng(0), 16 << 10
        plain = [np.cumsum(rng.integers(-2, 3, nbytes // 4), dtype=np.int32).tobytes() for _ in range(64)]
        packed = compressed(gpu, codec, plain) if codec == "snappy" else [bare(codec, data) for data in plain]
        answer = {}
        for n in STREAMS:
            tables = Tables(gpu, codec, [packed[i % 64] for i in range(n)], [nbytes] * n)
            seconds = device_seconds(gpu.cupy, lambda tables=tables: tables.decode(gpu))
            failed = int((tables.statuses != 0).sum())
            rate = n * nbytes / seconds / 1e9
            answer[n] = {"seconds": seconds, "streams_per_s": n / seconds, "GB_per_s": rate, "failed": failed}
            del tables
        return answer

    return ask_one


def bandwidths(gpu: Gpu) -> Any:
    """Copies: within the device, from and to pinned memory, from pageable memory. Bytes moved once are counted once."""
    cupy, nbytes = gpu.cupy, COPY_NBYTES
    one, two = cupy.zeros(nbytes, np.uint8), cupy.zeros(nbytes, np.uint8)
    start = time.perf_counter()
    pinned = np.frombuffer(cupy.cuda.alloc_pinned_memory(nbytes), np.uint8, nbytes)
    allocation = time.perf_counter() - start
    pageable = np.ones(nbytes, np.uint8)
    tasks = {
        "device to device": lambda: two.data.copy_from_device_async(one.data, nbytes),
        "pinned to device": lambda: one.set(pinned),
        "device to pinned": lambda: one.get(out=pinned),
        "pageable to device": lambda: one.set(pageable),
    }
    rates = {name: nbytes / device_seconds(cupy, task, 3) / 1e9 for name, task in tasks.items()}
    small = {}
    for n in (1 << 10, 1 << 16, 1 << 20):
        piece, part = pinned[:n], one[:n]
        wait = cupy.cuda.get_current_stream().synchronize
        small[n] = wall_seconds(lambda piece=piece, part=part: part.set(piece), wait, rounds(100), 1)[0] * 1e6
    return {"GB_per_s": rates, "small_upload_us": small, "pinned_allocation_s_per_GiB": allocation}


def launch_costs(gpu: Gpu) -> Any:
    """Microseconds: an empty batch of one kernel, an allocation, a stream, an event, a batched call of one stream."""
    cupy = gpu.cupy
    wait = cupy.cuda.get_current_stream().synchronize
    device, source = gpu.device, cupy.zeros(64, np.uint8)
    pipeline_slots = PipelineSlots(device, 1 << 26)
    tables = cupy.asarray(np.array([source.data.ptr, source.data.ptr + 32, 16, 0, 1], np.uint64))
    at = [tables.data.ptr + 8 * k for k in range(4)]
    single = Tables(gpu, "lz4", [bare("lz4", TEXT)], [len(TEXT)])

    def pipeline_slot() -> None:
        with pipeline_slots.borrow():
            pass

    def table_in_pipeline_slot() -> None:
        with pipeline_slots.borrow():
            device.upload(device.staging(1 << 12))

    tasks: dict[str, Callable[[], Any]] = {
        "launch": lambda: device.launch("copy_streams", 1, (1, *at)),
        "empty": lambda: device.empty(1 << 20),
        "pipeline_slot": pipeline_slot,
        "pipeline slot and an upload of 4 KiB": table_in_pipeline_slot,
        "new stream": lambda: cupy.cuda.Stream(non_blocking=True),
        "event": lambda: cupy.cuda.Event(disable_timing=True),
        "staging": lambda: device.staging(1 << 20),
        "one lz4 stream": lambda: single.decode(gpu),
        "download of 4 bytes": lambda: device.download(source[:4]),
    }
    return {name: wall_seconds(task, wait, rounds(200), 2)[0] * 1e6 for name, task in tasks.items()}


def kvikio_reads(gpu: Gpu) -> Any:
    """The compatibility mode of KvikIO, and the cost of reads by size from the page cache, with 1 and 16 threads."""
    import kvikio
    import kvikio.defaults

    answer: dict[str, Any] = {
        "compat_mode": str(kvikio.defaults.get("compat_mode")),
        "version": kvikio.__version__,
        "udev": Path("/run/udev").exists(),
        "num_threads": kvikio.defaults.get("num_threads"),
        "is_compat_mode_preferred": kvikio.defaults.is_compat_mode_preferred(),
    }
    nbytes = sized(256 << 20)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data"
        path.write_bytes(os.urandom(min(nbytes, 1 << 20)) * max(nbytes >> 20, 1))
        target = gpu.cupy.zeros(nbytes, np.uint8)
        for threads in (1, 16):
            kvikio.defaults.set("num_threads", threads)
            with kvikio.CuFile(str(path), "r") as file:
                for each in filter(nbytes.__ge__, (1 << 12, 1 << 16, 1 << 20, 1 << 24)):
                    n = min(nbytes // each, 2000)

                    def read(each: int = each, n: int = n, file: Any = file) -> None:
                        views = [target[i * each : (i + 1) * each] for i in range(n)]
                        futures = [file.pread(view, each, i * each) for i, view in enumerate(views)]
                        for future in futures:
                            future.get()

                    seconds = wall_seconds(read, lambda: None, 3, 3)[0]
                    answer[f"{each} bytes, {threads} threads"] = {
                        "us_each": seconds / n * 1e6,
                        "GB_per_s": n * each / seconds / 1e9,
                    }
    return answer


def placement_variants(gpu: Gpu) -> Any:
    """Registers, local memory and time of the placement kernel, by register limit.

    An array is read, and its placement launched again in every variant while its chunks are on the device.
    """
    import gzarr
    from benchmarks.gpu.stages import one_batch_at_a_time
    from gzarr.gpu.backend import GpuBackend
    from gzarr.gpu.kernels.sources import BLOCK_THREADS, KERNELS, source
    from gzarr.gpu.pipeline.batches import NEVER

    cupy, answer = gpu.cupy, {}
    data = np.random.default_rng(0).normal(size=(SIDE, SIDE)).astype("f4")

    class Trying(type(gpu.device)):  # type: ignore[misc]
        rows: dict[str, Any]

        def launch(self, kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
            super().launch(kernel, n_threads, args)
            if kernel not in ("copy_plain", "copy_bytes", "copy_bits"):
                return
            # The arguments as CudaDevice passes them.
            typed = tuple(
                np.int64(v) if a.type == "i64" else np.uint64(v) for a, v in zip(KERNELS[kernel], args, strict=True)
            )
            for limit in (0, 32, 40, 48, 64):
                options = ("-std=c++17", *((f"--maxrregcount={limit}",) if limit else ()))
                made = cupy.RawKernel(source(kernel), kernel, options=options)
                about = {k: made.attributes[k] for k in ("num_regs", "local_size_bytes", "max_threads_per_block")}
                launch = ((-(-n_threads // BLOCK_THREADS),), (BLOCK_THREADS,), typed)
                seconds = device_seconds(cupy, lambda m=made, x=launch: m(*x), 3)
                self.rows[f"registers <= {limit or 'any'}"] = {**about, "GB_per_s_written": data.nbytes / seconds / 1e9}

    stored = {"plain": None, "byte shuffle": Blosc("lz4", 1, Blosc.SHUFFLE), "bit": Blosc("lz4", 1, Blosc.BITSHUFFLE)}
    for name, compressor in stored.items():
        array = gzarr.create_array(
            data=data, chunks=(SIDE // 16,) * 2, compressor=compressor, zarr_format=2, device="cpu"
        )
        device = Trying()
        device.rows = {}
        options: dict[str, Any] = {"max_device_nbytes": 32 * data.nbytes, "reader": "host", "small_reads": NEVER}
        with one_batch_at_a_time():
            gzarr.open_array(array.store, mode="r", device=GpuBackend(device, **options))[:]
        answer[name] = device.rows
    return answer


QUESTIONS: dict[str, Question] = {
    **deciding.QUESTIONS,
    "machine": machine,
    "temp_sizes": temp_sizes,
    "overflow": overflow,
    "zstd_frames": zstd_frames,
    "gzip_members": gzip_members,
    "dummy_streams": dummy_streams,
    "null_statuses": null_statuses,
    "misaligned_deflate": misaligned_deflate,
    "bandwidths": bandwidths,
    "launch_costs": launch_costs,
    **{name: sums.QUESTIONS[name] for name in ("sums_are_right", "host_written")},
    **reads.QUESTIONS,
    "kvikio_reads": kvikio_reads,
    **{f"streams_per_second {codec}": streams_per_second(codec) for codec in ("lz4", "zstd", "deflate", "snappy")},
    "placement_variants": placement_variants,
    "sum_rates": sums.sum_rates,
    "zstd_temp_sync": zstd_temp_sync,
    **{f"truncated {codec}": truncated(codec) for codec in HOST_CODECS},
    **{f"damaged {codec}": damaged(codec) for codec in HOST_CODECS},
}

if __name__ == "__main__":
    main()
