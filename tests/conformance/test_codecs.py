"""Chunks that zarr-python encodes decode here, and the reverse, for every codec that both know."""

import json

import numpy as np
import pytest

from gzarr.codecs import (
    ArrayRepr,
    BloscCodec,
    BytesCodec,
    CodecSpec,
    GzipCodec,
    NumcodecsCodec,
    ShardingCodec,
    parse_codec,
)
from gzarr.codecs.chain import complete
from tests.codecs.chains import CpuChain, sample

zarr = pytest.importorskip("zarr", minversion="3.1")

# zarr-python warns that its numcodecs codecs are outside the specification, and that vlen codecs may change
pytestmark = [
    pytest.mark.filterwarnings("ignore:Numcodecs codecs are not in the Zarr version 3"),
    pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning"),
    pytest.mark.filterwarnings("ignore:The codec `vlen"),
]

NUMBERS = ["int8", "uint16", "int32", "uint64", "float16", "float32", "float64", "complex64", "bool"]


def numcodec(id: str, **config) -> CodecSpec:
    return NumcodecsCodec(id, config)


def document(dtype: str, shape: tuple[int, ...], codecs: list[dict], fill_value) -> bytes:
    """Metadata of an array with one chunk."""
    return json.dumps(
        {
            "zarr_format": 3,
            "node_type": "array",
            "shape": shape,
            "data_type": dtype,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": fill_value,
            "codecs": codecs,
            "attributes": {},
        }
    ).encode()


def check_both_ways(
    specs: list[CodecSpec], array: np.ndarray, data_type: str, fill_value=0, equal=np.array_equal
) -> None:
    fill = array.dtype.type(fill_value) if array.dtype.kind not in "OT" else fill_value
    chunk = ArrayRepr(array.dtype, array.shape, fill)
    specs = complete(specs, chunk)
    if array.dtype == bool:
        fill_value = bool(fill_value)
    if array.dtype.kind == "c":
        fill_value = [0.0, 0.0]
    metadata = document(data_type, array.shape, [spec.to_json() for spec in specs], fill_value)
    to_buffer = zarr.core.buffer.cpu.Buffer.from_bytes
    key = "c/" + "/".join("0" * array.ndim)

    # written here, read there
    chain = CpuChain(specs, chunk)
    store = {"zarr.json": to_buffer(metadata), key: to_buffer(bytes(chain.encode([array])[0]))}
    theirs = zarr.open_array(store, mode="r+")
    assert equal(theirs[...], array)

    # written there, read here, with the codecs as they wrote them
    del store[key]
    theirs[...] = array
    written = json.loads(metadata)["codecs"]
    parsed = [parse_codec(codec) for codec in written]
    again = CpuChain(parsed, chunk)
    (got,) = again.decode([store[key].to_bytes()])
    assert equal(got, array)


@pytest.mark.parametrize("data_type", NUMBERS)
@pytest.mark.parametrize("endian", ["little", "big"])
def test_bytes(data_type: str, endian: str) -> None:
    array = sample("f4" if data_type == "complex64" else data_type, (4, 5)).astype(data_type)
    check_both_ways([BytesCodec(endian)], array, data_type)


@pytest.mark.parametrize("cname", ["lz4", "lz4hc", "blosclz", "zlib", "zstd"])
@pytest.mark.parametrize("shuffle", ["noshuffle", "shuffle", "bitshuffle", None])
def test_blosc(cname: str, shuffle: str | None) -> None:
    for data_type in ("uint8", "int32", "float64"):
        check_both_ways([BloscCodec(cname, 5, shuffle)], sample(data_type, (40, 50)), data_type)


@pytest.mark.parametrize(
    "codecs",
    [
        [{"name": "transpose", "configuration": {"order": [2, 0, 1]}}],
        [{"name": "gzip", "configuration": {"level": 5}}],
        [{"name": "zstd", "configuration": {"level": 3, "checksum": True}}],
        [{"name": "zstd", "configuration": {"level": 0, "checksum": False}}],
        ["crc32c"],
        ["crc32c", {"name": "gzip", "configuration": {"level": 1}}, "crc32c"],
        [{"name": "numcodecs.crc32c"}],
    ],
    ids=str,
)
def test_codecs_of_the_specification(codecs: list) -> None:
    specs = [parse_codec(codec) for codec in codecs]
    for data_type in ("int16", "float32"):
        check_both_ways(specs, sample(data_type, (4, 5, 6)), data_type)


