"""Codecs: what each is called, how it is configured, and what it does to a chunk's dtype, shape and size.

Pass them to ``filters=``, ``serializer=`` and ``compressors=`` of `gzarr.create_array`; `register_codec` adds others.
"""

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.cast_value import CastValueCodec
from gzarr.codecs.compressors import BloscCodec, Crc32cCodec, GzipCodec, ZstdCodec
from gzarr.codecs.enums import BloscCname, BloscShuffle, Endian, ShardingCodecIndexLocation, SubchunkWriteOrder
from gzarr.codecs.n5 import N5Codec
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.nvcomp import (
    NvcompAnsCodec,
    NvcompBitcompCodec,
    NvcompCascadedCodec,
    NvcompDeflateCodec,
    NvcompGdeflateCodec,
    NvcompSnappyCodec,
)
from gzarr.codecs.registry import parse_codec, register_codec
from gzarr.codecs.scale_offset import ScaleOffsetCodec
from gzarr.codecs.sharding import ShardingCodec
from gzarr.codecs.spec import ArrayRepr, BytesRepr, Codec, CodecSpec, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.codecs.vlen import VLenBytesCodec, VLenUTF8Codec

#: zarr-python's names of two codecs.
CastValue = CastValueCodec
ScaleOffset = ScaleOffsetCodec

for _spec_class in list(globals().values()):
    if isinstance(_spec_class, type) and issubclass(_spec_class, CodecSpec) and isinstance(_spec_class.name, str):
        register_codec(_spec_class)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "ArrayRepr",
    "BloscCname",
    "BloscCodec",
    "BloscShuffle",
    "BytesCodec",
    "BytesRepr",
    "CastValue",
    "CastValueCodec",
    "Codec",
    "CodecSpec",
    "Crc32cCodec",
    "Endian",
    "GzipCodec",
    "N5Codec",
    "NumcodecsCodec",
    "NvcompAnsCodec",
    "NvcompBitcompCodec",
    "NvcompCascadedCodec",
    "NvcompDeflateCodec",
    "NvcompGdeflateCodec",
    "NvcompSnappyCodec",
    "ScaleOffset",
    "ScaleOffsetCodec",
    "ShardingCodec",
    "ShardingCodecIndexLocation",
    "Step",
    "SubchunkWriteOrder",
    "TransposeCodec",
    "VLenBytesCodec",
    "VLenUTF8Codec",
    "ZstdCodec",
    "parse_codec",
    "register_codec",
]
