"""Pyramids on the device: whole builds, beside those of the CPU, and the kernel that makes a level alone."""

from __future__ import annotations

import math
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gzarr.images
from benchmarks.gpu.measure import summary, wall_times
from gzarr.codecs import BloscCodec, ZstdCodec
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER

#: Seconds for the builds of a row, after the first; at most so many.
PYRAMID_S, ROUNDS = 3.0, 5
#: Levels that are built.
N_LEVELS = 3
#: Memory for the units of a build.
MAX_NBYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class PyramidCase:
    """An image whose levels are built.

    Attributes
    ----------
    codec : str
        "blosc-lz4" or "zstd".
    dtype : str
        Of the elements.
    shape, chunk
        Of level 0.
    """

    title: str
    codec: str
    dtype: str
    shape: tuple[int, ...]
    chunk: tuple[int, ...]


def pyramid_cases(*, small: bool) -> list[PyramidCase]:
    """A picture, as case A of `benchmarks.images` but a quarter of it, and a volume, as case C."""
    if small:
        return [PyramidCase("a picture, LZ4", "blosc-lz4", "u1", (96, 128), (32, 32))]
    return [
        PyramidCase("a picture, LZ4", "blosc-lz4", "u1", (8192, 8192), (512, 512)),
        PyramidCase("a volume, Zstandard", "zstd", "u2", (128, 1024, 1024), (64, 64, 64)),
    ]


def time_pyramid(device: Any, folder: Path, case: PyramidCase, error: Exception) -> dict[str, Any]:
    """Time builds of all levels on the device and one on the CPU, and the mean of level 0 where it lies on the device.

    Raises: error, for a level that differs from that of the CPU.
    """
    path = folder / "pyramid"
    shutil.rmtree(path, ignore_errors=True)
    data = np.random.default_rng(7).integers(0, 40, case.shape).astype(case.dtype)
    codec = BloscCodec("lz4", 5, "shuffle") if case.codec == "blosc-lz4" else ZstdCodec(3)
    options = {"axes": "zyx"[-len(case.shape) :], "chunks": case.chunk, "compressors": codec}
    stored = gzarr.images.create_image(path, data=data, levels=0, device="cpu", **options)
    backend = GpuBackend(device.device, small_reads=NEVER, small_writes=NEVER)
    try:
        start = time.perf_counter()
        on_cpu = gzarr.images.build_pyramid(stored, N_LEVELS, max_nbytes=MAX_NBYTES)
        cpu_s = time.perf_counter() - start
        wanted = [level[...] for level in on_cpu.levels[1:]]
        image = on_cpu.to(backend)

        def build() -> None:
            gzarr.images.build_pyramid(image, N_LEVELS, max_nbytes=MAX_NBYTES, overwrite=True)
            device.wait()

        build()
        found = gzarr.images.open_image(path, device="cpu").levels[1:]
        if not all(np.array_equal(one[...], other) for one, other in zip(found, wanted, strict=True)):
            raise error
        fields = summary(wall_times(build, device.wait, ROUNDS, PYRAMID_S))
        there, factors = device.upload(data), (2,) * data.ndim
        above = backend.empty(wanted[0].shape, data.dtype)
        reducing = wall_times(
            lambda: backend.reduce_windows(there, factors, "mean", above), device.wait, ROUNDS, PYRAMID_S
        )
        kernel_s = summary(reducing)["seconds"]
        return {
            **fields,
            "decoded_nbytes": data.nbytes,
            "levels": [list(level.shape) for level in wanted],
            "n_elements": math.prod(case.shape),
            "GB_per_s": data.nbytes / fields["seconds"] / 1e9,
            "cpu_seconds": cpu_s,
            "kernel_GB_per_s": data.nbytes / kernel_s / 1e9,
        }
    finally:
        shutil.rmtree(path, ignore_errors=True)