@pytest.mark.parametrize(
    "spec",
    [
        numcodec("bz2", level=2),
        numcodec("crc32"),
        numcodec("crc32", location="end"),
        numcodec("adler32"),
        numcodec("fletcher32"),
        numcodec("jenkins_lookup3", initval=0),
        numcodec("lz4", acceleration=2),
        numcodec("lzma", preset=1),
        numcodec("zlib", level=1),
        numcodec("gzip", level=1),
        numcodec("zstd", level=1),
        numcodec("blosc", cname="lz4", clevel=5, shuffle=1, blocksize=0),
        numcodec("shuffle"),
        numcodec("shuffle", elementsize=2),
        numcodec("delta"),
        numcodec("astype", encode_dtype="<f8"),
        numcodec("fixedscaleoffset", offset=3, scale=2, astype="<i4"),
        numcodec("pcodec", level=4),
    ],
    ids=repr,
)
def test_codecs_of_numcodecs_on_integers(spec: CodecSpec) -> None:
    check_both_ways([spec], sample("int32", (4, 5, 6)), "int32")


@pytest.mark.parametrize(
    "spec",
    [
        numcodec("quantize", digits=3),
        numcodec("bitround", keepbits=12),
        numcodec("zfpy", mode=4, tolerance=1e-3),
        numcodec("zfpy", mode=2, rate=16),
        numcodec("fixedscaleoffset", offset=1, scale=100, dtype="<f4", astype="<i4"),
        numcodec("pcodec", level=4),
    ],
    ids=repr,
)
def test_codecs_of_numcodecs_on_floats(spec: CodecSpec) -> None:
    array = sample("float32", (7, 5, 6))
    check_both_ways([spec], array, "float32", equal=lambda a, b: np.allclose(a, b, atol=0.02))


def test_packbits() -> None:
    check_both_ways([numcodec("packbits")], sample("bool", (3, 7)), "bool")


@pytest.mark.parametrize("compressor", [[], [GzipCodec(1)], [BloscCodec()]], ids=str)
def test_text(compressor: list) -> None:
    array = sample("T", (4, 5))
    check_both_ways([parse_codec("vlen-utf8"), *compressor], array, "string", "")


@pytest.mark.parametrize(
    "codec",
    [
        lambda: zarr.codecs.BloscCodec(cname="lz4", clevel=3, shuffle="shuffle", typesize=4),
        lambda: zarr.codecs.ZstdCodec(level=3, checksum=True),
        lambda: zarr.codecs.GzipCodec(level=3),
        lambda: zarr.codecs.BytesCodec(endian="big"),
        lambda: zarr.codecs.TransposeCodec(order=(1, 0)),
        zarr.codecs.Crc32cCodec,
        zarr.codecs.VLenUTF8Codec,
        lambda: zarr.codecs.numcodecs.Delta(dtype="<i4"),
        lambda: zarr.codecs.ShardingCodec(
            chunk_shape=(2, 2), codecs=[zarr.codecs.BytesCodec(), zarr.codecs.GzipCodec()]
        ),
    ],
)
def test_codec_objects_are_taken_as_they_are(codec) -> None:
    theirs = codec()
    want = json.loads(json.dumps(theirs.to_dict()))
    if want.get("configuration") == {}:
        del want["configuration"]  # they write an empty one for the vlen codecs only
    assert parse_codec(theirs).to_json() == want
    assert parse_codec(want).to_json() == want


def test_what_a_blosc_object_leaves_open_stays_open() -> None:
    assert parse_codec(zarr.codecs.BloscCodec(cname="lz4")) == BloscCodec("lz4")


@pytest.mark.parametrize("dtype", ["int8", "int32", "float64", "bool", "complex128", "datetime64[s]"])
def test_blosc_resolves_like_theirs(dtype: str) -> None:
    array = zarr.create_array({}, shape=(4,), chunks=(4,), dtype=dtype, compressors=[zarr.codecs.BloscCodec()])
    want = array.metadata.codecs[-1].to_dict()
    ours = complete([BloscCodec()], ArrayRepr(np.dtype(dtype), (4,)))
    assert ours[-1].to_json() == want
    assert [spec.to_json() for spec in ours] == [codec.to_dict() for codec in array.metadata.codecs]


def test_shard_metadata_is_written_like_theirs() -> None:
    array = zarr.create_array(
        {}, shape=(8, 8), chunks=(2, 4), shards=(8, 8), dtype="int16", compressors=[zarr.codecs.BloscCodec()]
    )
    (want,) = json.loads(json.dumps([codec.to_dict() for codec in array.metadata.codecs]))
    (ours,) = complete([ShardingCodec((2, 4), codecs=[BloscCodec()])], ArrayRepr(np.dtype("i2"), (8, 8)))
    assert ours.to_json() == want
