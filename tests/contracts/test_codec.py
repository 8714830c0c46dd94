"""What every codec must do, whatever its configuration."""

import json
import pickle
from collections.abc import Iterator
from contextlib import suppress
from inspect import isabstract
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

import gzarr
from gzarr.codecs import (
    ArrayRepr,
    BloscCodec,
    BytesCodec,
    BytesRepr,
    CastValueCodec,
    CodecSpec,
    Crc32cCodec,
    GzipCodec,
    N5Codec,
    NumcodecsCodec,
    ScaleOffsetCodec,
    ShardingCodec,
    TransposeCodec,
    VLenBytesCodec,
    VLenUTF8Codec,
    ZstdCodec,
    parse_codec,
)
from gzarr.codecs.nvcomp import SPECS, NvcompDeflateCodec, NvcompSnappyCodec, NvcompSpec
from gzarr.codecs.registry import codec_names, from_v2
from gzarr.dtypes import parse_dtype
from gzarr.dtypes import to_v2 as dtype_to_v2
from gzarr.errors import CodecError, MetadataError
from gzarr.metadata.v2 import is_compressor
from gzarr.storage import MemoryStore
from tests.codecs.chains import CpuChain, chain_for, sample

NUMBERS = ("<i4", ">i4", "u1", "<f8", ">f2", "?", "<M8[s]", "S3", ">U2", [("a", "<i2"), ("b", ">f4")])
INTEGERS = ("<i2", ">i4", "<u8")
FLOATS = ("<f4", ">f8")
SHAPES = ((), (1,), (0,), (7,), (4, 6), (3, 0, 2), (2, 3, 5))


class Case(NamedTuple):
    spec: CodecSpec
    dtypes: tuple[Any, ...] = NUMBERS
    shapes: tuple[tuple[int, ...], ...] = SHAPES
    tolerance: float = 0.0

    def __str__(self) -> str:
        return f"{self.spec.name}-{json.dumps(self.spec.configuration())}".replace('"', "")


def numcodec(id: str, **config: Any) -> NumcodecsCodec:
    return NumcodecsCodec(id, config)


CASES = [
    Case(BytesCodec("little")),
    Case(BytesCodec("big")),
    Case(BytesCodec(None)),
    Case(TransposeCodec("F")),
    Case(TransposeCodec((1, 0)), shapes=((3, 0), (4, 6))),
    Case(TransposeCodec((2, 0, 1)), shapes=((2, 3, 5),)),
    *(Case(BloscCodec(cname)) for cname in ("lz4", "lz4hc", "blosclz", "zlib", "zstd")),
    *(Case(BloscCodec("lz4", 1, shuffle)) for shuffle in ("noshuffle", "shuffle", "bitshuffle")),
    Case(BloscCodec("zstd", 0, typesize=300, blocksize=64)),
    Case(ZstdCodec(-3, checksum=True)),
    Case(GzipCodec(0)),
    Case(NvcompDeflateCodec(1)),
    Case(N5Codec("<i4", (4, 6), {"id": "gzip", "level": 1}), ("<i4",), ((4, 6),)),
    Case(N5Codec("<f8", (2, 3, 5)), ("<f8",), ((2, 3, 5),)),
    Case(VLenUTF8Codec(), ("O", "T")),
    Case(VLenBytesCodec(), ("S3",)),
    Case(CastValueCodec("int64"), ("<i2", ">i4", "<f4", ">f8"), tolerance=0.5),
    Case(CastValueCodec("float32", scalar_map={"encode": [[0, "NaN"]], "decode": [["NaN", 0]]}), INTEGERS),
    Case(CastValueCodec("uint8", "towards-zero", "clamp"), ("u1",)),
    Case(ScaleOffsetCodec(3, 2), ("<i4", ">i8", "<f8", ">f4")),
    Case(ScaleOffsetCodec(), INTEGERS),
    *(Case(numcodec(id)) for id in ("zlib", "bz2", "lzma", "lz4", "base64", "shuffle")),
    Case(numcodec("gzip", level=1)),
    Case(numcodec("zstd", level=1, checksum=True)),
    Case(numcodec("blosc", cname="lz4", clevel=5, shuffle=1, blocksize=0)),
    *(Case(numcodec(id)) for id in ("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3")),
    Case(numcodec("crc32", location="end")),
    Case(numcodec("lzma", filters=[{"id": 3, "dist": 4}, {"id": 33, "preset": 1}])),
    Case(numcodec("lzma", format=2, preset=1)),
    Case(numcodec("lzma", format=3, filters=[{"id": 33, "preset": 1}])),
    Case(numcodec("delta"), INTEGERS + FLOATS),
    Case(numcodec("delta", dtype="<i4", astype="<i8"), ("<i4",)),
    Case(numcodec("fixedscaleoffset", offset=0, scale=4, astype="<i4"), FLOATS),
    Case(numcodec("quantize", digits=3), FLOATS),
    Case(numcodec("bitround", keepbits=18), FLOATS),
    Case(numcodec("astype", encode_dtype="<f8"), ("<i2", ">f4")),
    Case(numcodec("packbits"), ("?",)),
    Case(numcodec("categorize", labels=["zarr", "größer", "東京", "x" * 40], dtype="|O"), ("O",)),
    Case(numcodec("zfpy", mode=4, tolerance=1e-3), FLOATS, ((1,), (7,), (4, 6), (2, 3, 5)), 1e-3),
    Case(numcodec("pcodec", level=3), ("<i2", ">i4", "<u8", ">f2", "<f4")),
    Case(numcodec("vlen-utf8"), ("O",)),
    Case(numcodec("json2"), ("O", "<i4")),
    Case(numcodec("msgpack2"), ("O", "<i4")),
]
#: Classes that need nvCOMP's library, or a GPU: tests/gpu/codecs/test_nvcomp.py.
ON_GPUS = set(SPECS) - {NvcompDeflateCodec, NvcompSnappyCodec}


