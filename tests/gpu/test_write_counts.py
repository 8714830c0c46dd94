"""The load that a write puts on a device: few calls, waits and bytes for each batch, however many chunks it has."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import pytest

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.pipeline_slots import N_PIPELINE_SLOTS
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.storage import MemoryStore
from tests.gpu.counted import CountingDevice, on_device
from tests.gpu.test_read_counts import COSTS, DATA


class PerBatch(NamedTuple):
    """The load that one batch of a write may put on the device, besides copy_plain and find_written.

    Attributes:
        encoding: kernels and batched calls that encode, with how often each.
        uploads: copies to the device: tables of kernels.
        old: kernels and batched calls for the old contents of chunks that are only partly covered.
        old_uploads: copies to the device for these: the encoded chunks, and tables.
        down: bytes that come down for each chunk besides its encoded ones, at most: a flag, padding, 12 for each
            stream, sums of pieces.
    """

    encoding: dict[str, int]
    uploads: int
    old: dict[str, int]
    old_uploads: int
    down: int = 1 + 15 + 2 * 12


def moving(n: int, **calls: int) -> dict[str, int]:
    """Calls by name ("launch_shuffle"), and launches of copy_streams."""
    return {"launch copy_streams": n, **{name.replace("_", " ", 1): times for name, times in calls.items()}}


WRITES = {
    "raw": PerBatch({}, 2, {"launch copy_plain": 1}, 2),
    "blosc": PerBatch(
        moving(1, launch_shuffle=1, encode_lz4=1), 6, moving(1, decode_lz4=1, launch_copy_bytes=1), 3, 32 + 8 * 12
    ),
    "blosc zstd": PerBatch(
        moving(1, launch_shuffle=1, encode_zstd=1), 6, {"decode zstd": 1, "launch copy_bytes": 1}, 2, 32 + 2 * 12
    ),
    "lz4": PerBatch(moving(2, encode_lz4=1), 5, {"decode lz4": 1}, 1),
    "zstd": PerBatch(moving(1, encode_zstd=1), 3, {"decode zstd": 1}, 1),
    "delta, zstd": PerBatch(moving(1, encode_zstd=1), 3, {"decode zstd": 1}, 1),
    "gzip": PerBatch(moving(2, encode_deflate=1, crc32=1), 6, {"decode deflate": 1, "crc32": 1}, 1, 16 + 2 * 16),
    "zlib": PerBatch(
        moving(2, encode_deflate=1, launch_weighted_sums=1),
        7,
        {"decode deflate": 1, "launch weighted_sums": 1},
        2,
        16 + 2 * (12 + 16 * 65),
    ),
    "crc32c": PerBatch(moving(2, encode_zstd=1, crc32c=1), 4, {"decode zstd": 1, "crc32c": 1}, 1, 16 + 2 * 16),
    "sharded crc32c": PerBatch(moving(2, encode_zstd=1, crc32c=1), 4, {"decode zstd": 1, "crc32c": 1}, 1, 16 + 2 * 16),
}
#: Bytes of tables for each chunk, of up to four streams, and of a batch.
TABLE_NBYTES, BATCH_NBYTES = 1100, 2048
#: 1 batch of 10 or 80 chunks; some batches.
SHAPES = ((64, None), (8, None), (32, N_PIPELINE_SLOTS * 700_000))


def check(chain: str, inner: Any, value: Any, *, partly: bool) -> None:
    """Write an array with different numbers of chunks and batches, and compare."""
    cost = WRITES[chain]
    for rows, cap in SHAPES:
        stored = gzarr.create_array(
            MemoryStore(), data=DATA, chunks=(rows, 64), write_empty_chunks=False, device="cpu", **COSTS[chain].options
        )
        device = CountingDevice(inner)
        backend = GpuBackend(device, max_device_nbytes=cap, small_reads=NEVER, small_writes=NEVER)
        array = gzarr.open_array(stored.store, device=backend)
        most_pinned = 0 if cap is None else N_PIPELINE_SLOTS - 1
        for _ in range(20):  # chance decides which pipeline slots grow, and how many results are not stored yet
            device.taken()
            array[:, int(partly) :] = value[:, int(partly) :]
            found = device.taken()
            if found.get("pinned allocations", 0) <= most_pinned:
                break
        np.testing.assert_array_equal(stored[:, 1:], DATA[:, 1:] + 1)
        n_batches, n_chunks = found["launch find_written"], len(DATA) // rows
        assert n_batches == 1 if cap is None else n_batches > 1
        wanted = Counter({"launch copy_plain": 1, "launch find_written": 1}) + Counter(cost.encoding)
        wanted += Counter(cost.old if partly else {})
        made = {name: n for name, n in found.items() if name.startswith(("launch", "decode", "encode", "crc"))}
        assert made == {name: n * n_batches for name, n in wanted.items()}
        assert found["uploads"] == (cost.uploads + partly * cost.old_uploads) * n_batches
        # The host waits for flags, sizes of streams, encoded bytes, and once more until the device is idle; twice if it
        # has, or may have, decoded.
        guarded, by_tables = partly and "crc32c" in chain, not partly
        assert found["waits"] == (4 - by_tables + (chain != "raw") + guarded) * n_batches
        encoded = sum(len(data) for key, data in stored.store.items() if key[-1].isdigit())
        assert found["bytes down"] <= encoded + cost.down * n_chunks
        up = found["bytes up"] + found.get("table bytes up", 0)
        assert up <= partly * encoded * 1.05 + TABLE_NBYTES * n_chunks + BATCH_NBYTES * n_batches
        assert found.get("pinned allocations", 0) <= most_pinned


@pytest.mark.parametrize("partly", [False, True], ids=["whole", "partly"])
@pytest.mark.parametrize("chain", WRITES)
def test_a_batch_of_a_write_is_few_calls_and_waits(chain, partly) -> None:
    check(chain, None, on_device(DATA + 1), partly=partly)
