"""Chains: order, completion, and what each step sees."""

import numpy as np
import pytest

from gzarr.codecs import (
    ArrayRepr,
    BloscCodec,
    BytesCodec,
    BytesRepr,
    Crc32cCodec,
    GzipCodec,
    NumcodecsCodec,
    TransposeCodec,
    VLenUTF8Codec,
    ZstdCodec,
)
from gzarr.codecs.chain import complete, prepare
from gzarr.errors import CodecError, MetadataError
from tests.codecs.chains import chain_for, sample

CHUNK = ArrayRepr(np.dtype(">i4"), (2, 3), np.int32(5))


@pytest.mark.parametrize(
    ("specs", "completed"),
    [
        ([], [BytesCodec("little")]),
        ([GzipCodec()], [BytesCodec("little"), GzipCodec()]),
        ([BloscCodec()], [BytesCodec("little"), BloscCodec(shuffle="shuffle", typesize=4)]),
        ([TransposeCodec("F"), Crc32cCodec()], [TransposeCodec((1, 0)), BytesCodec("little"), Crc32cCodec()]),
        ([BytesCodec("big"), ZstdCodec()], [BytesCodec("big"), ZstdCodec()]),
        ([TransposeCodec((0, 1))], [TransposeCodec((0, 1)), BytesCodec("little")]),
        ([NumcodecsCodec("somebodys")], [NumcodecsCodec("somebodys")]),
    ],
)
def test_what_is_missing_is_inserted(specs, completed) -> None:
    assert list(complete(specs, CHUNK)) == completed


def test_the_serializer_is_the_callers_choice() -> None:
    assert complete([GzipCodec()], CHUNK, default_serializer=BytesCodec(None)) == (BytesCodec("big"), GzipCodec())
    objects = ArrayRepr(np.dtype("O"), (2,))
    assert complete([], objects, default_serializer=VLenUTF8Codec()) == (VLenUTF8Codec(),)
    with pytest.raises(MetadataError, match="object codec"):
        complete([GzipCodec()], objects)
    assert complete([], ArrayRepr(np.dtypes.StringDType(), (2,))) == (VLenUTF8Codec(),)


def test_steps_chain_their_representations() -> None:
    steps = prepare([TransposeCodec("F"), BytesCodec("little"), Crc32cCodec(), GzipCodec()], CHUNK)
    assert [step.decoded for step in steps[1:]] == [step.encoded for step in steps[:-1]]
    assert steps[0].decoded == CHUNK
    assert steps[0].encoded == ArrayRepr(np.dtype(">i4"), (3, 2), np.int32(5))
    assert [step.encoded for step in steps[1:]] == [BytesRepr(24, 4), BytesRepr(28), BytesRepr()]


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ([], "make an array"),
        ([TransposeCodec("F")], "make an array"),
        ([GzipCodec()], "put a 'bytes' codec before it"),
        ([GzipCodec(), BytesCodec()], "gzip"),
        ([BytesCodec(), BytesCodec()], "bytes"),
        ([BytesCodec(), TransposeCodec("F")], "transpose"),
        ([BytesCodec(), NumcodecsCodec("zfpy")], "zfpy"),
    ],
)
def test_chains_in_a_wrong_order_are_refused(specs, words: str) -> None:
    with pytest.raises(MetadataError, match=words):
        prepare(specs, CHUNK)


def test_an_error_in_the_middle_of_a_chain_names_its_codec() -> None:
    array = sample("<i4", (5,))
    chain = chain_for([Crc32cCodec(), GzipCodec()], array)
    good = bytes(chain.encode([array])[0])
    inner = chain.codecs[-1].decode([good])[0]
    bad = chain.codecs[-1].encode([inner[:-1] + b"\xff"])[0]
    with pytest.raises(CodecError, match="stored checksum") as caught:
        chain.decode([good, bad])
    assert (caught.value.index, caught.value.codec) == (1, "crc32c")


def test_an_error_of_encoding_names_its_item() -> None:
    array = sample("<i4", (5,))
    chain = chain_for([NumcodecsCodec("lz4")], array)
    with pytest.raises(CodecError, match=r"expected a chunk of shape \(5,\), got \(6,\)") as caught:
        chain.encode([array, sample("<i4", (6,))])
    assert (caught.value.index, caught.value.codec) == (1, "bytes")
