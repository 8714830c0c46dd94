"""What advice estimates is what reads cost: counted on a store and on the emulated device, before and after."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.advising.access import probes_of
from gzarr.advising.advice import Advice
from gzarr.storage import MemoryStore
from gzarr.storage.base import Buffer, Request

#: Objects and chunks are exact, requests too without shards. Bytes and streams, and which chunks of a shard are near
#: enough to be fetched together, come of means of at most 16 chunks; the data are alike everywhere.
TOLERANCE = 0.15


class CountingStore(MemoryStore):
    """Counts the objects, requests and bytes that are fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[Request, int]] = []
        self.listed = 0

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        found = super().get_many(requests)
        self.asked += [(r, 0 if f is None else len(f)) for r, f in zip(requests, found, strict=True)]
        return found

    def get_one(self, request: Request) -> Buffer | None:
        return self.get_many((request,))[0]

    def list_prefix(self, prefix: str = "") -> Iterator[str]:
        self.listed += 1
        return super().list_prefix(prefix)


class Streams:
    """Counts the streams that an emulated device decodes or copies, by wave."""

    def __init__(self, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waves: dict[int, int] = {}
        self._wave = threading.local()
        decompress, launch = device.decompress, device.launch
        self.total = 0
        self.lock = threading.Lock()

        def count(n: int) -> None:
            with self.lock:
                self.total += n

        def counted(decoder: str, source: Any, *rest: Any) -> Any:
            count(source.size)
            return decompress(decoder, source, *rest)

        def launched(kernel: str, n_threads: int, args: tuple[Any, ...]) -> None:
            if kernel == "copy_streams":
                count(args[0])
            launch(kernel, n_threads, args)

        monkeypatch.setattr(device, "decompress", counted)
        monkeypatch.setattr(device, "launch", launched)


@contextmanager
def counted_waves(backend: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of chunks of every call that decodes and places chunks."""
    calls: list[int] = []
    place = backend.place

    def counting(chain: Any, buffers: Any, *rest: Any) -> None:
        calls.append(len(buffers))
        place(chain, buffers, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(backend, "place", counting)
        yield calls


def near(estimate: float, counted: float) -> bool:
    return abs(estimate - counted) <= TOLERANCE * counted


def check_costs(store: CountingStore, advice: Advice, costs: Sequence[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Carry out the reads of an advice and compare."""
    array = gzarr.open_array(store, mode="r", device="emulated")
    streams = Streams(array.backend._device, monkeypatch)
    for probe, cost in zip(probes_of(advice.access, array.shape), costs, strict=True):
        fresh = gzarr.open_array(store, mode="r", device="emulated")  # knows no index yet
        store.asked.clear()
        streams.total = 0
        with counted_waves(fresh.backend, monkeypatch) as waves:
            result = probe.read(fresh)
        assert result.nbytes == cost.wanted_nbytes
        assert len({request.key for request, _ in store.asked}) == cost.objects
        assert near(cost.requests, len(store.asked)) if array.shards else cost.requests == len(store.asked)
        assert near(cost.read_nbytes, sum(nbytes for _, nbytes in store.asked))
        assert near(cost.streams, streams.total)
        assert sum(waves) == cost.chunks
        assert near(cost.streams_per_wave, streams.total / len(waves))


def smooth(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(3)
    grid = np.indices(shape, sparse=True)
    return (sum(np.sin(axis / 9) for axis in grid) * 1000 + rng.integers(0, 9, shape)).astype("i4")


STORED: dict[str, dict[str, Any]] = {
    "v3 slices": {"chunks": (1, 96, 96)},
    "v3 one chunk": {"chunks": (96, 96, 96), "compressors": numcodecs.Blosc("zstd", 3, 1)},
    "v3 tiny chunks in shards": {"chunks": (4, 8, 8), "shards": (96, 96, 96), "compressors": numcodecs.LZ4()},
    "v2 columns": {"chunks": (96, 8, 8), "zarr_format": 2},
    "v2 on the host": {"chunks": (24, 48, 48), "zarr_format": 2, "compressor": numcodecs.BZ2(1)},
}


@pytest.mark.parametrize("access", ["batch", "plane", "volume", "random"])
@pytest.mark.parametrize("stored", STORED)
def test_estimates_are_what_is_counted(stored: str, access: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store, copy = CountingStore(), CountingStore()
    data = smooth((96, 96, 96))
    gzarr.create_array(store, data=data, **STORED[stored])
    advice = gzarr.advise(gzarr.open_array(store, mode="r", device="emulated"), access)
    assert isinstance(advice, Advice)
    if "host" not in stored:
        check_costs(store, advice, advice.before, monkeypatch)
    advice.apply(copy)
    assert np.array_equal(gzarr.open_array(copy, mode="r")[...], data)
    check_costs(copy, advice, advice.after, monkeypatch)
    assert all(gain.before != gain.after or name for name, gain in advice.gains.items())
