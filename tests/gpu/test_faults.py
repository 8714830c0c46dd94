"""Damage, on the device: the errors of the CPU, nothing leaked, the next read works; the CPU's suites besides."""

import gc
import weakref

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr import codecs
from gzarr.errors import ChunkError, DeviceError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device.emulated import EmulatedDevice
from tests.faults.test_damaged_chunks import *  # noqa: F403
from tests.faults.test_damaged_shards import *  # noqa: F403
from tests.gpu.codecs.test_nvcomp import need

del test_every_byte_changed, test_cut_anywhere  # noqa: F821 - thousands of reads; below are some of them


@pytest.fixture(autouse=True, scope="module")
def device():
    gc.collect()
    gc.freeze()  # `Accountant` collects after every read: only what the tests of this module make
    with gzarr.config.set({"device": "emulated"}):
        yield


#: Chains whose damage the device meets in ways of its own: the others are of the same codecs, or of the host's.
OF_THE_DEVICE = (
    *("v2-blosc", "v2-zlib", "v2-bz2", "v2-lz4", "v2-delta", "v2-crc32", "v3-zstd-checksum", "v3-gzip", "v3-crc32c"),
    *("v3-big-endian", "v3-transpose"),
)


@pytest.fixture(params=OF_THE_DEVICE)
def chain(request):
    return CHAINS[request.param]  # noqa: F405


class Accountant(EmulatedDevice):
    """Counts the device memory that is alive."""

    def __init__(self):
        super().__init__()
        self.alive = {}

    def track(self, array):
        self.alive[id(array)] = array.nbytes
        weakref.finalize(array, self.alive.pop, id(array), None)
        return array

    def empty(self, nbytes):
        return self.track(super().empty(nbytes))

    def upload(self, host):
        return self.track(super().upload(host))

    def live_nbytes(self):
        gc.collect()
        return sum(self.alive.values())


