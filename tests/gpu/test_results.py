"""Random arrays are read into results of every layout, chunks that are missing or odd among them."""

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import LZ4, Blosc, Delta, GZip, Zlib, Zstd

import gzarr
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.pipeline.batches import NEVER
from gzarr.storage import LocalStore, MemoryStore
from tests.gpu.counted import CountingDevice

COMPRESSORS = {
    "zstd": Zstd(1, checksum=True),
    "lz4": LZ4(),
    "zlib": Zlib(1),
    "gzip": GZip(1),
    "blosc": Blosc("lz4", 5, Blosc.NOSHUFFLE),
    "blosclz": Blosc("blosclz", 5, Blosc.NOSHUFFLE),
    "stored blosc": Blosc("lz4", 0, Blosc.NOSHUFFLE),
    "shuffled blosc": Blosc("lz4", 5, Blosc.SHUFFLE),
}
ROWS = np.arange(90 * 24, dtype="i4").reshape(90, 24) // 5


def opened(stored: gzarr.Array, device: Any = None) -> gzarr.Array:
    backend = GpuBackend(device or EmulatedDevice(), small_reads=NEVER)
    return gzarr.open_array(stored.store, mode="r", device=backend)


slices = st.builds(slice, st.integers(-40, 40), st.integers(-40, 40), st.sampled_from([None, None, 1, 2, -1]))


@st.composite
def reads(draw: st.DrawFn) -> tuple[Any, ...]:
    shape = tuple(draw(st.lists(st.integers(1, 33), min_size=1, max_size=3)))
    lengths = [draw(st.integers(1, n + 3)) if draw(st.booleans()) else n for n in shape]
    wanted = tuple(draw(slices) if draw(st.booleans()) else slice(None) for _ in shape)
    options = {
        "dtype": draw(st.sampled_from(["i4", "<f8", "u1", ">i4", "i2", "c16", "?", "M8[s]"])),
        "chunks": tuple(lengths),
        "order": draw(st.sampled_from("CCF")),
        "compressor": COMPRESSORS[draw(st.sampled_from(sorted(COMPRESSORS)))],
        "filters": [Delta("<i4")] if draw(st.integers(0, 5)) == 0 else None,
        "fill_value": draw(st.sampled_from([0, 1])),
    }
    if options["filters"]:
        options["dtype"] = "i4"
    into = draw(st.sampled_from(["new", "F", "gaps", "other dtype"]))
    return shape, wanted, options, into, draw(st.integers(0, 5))


@settings(max_examples=60, deadline=None)
@given(reads())
def test_reads_into_results_of_every_layout(read: tuple[Any, ...]) -> None:
    shape, wanted, options, into, missing = read
    dtype = np.dtype(options["dtype"])
    data = (np.arange(np.prod(shape)) % 251).reshape(shape).astype(dtype)
    array = gzarr.create_array(MemoryStore(), shape=shape, zarr_format=2, device="cpu", **options)
    array[...] = data
    keys = sorted(key for key in array.store if key[-1].isdigit())
    for key in keys[1 : 1 + missing]:
        del array.store[key]
    expected = array[wanted]
    native = dtype.newbyteorder("=")
    out = {
        "new": None,
        "F": np.empty(expected.shape, native, order="F"),
        "gaps": np.empty((*expected.shape[:-1], 2 * expected.shape[-1]), native)[..., ::2],
        "other dtype": np.empty(expected.shape, dtype if dtype.kind in "M?c" else "f8"),
    }[into]
    np.testing.assert_array_equal(opened(array).get_basic_selection(wanted, out=out), expected)


def test_chunks_of_one_batch_may_be_encoded_in_different_ways(tmp_path: Path) -> None:
    """Frames of Blosc that are shuffled and frames that are not, missing chunks, and the short last chunk."""
    options: dict[str, Any] = {"compressor": COMPRESSORS["blosc"], "device": "cpu", "fill_value": 9}
    stored = gzarr.create_array(LocalStore(tmp_path), data=ROWS[:85], chunks=(10, 24), **options)
    for number, frame in ((2, "shuffled blosc"), (4, "stored blosc"), (5, "blosclz")):
        (tmp_path / "c" / str(number) / "0").write_bytes(COMPRESSORS[frame].encode(ROWS[10 * number :][:10].copy()))
    (tmp_path / "c" / "6" / "0").unlink()
    expected = ROWS[:85].copy()
    expected[60:70] = 9
    device = EmulatedDevice()
    np.testing.assert_array_equal(opened(stored, device)[:], expected)
    assert {"copy_plain", "copy_bytes"} <= set(device.launches)


def test_a_batch_uploads_the_index_lists_of_its_own_chunks_alone() -> None:
    """Those of the whole read, of 2 MiB, do not fit into a slot of 1 MiB."""
    data = np.arange(1 << 19, dtype="i4").reshape(-1, 2)
    stored = gzarr.array(data, store=MemoryStore(), chunks=(256, 2), compressor=None)
    device, rows = CountingDevice(), np.random.default_rng(1).permutation(1 << 18)
    backend = GpuBackend(device, small_reads=NEVER, max_device_nbytes=3 << 20)
    found = gzarr.open_array(stored.store, mode="r", device=backend).oindex[rows, :]
    assert np.array_equal(device.download(found), data[rows])
    assert sum(device.up) < data.nbytes + 2 * 4 * rows.size + (1 << 18)