def with_defaults() -> Iterator[Case]:
    """Each codec that needs no configuration, unless there is such a case."""
    for name in codec_names():
        with suppress(MetadataError):  # a field has no default
            spec = parse_codec({"name": name})
            is_ours = type(spec).__module__.startswith("gzarr.") and type(spec) not in ON_GPUS
            if is_ours and spec not in [case.spec for case in CASES]:
                yield Case(spec)


CASES.extend([*with_defaults()])
each_case = pytest.mark.parametrize("case", CASES, ids=str)


def values_for(case: Case, dtype: Any, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    array = sample(dtype, shape, seed)
    if isinstance(case.spec, VLenBytesCodec):
        flat = np.array([text.encode() for text in array.reshape(-1)] + [None], object)[:-1]
        return flat.reshape(shape)
    return array


def first_run(case: Case) -> tuple[np.ndarray, CpuChain]:
    dtype = "O" if case.dtypes == ("S3",) else case.dtypes[0]
    array = values_for(case, dtype, case.shapes[-1])
    return array, chain_for([case.spec], array)


def native(array: np.ndarray) -> np.dtype:
    return array.dtype if array.dtype.kind == "T" else array.dtype.newbyteorder("=")


def same(got: np.ndarray, want: np.ndarray, tolerance: float) -> bool:
    if got.shape != want.shape or native(got) != native(want):
        return False
    if tolerance:
        return bool(np.all(np.abs(got.astype("f8") - want.astype("f8")) <= tolerance))
    return bool(np.all(got == want))


def in_v2(case: Case) -> bool:
    return case.spec.v2_id is not None or isinstance(case.spec, NumcodecsCodec | Crc32cCodec)


@each_case
def test_json_round_trips_byte_for_byte(case: Case) -> None:
    text = json.dumps(case.spec.to_json())
    again = parse_codec(json.loads(text))
    assert json.dumps(again.to_json()) == text
    assert again == case.spec
    assert hash(again) == hash(case.spec)
    assert pickle.loads(pickle.dumps(again)) == case.spec


@each_case
def test_resolved_spec_round_trips_and_leaves_nothing_open(case: Case) -> None:
    _, chain = first_run(case)
    for step in chain.steps:
        again = parse_codec(json.loads(json.dumps(step.spec.to_json())))
        assert again == step.spec
        assert step.spec.resolve(step.decoded) == (step.spec, step.encoded)


@each_case
def test_zarr_v2_configuration_round_trips(case: Case) -> None:
    if not in_v2(case):
        with pytest.raises(MetadataError, match="Zarr v2"):
            case.spec.to_v2()
        return
    config = json.loads(json.dumps(case.spec.to_v2()))
    assert from_v2(config).to_v2() == config


@pytest.mark.parametrize("case", [case for case in CASES if in_v2(case)], ids=str)
def test_a_zarr_v2_array_shows_the_codec(case: Case) -> None:
    array, chain = first_run(case)
    (config,) = (step.spec.to_v2() for step in chain.steps if step.spec.name == case.spec.name)
    codecs = {"compressor": config, "filters": None} if is_compressor(case.spec) else {"filters": [config]}
    document = {
        "zarr_format": 2,
        "shape": array.shape,
        "chunks": array.shape,
        "dtype": dtype_to_v2(parse_dtype(array.dtype)),
        "fill_value": None,
        "order": "C",
        "compressor": None,
        **codecs,
    }
    shown = gzarr.open_array(MemoryStore({".zarray": json.dumps(document).encode()}), mode="r", device="cpu")
    (codec,) = (*shown.compressors, *(shown.filters or ()))
    label = "Compressor" if is_compressor(case.spec) else "Filter [0]"
    assert (label, repr(codec)) in shown.info.items
    assert shown.compressor == (codec if is_compressor(case.spec) else None)
    shows = case.spec.compressor if isinstance(case.spec, N5Codec) else config
    assert (codec and codec.get_config()["id"]) == (shows and shows["id"])


@each_case
def test_decoding_inverts_encoding_for_batches_of_any_size(case: Case) -> None:
    for dtype, shape in product(case.dtypes if case.dtypes != ("S3",) else ("O",), case.shapes):
        arrays = [values_for(case, dtype, shape, seed) for seed in range(3)]
        chain = chain_for([case.spec], arrays[0])
        for batch in ([], arrays[:1], arrays):
            encoded = [bytes(item) for item in chain.encode(batch)]
            decoded = chain.decode(encoded)
            assert len(encoded) == len(decoded) == len(batch)
            for got, want in zip(decoded, batch, strict=True):
                assert same(got, want, case.tolerance), (dtype, shape)


@each_case
def test_every_step_keeps_to_the_representation_it_announced(case: Case) -> None:
    array, chain = first_run(case)
    items = [array]
    for step, codec in zip(chain.steps, chain.codecs, strict=True):
        (item,) = items = codec.encode(items)
        if isinstance(step.encoded, ArrayRepr):
            assert item.shape == step.encoded.shape
            assert native(item) == step.encoded.dtype.newbyteorder("=")
        else:
            assert memoryview(item).nbytes == len(item)
            assert step.encoded.nbytes in (None, len(item))


@each_case
def test_layout_of_the_input_does_not_matter(case: Case) -> None:
    array, chain = first_run(case)
    (want,) = chain.encode([array])
    (got,) = chain.encode([np.asfortranarray(array)])
    strided = np.empty((*array.shape, 2), array.dtype)
    strided[..., 0] = array
    strided.flags.writeable = False
    (also,) = chain.encode([strided[..., 0]])
    assert bytes(got) == bytes(want) == bytes(also)


@each_case
def test_any_buffer_of_bytes_decodes(case: Case) -> None:
    array, chain = first_run(case)
    data = bytes(chain.encode([array])[0])
    for buffer in (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
        assert same(chain.decode([buffer])[0], array, case.tolerance)


@each_case
def test_a_bad_item_is_named_by_its_index_and_codec(case: Case) -> None:
    array, chain = first_run(case)
    good = bytes(chain.encode([array])[0])
    with pytest.raises(CodecError) as caught:
        chain.decode([good, good, b"\x01"])
    assert caught.value.index == 2
    assert caught.value.codec in {step.spec.name for step in chain.steps}
    assert str(caught.value)


@each_case
def test_damaged_input_is_refused_or_decodes_to_the_right_size(case: Case) -> None:
    array, chain = first_run(case)
    data = bytes(chain.encode([array])[0])
    for cut in {0, 1, 3, 4, 5, 9, 15, 16, 17, len(data) // 2, len(data) - 5, len(data) - 1}:
        if 0 <= cut < len(data):
            decode_damaged(chain, data[:cut], array)
    rng = np.random.default_rng(1)
    for place in {*range(min(24, len(data))), *rng.integers(0, len(data), 24).tolist()}:
        for bit in (0, 7, int(rng.integers(1, 7))):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            decode_damaged(chain, bytes(damaged), array)
    for size in (0, 1, 4, 8, 16, 40, 200):
        decode_damaged(chain, rng.bytes(size), array)


def decode_damaged(chain: CpuChain, data: bytes, array: np.ndarray) -> None:
    try:
        (got,) = chain.decode([data])
    except CodecError as error:
        assert error.index == 0  # noqa: PT017
        return
    assert got.shape == array.shape
    assert native(got) == native(array)


@each_case
def test_unknown_fields_are_refused_by_name(case: Case) -> None:
    if isinstance(case.spec, NumcodecsCodec):
        spec = NumcodecsCodec(case.spec.id, case.spec.configuration() | {"nonsense": 1})
        array, _ = first_run(case)
        with pytest.raises(MetadataError, match="nonsense"):
            chain_for([spec], array)
        return
    configuration = case.spec.configuration() | {"nonsense": 1}
    with pytest.raises(MetadataError, match=f"{case.spec.name}.*nonsense"):
        type(case.spec).from_json(configuration)


@each_case
def test_what_a_codec_cannot_encode_is_refused_when_it_is_prepared(case: Case) -> None:
    wrong = ArrayRepr(np.dtype("i4"), (2,)) if case.spec.kind == "bytes_bytes" else BytesRepr(8)
    if isinstance(case.spec, NumcodecsCodec) and case.spec.kind != "array_bytes":
        case.spec.resolve(wrong)  # filters of Zarr v2 come in any order
        return
    with pytest.raises(MetadataError, match=case.spec.name):
        case.spec.resolve(wrong)


def test_every_spec_class_of_the_package_runs_this_contract() -> None:
    families = {NvcompSpec, *(cls for cls in CodecSpec.__subclasses__() if isabstract(cls))}
    classes = [*CodecSpec.__subclasses__(), *(cls for family in families for cls in family.__subclasses__())]
    known = {cls.__name__ for cls in classes if cls.__module__.startswith("gzarr.")}
    known -= {cls.__name__ for cls in families}
    # A shard computes nothing by itself: it is a layout, tested with the engine.
    on_gpus = {cls.__name__ for cls in ON_GPUS}
    assert known - {type(case.spec).__name__ for case in CASES} == {ShardingCodec.__name__} | on_gpus
