"""Small reads are decoded on the host and uploaded once; the answers are those of the device."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numcodecs import Blosc, Delta, GZip

import gzarr
from gzarr import codecs
from gzarr.errors import ChunkError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.pipeline.batches import NEVER, SMALL, Crossover, crossover_for

DATA = np.random.default_rng(4).normal(0, 1000, (23, 19))
KEYWORDS = (
    {},
    {"shards": (12, 15)},
    {"zarr_format": 2, "compressor": Blosc("lz4", 5, Blosc.BITSHUFFLE), "order": "F"},
    {"zarr_format": 2, "dtype": ">i4", "filters": [Delta(">i4")], "compressor": GZip(1)},
)


class Counting(EmulatedDevice):
    def __init__(self):
        super().__init__(arrays="device")
        self.uploads = 0

    def upload(self, host):
        self.uploads += 1
        return super().upload(host)


@pytest.mark.parametrize(("n", "decoded", "result", "expected"), [(0, 0, 9, 0), (1, 9, 9, 1), (4, 99, 9, 1)])
def test_what_is_small(n, decoded, result, expected):
    crossover = Crossover(4, 99)
    assert crossover.prefers_host(n, decoded, result) == bool(expected)
    assert not crossover.prefers_host(5, decoded, result)
    assert not crossover.prefers_host(1, 100, result)
    assert not crossover.prefers_host(1, 9, 100)
    assert not NEVER.prefers_host(n, decoded, result)


def test_an_emulated_device_decodes_everything():
    assert crossover_for(EmulatedDevice()) is NEVER
    device = EmulatedDevice()
    device.name = "cuda:0"
    assert crossover_for(device) is SMALL


def why_placed(array):
    return next(row.why for row in array.placement if row.step == "place")


def test_small_reads_are_decoded_on_the_host_and_placement_says_so():
    device = Counting()
    stored = gzarr.array(DATA, chunks=(6, 5), store={})
    z = stored.to(GpuBackend(device, small_reads=Crossover(4, 2000)))
    assert "reads of at most 4 chunks and 2000 bytes are decoded on the host" in why_placed(z)
    for selection, uploads in (((slice(2, 9), slice(3, 8)), 2), ((3, 4), 2), (slice(None), 0)):
        device.launches.clear()
        device.uploads = 0
        found = z[selection]
        np.testing.assert_array_equal(found.get(), DATA[selection])
        assert (device.launches == ["copy_plain"]) == bool(uploads)
        assert device.uploads == uploads or not uploads  # the elements, and where they go
    device.launches.clear()
    assert z.to(GpuBackend(device, small_reads=Crossover(4, 2000), strict=True))[:3, :3].shape == (3, 3)
    assert device.launches
    missing = gzarr.full((5, 5), 7, chunks=5, device=z.backend)
    device.launches.clear()
    assert (missing[:] == 7).all()
    assert device.launches == ["copy_plain"]  # nothing to decode: one launch


def test_codecs_that_a_host_may_lack_stay_on_the_device():
    backend = GpuBackend(EmulatedDevice(), small_reads=Crossover(100, 10000))
    z = gzarr.array(DATA, chunks=(6, 5), compressors=codecs.NvcompDeflateCodec(), device=backend)
    np.testing.assert_array_equal(z[:3, :3], DATA[:3, :3])
    assert "decoded on the host" not in why_placed(z)


def test_damage_has_the_same_name_on_either_side():
    stored = gzarr.array(DATA, chunks=(6, 5), store={}, compressors=codecs.GzipCodec(1))
    stored.store["c/1/1"] = bytes(stored.store["c/1/1"])[:-9]
    for crossover in (NEVER, Crossover(100, 1 << 20)):
        with pytest.raises(ChunkError, match=r"c/1/1.*\(1, 1\).*gzip"):
            stored.to(GpuBackend(EmulatedDevice(), small_reads=crossover))[:]


INDEX = st.one_of(st.integers(-19, 18), st.slices(19), st.lists(st.integers(0, 18), min_size=1, max_size=5))


@settings(max_examples=60)
@given(
    st.sampled_from(KEYWORDS),
    st.tuples(INDEX, INDEX),
    st.sampled_from([Crossover(1, 300), Crossover(3, 1500), Crossover(100, 1 << 20)]),
    st.sampled_from(["oindex", "vindex"]),
    st.sampled_from([None, "f4", "c16"]),
)
def test_answers_are_the_same_on_both_sides(keywords, index, crossover, how, dtype):
    z = gzarr.array(DATA.astype(keywords.get("dtype", "f8")), chunks=(6, 5), fill_value=3, **keywords)
    z[6:12, 5:10] = 3  # a chunk that is not stored
    if dtype is not None:
        z = z.astype(dtype)
    if how == "vindex" and not all(isinstance(i, list) for i in index):
        how = "oindex"
    if how == "vindex":
        n = min(map(len, index))
        index = tuple(i[:n] for i in index)
    expected = np.asarray(getattr(z, how)[index])
    for limits in (crossover, NEVER):
        for nbytes in (None, 40_000):  # also cut into pieces
            backend = GpuBackend(EmulatedDevice(), small_reads=limits, max_device_nbytes=nbytes)
            found = np.asarray(getattr(z.to(backend), how)[index])
            assert found.dtype == expected.dtype.newbyteorder("=")
            np.testing.assert_array_equal(found, expected)
