"""nvCOMP's own formats as codecs: on disk, on the CPU, through the batched call, and where nothing decodes them."""

import ctypes
import json
import sys
import zlib
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr import codecs
from gzarr.codecs.nvcomp import BY_NAME, SPECS
from gzarr.cpu.codecs import nvcomp as host
from gzarr.errors import ChunkError, DeviceError, MetadataError, MissingExtraError
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.device import nvcomp
from gzarr.gpu.device.emulated import EmulatedDevice, check_call
from gzarr.gpu.device.nvcomp_tables import CODECS, decompress_temp_nbytes
from gzarr.gpu.device.protocol import Outcome
from tests.gpu.codecs.encoding import encode

DATA = (np.arange(53 * 41).reshape(53, 41) // 9).astype("i4")
ON_HOST = sorted(host.ALGORITHMS)
GPU_ONLY = ["ans", "bitcomp", "cascaded"]


def need(algorithm):
    if algorithm not in host.installed():
        pytest.skip(f"the library for {algorithm} on the CPU is not installed")


def spec_of(algorithm):
    return BY_NAME[f"nvcomp.{algorithm}"]()


# -- metadata ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_metadata_round_trips_and_arrays_open_without_any_library(spec, zarr_format):
    z = gzarr.create_array({}, shape=(4, 4), chunks=(2, 2), dtype="f4", compressors=spec(), zarr_format=zarr_format)
    again = gzarr.open_array(z.store, "r")
    assert again.codecs[-1] == spec()
    assert again.info is not None
    assert again[:].sum() == 0
    if zarr_format == 2:
        assert json.loads(bytes(z.store[".zarray"]))["compressor"] == {"id": spec.name, **spec().configuration()}
        assert again.compressor.get_config()["id"] == spec.name
    else:
        assert json.loads(bytes(z.store["zarr.json"]))["codecs"][-1] == spec().to_json()


def test_configurations_that_are_malformed():
    for config in ({"level": 13}, {"level": 0}, {"levels": 3}, {"level": True}):
        with pytest.raises(MetadataError, match=r"nvcomp\.gdeflate.*level"):
            codecs.NvcompGdeflateCodec.from_json(config)
    with pytest.raises(MetadataError, match=r"nvcomp\.ans.*unknown configuration field 'level'"):
        gzarr.zeros(3, compressors={"name": "nvcomp.ans", "configuration": {"level": 1}})


def test_they_need_data_of_a_known_size():
    for before in ([codecs.ZstdCodec()], []):
        dtype = "i4" if before else str
        with pytest.raises(MetadataError, match=r"nvcomp\.snappy.*does not store the size of its data"):
            gzarr.zeros(3, dtype=dtype, compressors=[*before, codecs.NvcompSnappyCodec()])


# -- with a library for the host -----------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ON_HOST)
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("chunks", [(10, 7), (53, 41), (1, 1)])
def test_the_cpu_and_the_device_read_what_is_written(algorithm, zarr_format, chunks):
    need(algorithm)
    stored = gzarr.array(DATA, chunks=chunks, compressors=spec_of(algorithm), zarr_format=zarr_format, store={})
    np.testing.assert_array_equal(stored[:], DATA)
    device = EmulatedDevice()
    z = gzarr.open_array(stored.store, device=GpuBackend(device, strict=True))
    np.testing.assert_array_equal(z[:], DATA)
    # Of chunks of single elements, those that are zero are missing.
    assert device.launches[:2] == [algorithm, "copy_plain"]


def test_streams_are_bare():
    need("snappy")
    cramjam = pytest.importorskip("cramjam")
    data = DATA[:10, :7].tobytes()

    def stream(spec):
        return bytes(gzarr.array(DATA[:10, :7], chunks=(10, 7), compressors=spec, store={}).store["c/0/0"])

    assert zlib.decompress(stream(codecs.NvcompDeflateCodec()), wbits=-15) == data
    assert bytes(cramjam.snappy.decompress_raw(stream(codecs.NvcompSnappyCodec()))) == data


def test_gdeflate_streams_are_those_of_nvcomps_own_function():
    """compressCPU, which nVidia documents as the writer for the batched decoder, is a C++ function around the same."""
    need("gdeflate")
    library = host._gdeflate()
    try:
        compress = library["_ZN6nvcomp8gdeflate11compressCPUEPKPKvPKmmmPKPvPmi"]
    except AttributeError:
        pytest.skip("this release of nvCOMP has no compressCPU of that name")
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    compress.argtypes = [pointer, pointer, size, size, pointer, pointer, ctypes.c_int]
    for n in (1, 77, 5000, 65536):
        data = (np.arange(n) // 7 % 251).astype("u1").tobytes()
        source, out = ctypes.create_string_buffer(data, n), ctypes.create_string_buffer(1 << 18)
        written = (size * 1)(0)
        sources, outs = (pointer * 1)(ctypes.addressof(source)), (pointer * 1)(ctypes.addressof(out))
        compress(sources, (size * 1)(n), 65536, 1, outs, written, 0)
        assert host.gdeflate_decode(out.raw[: written[0]], n) == data
        compress(sources, (size * 1)(n), 65536, 1, outs, written, 2)
        assert out.raw[: written[0]] == host.gdeflate_encode(data, 6)


@pytest.mark.parametrize("algorithm", ["deflate", "gdeflate", "snappy", "lz4", "zstd", "LZ4", "Gdeflate"])
def test_what_kvikio_wrote_is_read_and_written(algorithm):
    plain = {"lz4": numcodecs.LZ4(), "zstd": numcodecs.Zstd()}.get(algorithm.lower())
    if plain is None:
        need(algorithm.lower())
    config = {"id": "nvcomp_batch", "algorithm": algorithm, "options": {}}
    stored = gzarr.array(DATA, chunks=(10, 7), compressor=config, zarr_format=2, store={})
    assert json.loads(bytes(stored.store[".zarray"]))["compressor"] == config
    np.testing.assert_array_equal(stored[:], DATA)
    device = EmulatedDevice()
    z = gzarr.open_array(stored.store, device=GpuBackend(device, strict=True))
    np.testing.assert_array_equal(z[:], DATA)
    if plain is not None:  # LZ4 lies behind its size, as numcodecs writes it
        np.testing.assert_array_equal(np.frombuffer(plain.decode(stored.store["0.0"]), "i4"), DATA[:10, :7].reshape(-1))


@pytest.mark.parametrize("algorithm", ON_HOST)
@pytest.mark.parametrize("where", ["cpu", "emulated"])
def test_damage_is_an_error_or_other_numbers_but_never_more(algorithm, where):
    need(algorithm)
    stored = gzarr.array(DATA, chunks=(10, 7), compressors=spec_of(algorithm), store={})
    z = stored.to(where)
    whole = bytes(stored.store["c/1/1"])
    rng = np.random.default_rng(3)
    for kept in (0, 1, 3, len(whole) // 2, len(whole) - 1):
        if algorithm == "gdeflate" and kept >= 128:
            continue  # the format does not show that words are missing
        stored.store["c/1/1"] = whole[:kept]
        with pytest.raises(ChunkError, match=rf"c/1/1.*\(1, 1\).*nvcomp\.{algorithm}"):
            z[:]
    for _ in range(60):
        changed = np.frombuffer(whole, "u1").copy()
        changed[rng.integers(0, len(whole), 3)] ^= rng.integers(1, 256, 3).astype("u1")
        stored.store["c/1/1"] = changed.tobytes()
        try:
            found = z[:]
        except ChunkError as error:
            assert (error.chunk_coords, error.codec) == ((1, 1), f"nvcomp.{algorithm}")  # noqa: PT017
        else:
            np.testing.assert_array_equal(found[:10], DATA[:10])
    for other in (DATA[:10, :6], DATA[:11, :7]):
        small = gzarr.array(other, chunks=other.shape, compressors=spec_of(algorithm), store={})
        stored.store["c/1/1"] = small.store["c/0/0"]
        with pytest.raises(ChunkError, match=r"c/1/1"):
            z[:]
    stored.store["c/1/1"] = whole
    np.testing.assert_array_equal(z[:], DATA)


def test_a_gdeflate_chunk_above_a_page_is_refused():
    need("gdeflate")
    z = gzarr.zeros(20_000, chunks=20_000, dtype="i4", compressors=codecs.NvcompGdeflateCodec())
    with pytest.raises(ChunkError, match="80000 bytes is larger than a page of 65536; choose smaller chunks"):
        z[:] = 1


@pytest.mark.parametrize(("algorithm", "extra"), [("snappy", "snappy"), ("gdeflate", "gdeflate")])
def test_a_missing_library_is_named_when_it_is_needed(monkeypatch, algorithm, extra):
    monkeypatch.setitem(sys.modules, "cramjam", None)
    monkeypatch.setattr(host, "SONAME", "libnvcomp_cpu.so.999")
    host._gdeflate.cache_clear()
    z = gzarr.zeros(8, chunks=4, compressors=spec_of(algorithm))
    assert z[:].tolist() == [0] * 8
    with pytest.raises(MissingExtraError, match=rf"pip install 'gzarr\[{extra}\]'"):
        z[:] = 1
    assert algorithm not in host.installed()
    host._gdeflate.cache_clear()


# -- with none -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", GPU_ONLY)
@pytest.mark.parametrize("where", ["cpu", "emulated"])
def test_formats_of_the_gpu_alone_say_so_when_they_are_needed(algorithm, where):
    z = gzarr.create_array({"c/0": b"some stream"}, shape=8, chunks=4, compressors=spec_of(algorithm), device=where)
    z.store["c/0"] = b"some stream"
    assert z[4:].tolist() == [0] * 4
    for use in (lambda: z[:], lambda: z.__setitem__(slice(4), 1)):
        with pytest.raises(MissingExtraError, match=rf"nvcomp\.{algorithm}.*device='cuda'.*gzarr\[cuda13\]"):
            use()


class RecordingDevice(EmulatedDevice):
    """Stands in for nvCOMP where no host library decodes a format: it knows what given streams decode to, and asks the
    real library, if it is there, for the alignments and the scratch of every call.
    """

    def __init__(self, streams):
        super().__init__()
        self.streams = streams
        self.calls = []
        self.decoders |= set(GPU_ONLY)

    def decompress(self, decoder, source, nbytes, target, capacity):
        check_call(decoder, source, target, capacity)
        self.calls.append((decoder, source, nbytes, target, capacity))
        statuses, sizes = np.zeros(source.size, np.int32), np.zeros(source.size, np.int64)
        for i in range(source.size):
            data = self.streams.get(ctypes.string_at(int(source[i]), int(nbytes[i])))
            if data is None or len(data) > capacity[i]:
                statuses[i] = 12
                continue
            ctypes.memmove(int(target[i]), data, len(data))
            sizes[i] = len(data)
        return Outcome(statuses, sizes)


@pytest.mark.parametrize("algorithm", GPU_ONLY)
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_the_batched_call_gets_what_nvcomp_demands(algorithm, zarr_format):
    rng = np.random.default_rng(9)
    data = rng.integers(0, 256, (40, 11), np.uint8)  # chunks of 33 bytes, which fit no alignment
    z = gzarr.create_array(
        {}, shape=data.shape, chunks=(3, 11), dtype="u1", zarr_format=zarr_format, compressors=spec_of(algorithm)
    )
    streams = {}
    for i in range(13):  # the last chunk is missing
        stream = rng.integers(0, 256, 5 + 3 * i, np.uint8).tobytes()
        streams[stream] = data[3 * i : 3 * i + 3].tobytes()
        z.store[f"{i}.0" if zarr_format == 2 else f"c/{i}/0"] = stream
    device = RecordingDevice(streams)
    found = gzarr.open_array(z.store, device=GpuBackend(device, strict=True))
    np.testing.assert_array_equal(found[:39], data[:39])
    assert found[39].tolist() == [0] * 11
    ((decoder, source, nbytes, target, capacity),) = device.calls  # one call for the batch; none for the missing chunk
    assert decoder == algorithm
    assert nbytes.tolist() == [len(s) for s in streams]
    assert capacity.tolist() == [33] * 13
    assert (np.diff(target) >= 33).all()
    alignment = CODECS[algorithm].alignment
    assert not (source % alignment.input).any()
    assert not (target % alignment.output).any()
    try:
        nvcomp.load()
    except DeviceError:
        return
    assert nvcomp.query_alignment(algorithm) == alignment
    scratch = decompress_temp_nbytes(algorithm, 13, 33, 13 * 33)
    assert nvcomp.query_temp_nbytes(algorithm, 13, 33, 13 * 33) == scratch


def test_statuses_and_sizes_of_the_batched_call_name_the_chunk():
    z = gzarr.create_array({}, shape=12, chunks=4, dtype="u1", compressors=spec_of("ans"))
    streams = {b"one": b"\1\1\1\1", b"two": b"\2\2\2", b"three": b"\3\3\3\3"}
    backend = GpuBackend(RecordingDevice(streams))
    for i, stream in enumerate(streams):
        z.store[f"c/{i}"] = stream
    array = z.to(backend)
    with pytest.raises(ChunkError, match=r"c/1.*\(1,\).*nvcomp\.ans: expected 4 decoded bytes, got 3"):
        array[:]
    z.store["c/1"] = b"unknown"
    with pytest.raises(ChunkError, match=r"c/1.*\(1,\).*nvcomp\.ans: the stream is damaged \(decoder status 12\)"):
        array[:]
    assert array[8:].tolist() == [3] * 4


@pytest.mark.parametrize("algorithm", GPU_ONLY)
def test_chunks_beyond_what_a_decoder_takes_are_left_to_the_host(algorithm):
    limit = CODECS[algorithm].max_decompressed_nbytes
    backend = GpuBackend(RecordingDevice({}))
    over = gzarr.zeros(limit + 16, chunks=limit + 16, dtype="u1", compressors=spec_of(algorithm), device=backend)
    assert [row.where for row in over.placement if row.step == f"nvcomp.{algorithm}"] == ["host"]
    fits = gzarr.zeros(limit, chunks=limit, dtype="u1", compressors=spec_of(algorithm), device=backend)
    assert {row.where for row in fits.placement} == {"emulated"}


class StandIn(EmulatedDevice):
    """Has encoders of formats that no host makes: their streams are the chunks with some bytes around them."""

    def __init__(self) -> None:
        super().__init__()
        self.typesizes: list[int] = []
        self.encoders |= {"ans", "bitcomp", "cascaded"}

    def encode(self, encoder: str, data: bytes) -> bytes:
        return b"<" + data + b">"

    def compress(self, *args: Any) -> Outcome:
        self.typesizes.append(args[-1])
        return super().compress(*args)


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">f4", "<f8", "<c16", "V3"])
@pytest.mark.parametrize("algorithm", ["ans", "bitcomp", "cascaded"])
def test_encoders_of_numbers_get_whole_aligned_numbers(algorithm: str, dtype: str) -> None:
    values = np.arange(3 * 37 * np.dtype(dtype).itemsize, dtype=np.uint8).view(dtype).reshape(3, 37)
    device = StandIn()
    found = encode(device, [BY_NAME[f"nvcomp.{algorithm}"]()], values)
    stored = values.astype(values.dtype.newbyteorder("<"))
    assert found == [b"<" + row.tobytes() + b">" for row in stored]
    itemsize = np.dtype(dtype).itemsize
    typed = algorithm != "ans" and itemsize in (2, 4, 8)
    assert device.typesizes == [itemsize if typed else 1]
    assert CODECS[algorithm].compress_bound(values[0].nbytes) > values[0].nbytes
