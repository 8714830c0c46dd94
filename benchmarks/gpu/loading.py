"""Loaders on the device: what is stored, and whole epochs beside a bare read of the same chunks."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import gzarr
from benchmarks.gpu.measure import summary, wall_times
from benchmarks.loader.data import field, picture
from gzarr.codecs import BloscCodec, ZstdCodec
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.pipeline.batches import NEVER

#: Seconds for the epochs of a row, after the first, and for the bare reads beside them; at most so many rounds.
LOADER_S, ROUNDS = 3.0, 5
#: Distinct samples of an array; they come repeatedly, with another number added.
N_DIFFERENT = 64
#: Memory of samples that wait, over the size of the data.
SHARE = 0.35


@dataclass(frozen=True, slots=True)
class LoaderCase:
    """A stored array and the order in which it is loaded, as in `benchmarks.loader.cases`.

    Attributes
    ----------
    codec : str
        "blosc-lz4" for pictures, uint8, "zstd" for fields, float32.
    n, sample
        Number and shape of the samples.
    per_chunk : int
        Samples of a chunk.
    batch : int
        Samples of a batch.
    order : str
        "exact" or "blocks" (of 16 chunks).
    """

    title: str
    codec: str
    n: int
    sample: tuple[int, ...]
    per_chunk: int
    batch: int
    order: str


def loader_cases(*, small: bool) -> list[LoaderCase]:
    """Cases A, Cx and Cb of `benchmarks.loader`, with half of their samples."""
    pictures, fields = ((48, (8, 8, 3)), (320, (4, 8))) if small else ((2048, (224, 224, 3)), (2560, (96, 192)))
    batch = 8 if small else 64
    return [
        LoaderCase("an image a chunk, LZ4, exact", "blosc-lz4", *pictures, 1, batch, "exact"),
        LoaderCase("16 fields a chunk, Zstandard, exact", "zstd", *fields, 16, batch, "exact"),
        LoaderCase("16 fields a chunk, Zstandard, blocks", "zstd", *fields, 16, batch, "blocks"),
    ]


def make_samples(case: LoaderCase) -> Any:
    """The values of a case."""
    rng = np.random.default_rng(7)
    one = picture if case.codec == "blosc-lz4" else field
    some = np.stack([one(rng, case.sample) for _ in range(min(N_DIFFERENT, case.n))])
    times = np.arange(case.n) // len(some)
    source = some[np.arange(case.n) % len(some)]
    return source + times.reshape(-1, *[1] * len(case.sample)).astype(source.dtype)


@contextmanager
def loader_on(device: Any, folder: Path, case: LoaderCase) -> Iterator[tuple[Any, Any, Any]]:
    """(the array on the device, a loader of it, its values on the device)."""
    path = folder / "samples"
    shutil.rmtree(path, ignore_errors=True)
    source = make_samples(case)
    codec = BloscCodec("lz4", 5, "shuffle") if case.codec == "blosc-lz4" else ZstdCodec(3)
    chunks = (case.per_chunk, *case.sample)
    gzarr.create_array(path, data=source, chunks=chunks, compressors=codec, device="cpu")
    array = gzarr.open_array(path, mode="r", device=GpuBackend(device.device, small_reads=NEVER))
    loader = gzarr.Loader(array, case.batch, shuffle=case.order, seed=5, memory=int(SHARE * source.nbytes))
    try:
        yield array, loader, device.upload(source)
    finally:
        loader.close()
        shutil.rmtree(path, ignore_errors=True)


def time_loader(device: Any, folder: Path, case: LoaderCase, error: Exception) -> dict[str, Any]:
    """Time whole epochs, all of whose batches are dropped at once, and bare reads of all chunks into one array.

    Raises: error, for a batch that differs from the source.
    """
    with loader_on(device, folder, case) as (array, loader, there):
        first_s = _checked(device, loader, there, error)
        found = []

        def epoch() -> None:
            for batch in loader:
                del batch
            device.wait()
            found.append(loader.stats())

        def bare() -> None:
            array[...]

        times = wall_times(epoch, device.wait, ROUNDS, LOADER_S)
        bare()
        bare_s = summary(wall_times(bare, device.wait, ROUNDS, LOADER_S))["seconds"]
        fields = summary(times)
        middle = found[int(np.argsort(times)[len(times) // 2])]
        return {
            **fields,
            "decoded_nbytes": there.nbytes,
            "first_epoch_seconds": first_s,
            "samples_per_s": case.n / fields["seconds"],
            "GB_per_s": there.nbytes / fields["seconds"] / 1e9,
            "decodes": middle.decodes,
            "stall_share": middle.stall_s / middle.elapsed_s,
            "limited_by": middle.limited_by,
            "read_s": middle.read_s,
            "gather_s": middle.gather_s,
            "bare_seconds": bare_s,
            "bare_GB_per_s": there.nbytes / bare_s / 1e9,
        }


def _checked(device: Any, loader: Any, there: Any, error: Exception) -> float:
    """Compare the batches of an epoch with the source. Returns: seconds of it."""
    ids = [loader.batch_ids(step) for step in range(len(loader))]
    if sorted(np.concatenate(ids).tolist()) != list(range(len(there))):
        raise error
    start = time.perf_counter()
    for some, batch in zip(ids, loader, strict=True):
        if not device.equal(batch, there[device.upload(some)]):
            raise error
    return time.perf_counter() - start
