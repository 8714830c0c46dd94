"""Advice estimates the costs of reads that are counted on a store and on the emulated device, before and after."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.advising.access import Probe, probes_of
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.pipeline import read_job
from gzarr.storage import MemoryStore
from gzarr.storage.base import Buffer, Request

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

#: Objects and chunks are exact, requests too without shards. Bytes and streams, and which chunks of a shard are near
#: enough to be fetched together, come of means of at most 16 chunks; the data are alike everywhere.
TOLERANCE = 0.15


class CountingStore(MemoryStore):
    """Notes what is fetched: (request, bytes)."""

    versions = MemoryStore.versions

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Request, int]] = []

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        found = super().get_many(requests)
        self.asked += [(r, 0 if f is None else len(f)) for r, f in zip(requests, found, strict=True)]
        return found

    def get_one(self, request: Request) -> Buffer | None:
        return self.get_many((request,))[0]


class Counted(NamedTuple):
    """The counted cost of a read."""

    amplification: float
    read_amplification: float
    streams_per_batch: float
    chunks: int
    objects: int
    requests: int


@contextmanager
def watched(backend: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[int], list[int]]]:
    """(chunks of every batch, streams of every call that decodes or copies some) of an emulated device."""
    batches: list[int] = []
    streams: list[int] = []
    lock = threading.Lock()
    place, device = backend.place, backend._device
    decompress, launch, place_batch = device.decompress, device.launch, read_job.place_batch

    def placing(chain: Any, buffers: Any, *rest: Any) -> None:
        with lock:
            batches.append(len(buffers))
        place(chain, buffers, *rest)

    def placing_batch(pipeline_slot: Any, plan: Any, into: Any, *rest: Any) -> Any:
        with lock:
            batches.append(into[0].nchunks)
        return place_batch(pipeline_slot, plan, into, *rest)

    def decompressing(decoder: str, source: Any, *rest: Any, **options: Any) -> Any:
        with lock:
            streams.append(source.size)
        return decompress(decoder, source, *rest, **options)

    def launching(kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
        if kernel == "copy_streams":  # those that Blosc stored as they were
            with lock:
                streams.append(args[0])
        launch(kernel, n_threads, args)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "place", placing)
        patch.setattr(read_job, "place_batch", placing_batch)
        patch.setattr(device, "decompress", decompressing)
        patch.setattr(device, "launch", launching)
        yield batches, streams


def count_read(store: CountingStore, probe: Probe, monkeypatch: pytest.MonkeyPatch, **options: Any) -> Counted:
    array = gzarr.open_array(store, mode="r", device="emulated", **options)  # anew: it knows no index yet
    store.asked.clear()
    with watched(array.backend, monkeypatch) as (batches, streams):
        result = probe.read(array)
    return Counted(
        amplification=sum(batches) * np.prod(array.chunks) * array.itemsize / result.nbytes,
        read_amplification=sum(nbytes for _, nbytes in store.asked) / result.nbytes,
        streams_per_batch=sum(streams) / len(batches),
        chunks=sum(batches),
        objects=len({request.key for request, _ in store.asked}),
        requests=len(store.asked),
    )


def smooth(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    noise = np.random.default_rng(3).integers(0, 9, shape)
    return (sum(np.sin(axis / 9) for axis in np.indices(shape, sparse=True)) * 1000 + noise).astype("i4")


DATA = smooth((72, 72, 72))
STORED: dict[str, dict[str, Any]] = {
    "v3 slices": {"chunks": (1, 72, 72)},
    "v3 one chunk": {"chunks": (72, 72, 72)},
    "v3 tiny chunks in shards": {"chunks": (4, 8, 8), "shards": (72, 72, 72), "compressors": numcodecs.LZ4()},
    "v2 columns": {"chunks": (72, 8, 8), "zarr_format": 2},
    "v2 on the host": {"chunks": (24, 36, 36), "zarr_format": 2, "compressor": numcodecs.BZ2(1)},
}


@pytest.mark.parametrize("access", ["batch", "plane", "volume", "random"])
@pytest.mark.parametrize("stored", STORED)
def test_estimates_are_what_is_counted(stored: str, access: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, copy = CountingStore(), CountingStore()
    gzarr.create_array(store, data=DATA, **STORED[stored])
    advice = gzarr.advise(gzarr.open_array(store, mode="r", device="emulated"), access)
    assert advice.changes
    advice.apply(copy, device="cpu")  # whose encoder the estimates are of
    assert np.array_equal(gzarr.open_array(copy, mode="r")[...], DATA)
    probes = probes_of(access, DATA.shape)
    seen = {where: [count_read(where, probe, monkeypatch) for probe in probes] for where in (store, copy)}
    for where, costs in ((store, advice.before), (copy, advice.after)):
        for counted, cost in zip(seen[where], costs, strict=True):
            assert (counted.chunks, counted.objects) == (cost.chunks, cost.objects)
            assert counted.streams_per_batch == pytest.approx(cost.streams_per_batch, rel=TOLERANCE)
    for name, gain in advice.gains.items():
        if name in Counted._fields:
            worst = min if name == "streams_per_batch" else max
            before, after = (worst(getattr(counted, name) for counted in seen[where]) for where in (store, copy))
            assert gain.ratio == pytest.approx(before / after, rel=TOLERANCE), name
    chunks = [key for key in copy if "zarr.json" not in key and ".z" not in key]
    assert advice.gains["stored_nbytes"].after == pytest.approx(sum(len(copy[k]) for k in chunks), rel=TOLERANCE)


@pytest.mark.parametrize("shards", [None, (12, 72, 72)])
def test_batches_are_those_of_the_device(shards: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, small = CountingStore(), {"max_device_nbytes": 4 << 20}
    gzarr.create_array(store, data=DATA, chunks=(1, 72, 72), shards=shards, compressors="zstd")
    advice = gzarr.advise(gzarr.open_array(store, mode="r", device="emulated", **small))
    (probe,), (cost,) = probes_of("volume", DATA.shape), advice.before
    counted = count_read(store, probe, monkeypatch, **small)
    assert counted.streams_per_batch == pytest.approx(cost.streams_per_batch, rel=TOLERANCE)
    assert cost.streams_per_batch < cost.streams / 2
