"""Chains: order, completion, and what each step sees."""

import numpy as np
import pytest

from gzarr import codecs
from gzarr.codecs.chain import complete, prepare
from gzarr.errors import CodecError, MetadataError
from tests.codecs.chains import chain_for, sample

CHUNK = codecs.ArrayRepr(np.dtype(">i4"), (2, 3), np.int32(5))


@pytest.mark.parametrize(
    ("specs", "completed"),
    [
        ([], [codecs.BytesCodec("little")]),
        ([codecs.GzipCodec()], [codecs.BytesCodec("little"), codecs.GzipCodec()]),
        ([codecs.BloscCodec()], [codecs.BytesCodec("little"), codecs.BloscCodec(shuffle="shuffle", typesize=4)]),
        (
            [codecs.TransposeCodec("F"), codecs.Crc32cCodec()],
            [codecs.TransposeCodec((1, 0)), codecs.BytesCodec("little"), codecs.Crc32cCodec()],
        ),
        ([codecs.BytesCodec("big"), codecs.ZstdCodec()], [codecs.BytesCodec("big"), codecs.ZstdCodec()]),
        ([codecs.TransposeCodec((0, 1))], [codecs.TransposeCodec((0, 1)), codecs.BytesCodec("little")]),
        ([codecs.NumcodecsCodec("somebodys")], [codecs.NumcodecsCodec("somebodys")]),
    ],
)
def test_what_is_missing_is_inserted(specs, completed) -> None:
    assert list(complete(specs, CHUNK)) == completed


def test_the_serializer_is_the_callers_choice() -> None:
    assert complete([codecs.GzipCodec()], CHUNK, default_serializer=codecs.BytesCodec(None)) == (
        codecs.BytesCodec("big"),
        codecs.GzipCodec(),
    )
    objects = codecs.ArrayRepr(np.dtype("O"), (2,))
    assert complete([], objects, default_serializer=codecs.VLenUTF8Codec()) == (codecs.VLenUTF8Codec(),)
    with pytest.raises(MetadataError, match="object codec"):
        complete([codecs.GzipCodec()], objects)
    assert complete([], codecs.ArrayRepr(np.dtypes.StringDType(), (2,))) == (codecs.VLenUTF8Codec(),)


def test_steps_chain_their_representations() -> None:
    steps = prepare(
        [codecs.TransposeCodec("F"), codecs.BytesCodec("little"), codecs.Crc32cCodec(), codecs.GzipCodec()], CHUNK
    )
    assert [step.decoded for step in steps[1:]] == [step.encoded for step in steps[:-1]]
    assert steps[0].decoded == CHUNK
    assert steps[0].encoded == codecs.ArrayRepr(np.dtype(">i4"), (3, 2), np.int32(5))
    assert [step.encoded for step in steps[1:]] == [codecs.BytesRepr(24, 4), codecs.BytesRepr(28), codecs.BytesRepr()]


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        ([], "make an array"),
        ([codecs.TransposeCodec("F")], "make an array"),
        ([codecs.GzipCodec()], "put a 'bytes' codec before it"),
        ([codecs.GzipCodec(), codecs.BytesCodec()], "gzip"),
        ([codecs.BytesCodec(), codecs.BytesCodec()], "bytes"),
        ([codecs.BytesCodec(), codecs.TransposeCodec("F")], "transpose"),
        ([codecs.BytesCodec(), codecs.NumcodecsCodec("zfpy")], "zfpy"),
    ],
)
def test_chains_in_a_wrong_order_are_refused(specs, words: str) -> None:
    with pytest.raises(MetadataError, match=words):
        prepare(specs, CHUNK)


def test_an_error_in_the_middle_of_a_chain_names_its_codec() -> None:
    array = sample("<i4", (5,))
    chain = chain_for([codecs.Crc32cCodec(), codecs.GzipCodec()], array)
    good = bytes(chain.encode([array])[0])
    inner = chain.codecs[-1].decode([good])[0]
    bad = chain.codecs[-1].encode([inner[:-1] + b"\xff"])[0]
    with pytest.raises(CodecError, match="stored checksum") as caught:
        chain.decode([good, bad])
    assert (caught.value.index, caught.value.codec) == (1, "crc32c")


def test_an_error_of_encoding_names_its_item() -> None:
    array = sample("<i4", (5,))
    chain = chain_for([codecs.NumcodecsCodec("lz4")], array)
    with pytest.raises(CodecError, match=r"expected a chunk of shape \(5,\), got \(6,\)") as caught:
        chain.encode([array, sample("<i4", (6,))])
    assert (caught.value.index, caught.value.codec) == (1, "bytes")