NUMBERS = np.random.default_rng(7).integers(0, 1000, (8, 12)).astype("i4")
NAMED = codecs.NumcodecsCodec
#: Name -> keywords; each runs on the device as a whole.
CODECS = {
    "none": {"compressors": None},
    "big-endian": {"serializer": codecs.BytesCodec("big"), "compressors": None},
    "zstd": {},
    "zstd-checksum": {"compressors": codecs.ZstdCodec(1, checksum=True)},
    "gzip": {"compressors": codecs.GzipCodec(1)},
    "zlib": {"compressors": NAMED("zlib", {"level": 1})},
    "lz4": {"compressors": NAMED("lz4", {"acceleration": 1})},
    "blosc-lz4": {"compressors": codecs.BloscCodec("lz4", shuffle="shuffle")},
    "blosc-zstd": {"compressors": codecs.BloscCodec("zstd", shuffle="bitshuffle")},
    "blosc-zlib": {"compressors": codecs.BloscCodec("zlib")},
    "deflate": {"compressors": codecs.NvcompDeflateCodec()},
    "gdeflate": {"compressors": codecs.NvcompGdeflateCodec()},
    "snappy": {"compressors": codecs.NvcompSnappyCodec()},
    "crc32c": {"compressors": codecs.Crc32cCodec()},
    "crc32": {"compressors": NAMED("crc32")},
    "adler32": {"compressors": NAMED("adler32")},
    "fletcher32": {"compressors": NAMED("fletcher32")},
    "shuffle": {"compressors": [NAMED("shuffle", {"elementsize": 4}), codecs.ZstdCodec()]},
    "delta": {"zarr_format": 2, "filters": [numcodecs.Delta("i4")], "compressor": numcodecs.Zstd(1)},
    "astype": {"zarr_format": 2, "filters": [numcodecs.AsType("i2", "i4")], "compressor": numcodecs.Zstd(1)},
    "transpose": {"filters": [codecs.TransposeCodec((1, 0))]},
}
#: What every codec must refuse, with and without a checksum.
DAMAGE = {
    "empty": lambda data: b"",
    "one byte": lambda data: data[:1],
    "cut": lambda data: data[: len(data) // 3],
    "other size": lambda data: None,
}


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_named_leaves_the_device_usable_and_leaks_nothing(codec):
    if codec in ("gdeflate", "snappy"):
        need(codec)
    keywords = CODECS[codec]
    stored = gzarr.array(NUMBERS, chunks=(3, 5), store={}, path="a", device="cpu", **keywords)
    smaller = gzarr.array(NUMBERS[:3, :4], chunks=(3, 4), store={}, device="cpu", **keywords)
    key, other = ("a/1.1", "0.0") if stored.zarr_format == 2 else ("a/c/1/1", "c/0/0")
    accountant = Accountant()
    z = stored.to(GpuBackend(accountant, strict=True))
    whole = bytes(stored.store[key])
    np.testing.assert_array_equal(z[:], NUMBERS)
    kept, before = [], None
    for number, (name, damage) in enumerate([*DAMAGE.items()] * 2):
        data = damage(whole)
        stored.store[key] = bytes(smaller.store[other]) if data is None else data
        for read in (lambda: z[:], lambda: z[3:6, 5:10], lambda: z.vindex[[0, 4], [0, 6]]):
            with pytest.raises(ChunkError) as caught:
                read()
            kept.append(caught.value)
            error = caught.value
            assert (error.key, error.chunk_coords) == (key, (1, 1)), name
            assert error.path == str(z.store_path)
            assert error.codec in {spec.name for spec in stored.codecs}, name
            del caught
        stored.store[key] = whole
        np.testing.assert_array_equal(z[:], NUMBERS)
        if number == 3:
            before = accountant.live_nbytes()
    assert accountant.live_nbytes() <= before, "device memory grows with errors, which may be kept"
    assert len(kept) == 24


@pytest.mark.parametrize("codec", CODECS)
def test_flipped_bytes_are_errors_or_other_numbers_and_leak_nothing(codec):
    if codec in ("gdeflate", "snappy"):
        need(codec)
    stored = gzarr.array(NUMBERS, chunks=(3, 5), store={}, device="cpu", **CODECS[codec])
    key = "1.1" if stored.zarr_format == 2 else "c/1/1"
    accountant = Accountant()
    z = stored.to(GpuBackend(accountant))
    whole = bytes(stored.store[key])
    rng = np.random.default_rng(1)
    z[:]
    before = accountant.live_nbytes()
    for position in range(0, len(whole), 3):
        changed = bytearray(whole)
        changed[position] ^= int(rng.integers(1, 256))
        stored.store[key] = bytes(changed)
        try:
            found = z[:]
        except ChunkError as error:
            assert error.chunk_coords == (1, 1)  # noqa: PT017
        else:
            np.testing.assert_array_equal(found[:3], NUMBERS[:3])
    stored.store[key] = whole
    np.testing.assert_array_equal(z[:], NUMBERS)
    assert accountant.live_nbytes() <= before


def test_chunks_that_vanish_are_filled():
    stored = gzarr.array(NUMBERS, chunks=(3, 5), store={}, fill_value=-1, device="cpu")
    z = stored.to("emulated")
    del stored.store["c/1/1"]
    found = z[:]
    assert (found[3:6, 5:10] == -1).all()
    np.testing.assert_array_equal(found[:3], NUMBERS[:3])


@pytest.mark.parametrize(
    ("claim", "codec"),
    [
        (b"\x28\xb5\x2f\xfd\xe0" + (1 << 60).to_bytes(8, "little") + b"\1\0\0", codecs.ZstdCodec()),
        ((0xFFFFFFFF).to_bytes(4, "little") + b"\0" * 9, NAMED("lz4", {"acceleration": 1})),
        (b"\2\1\1\4" + b"\xff\xff\xff\x7f" * 2 + (40).to_bytes(4, "little") + b"\0" * 24, codecs.BloscCodec("lz4")),
        (b"\xff\xff\xff\xff\x0f" + b"\0" * 30, codecs.NvcompSnappyCodec()),
    ],
    ids=["zstd", "lz4", "blosc", "snappy"],
)
def test_headers_that_claim_much_take_no_memory(claim, codec):
    stored = gzarr.array(NUMBERS, chunks=(3, 5), store={}, device="cpu", compressors=codec or None)
    stored.store["c/1/1"] = claim
    accountant = Accountant()
    largest = []
    accountant.track = lambda array: largest.append(array.nbytes) or array
    with pytest.raises(ChunkError, match=r"c/1/1.*\(1, 1\)"):
        stored.to(GpuBackend(accountant))[:]
    assert max(largest, default=0) < 100_000


def test_a_cap_that_is_too_small_names_what_does_not_fit_and_the_rest_goes_on():
    stored = gzarr.array(NUMBERS, chunks=(3, 5), store={}, device="cpu", compressors=None)
    with pytest.raises(
        DeviceError, match=r"chunk \(0, 0\): 60 bytes of shape \(3, 5\).*1/3 of the cap of 99 bytes.*max_device_nbytes"
    ):
        stored.to("emulated", max_device_nbytes=99)[:]
    np.testing.assert_array_equal(stored.to("emulated", max_device_nbytes=10_000)[:], NUMBERS)
