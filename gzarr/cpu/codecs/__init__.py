"""The table of codecs on the CPU: from the name of a spec to the factory of its batch functions."""

from __future__ import annotations

from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.nvcomp import BY_NAME as NVCOMP
from gzarr.codecs.registry import registered_factory
from gzarr.codecs.spec import CodecSpec, Factory
from gzarr.cpu.codecs.arrays import bytes_codec, cast_value_codec, scale_offset_codec, transpose_codec
from gzarr.cpu.codecs.compressors import blosc_codec, crc32c_codec, gzip_codec, zstd_codec
from gzarr.cpu.codecs.n5 import n5_codec
from gzarr.cpu.codecs.numcodecs import numcodecs_codec
from gzarr.cpu.codecs.nvcomp import nvcomp_batch_codec, nvcomp_codec
from gzarr.cpu.codecs.objects import vlen_codec
from gzarr.errors import UnknownCodecError

#: Name of a codec -> factory. Codecs of the numcodecs registry are not listed: `numcodecs_codec` serves them all.
TABLE: dict[str, Factory] = {
    "blosc": blosc_codec,
    "bytes": bytes_codec,
    "cast_value": cast_value_codec,
    "crc32c": crc32c_codec,
    "gzip": gzip_codec,
    "n5_wrapper": n5_codec,
    "numcodecs.nvcomp_batch": nvcomp_batch_codec,
    **dict.fromkeys(NVCOMP, nvcomp_codec),
    "scale_offset": scale_offset_codec,
    "transpose": transpose_codec,
    "vlen-bytes": vlen_codec,
    "vlen-utf8": vlen_codec,
    "zstd": zstd_codec,
}


def factory_for(spec: CodecSpec) -> Factory:
    """The factory of a codec: a registered one, else that in `TABLE`, else numcodecs'. Raises UnknownCodecError."""
    factory = registered_factory("cpu", spec.name) or TABLE.get(spec.name)
    if factory is None and isinstance(spec, NumcodecsCodec):
        factory = numcodecs_codec
    if factory is None:
        raise UnknownCodecError(
            f"codec {spec.name!r} has no functions on the CPU; give them to gzarr.register_codec(..., cpu=factory)"
        )
    return factory


__all__ = ["TABLE", "factory_for"]
