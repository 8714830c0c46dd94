"""Specs to and from codecs of Zarr v2 metadata (numcodecs configurations) and numcodecs objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numcodecs
import numcodecs.registry
from numcodecs.errors import UnknownCodecError as NumcodecsUnknownCodecError

from gzarr.codecs.blosc import AUTO_SHUFFLE, SHUFFLES, BloscCodec
from gzarr.codecs.crc32c import Crc32cCodec
from gzarr.codecs.gzip import GzipCodec
from gzarr.codecs.n5 import N5Codec
from gzarr.codecs.numcodecs import NumcodecsCodec
from gzarr.codecs.nvcomp import BY_NAME as NVCOMP
from gzarr.codecs.nvcomp import NvcompCodec
from gzarr.codecs.spec import CodecSpec
from gzarr.codecs.vlen import VLenBytesCodec, VLenUTF8Codec
from gzarr.codecs.zstd import ZstdCodec
from gzarr.errors import MetadataError, MissingExtraError, UnknownCodecError

#: Prefix of the ids of image codecs, which the package imagecodecs has.
IMAGES = "imagecodecs_"
#: numcodecs codecs that need another package, and the extra of gzarr that installs it.
EXTRAS = {"zfpy": "zfp", "pcodec": "pcodec", "msgpack2": "msgpack"}


def from_v2(config: Mapping[str, Any]) -> CodecSpec:
    """The spec of a codec in Zarr v2 metadata.

    ``config`` is a numcodecs configuration, ``{"id": ..., ...}``. The result is gzarr's own spec for nvcomp.*, and for
    blosc, zstd, gzip, vlen-utf8 and vlen-bytes unless the configuration has a field that the spec lacks; else it is a
    `NumcodecsCodec` with the same configuration. Raises MetadataError if there is no id or a field has a bad value.
    """
    if not isinstance(config, Mapping) or not isinstance(config.get("id"), str):
        raise MetadataError(f"a Zarr v2 codec must be an object with an 'id', got {config!r}")
    fields: dict[str, Any] = {name: value for name, value in config.items() if name != "id"}
    defaults: dict[str, Any] = {"cname": "lz4", "shuffle": 1}  # numcodecs' own
    match config["id"]:
        case "blosc" if fields.keys() <= {"cname", "clevel", "shuffle", "blocksize"}:
            return BloscCodec(**(defaults | fields))
        case "zstd" if fields.keys() <= {"level", "checksum"}:
            return ZstdCodec(**fields)
        case "gzip" if fields.keys() <= {"level"}:
            return GzipCodec(**{"level": 1} | fields)
        case "vlen-utf8" if not fields:
            return VLenUTF8Codec()
        case "vlen-bytes" if not fields:
            return VLenBytesCodec()
        case str(name) if name in NVCOMP:
            return NVCOMP[name].from_json(fields)
        case "n5_wrapper":
            return N5Codec.from_json(fields)
    return NumcodecsCodec(config["id"], fields)  # type: ignore[arg-type]


def to_v2(spec: CodecSpec) -> dict[str, Any]:
    """The numcodecs configuration of a spec, as zarr 2 writes it. Raises MetadataError if Zarr v2 has no such codec."""
    match spec:
        case NumcodecsCodec():
            return {"id": spec.id} | spec.configuration()
        case BloscCodec():
            shuffle = AUTO_SHUFFLE if spec.shuffle is None else SHUFFLES.index(spec.shuffle)
            return {
                "id": "blosc",
                "cname": spec.cname,
                "clevel": spec.clevel,
                "shuffle": shuffle,
                "blocksize": spec.blocksize,
            }
        case ZstdCodec(checksum=False):  # readers older than the field refuse it
            return {"id": "zstd", "level": spec.level}
        case ZstdCodec() | GzipCodec() | N5Codec() | VLenUTF8Codec() | VLenBytesCodec() | Crc32cCodec() | NvcompCodec():
            return {"id": spec.name} | spec.configuration()
    raise MetadataError(f"codec {spec.name!r} cannot be stored in Zarr v2; use zarr_format=3")


def from_numcodecs(codec: Any) -> CodecSpec:
    """The spec of a numcodecs object. Raises MetadataError if its configuration cannot be stored."""
    return from_v2(codec.get_config())


def to_numcodecs(spec: CodecSpec) -> Any:
    """The numcodecs object of a spec.

    Raises UnknownCodecError if numcodecs has no such codec, MissingExtraError if an extra of gzarr would provide it,
    and MetadataError if numcodecs refuses the configuration.
    """
    if isinstance(spec, N5Codec):  # numcodecs has no codec for blocks: users mean the compressor in them
        return None if spec.compressor is None else to_numcodecs(from_v2(spec.compressor))
    config = to_v2(spec)
    codec_id = config["id"]
    if codec_id.startswith(IMAGES):
        _register_image_codec(codec_id)
    try:
        return numcodecs.registry.get_codec(config)
    except NumcodecsUnknownCodecError as error:
        if codec_id in EXTRAS:
            extra = EXTRAS[codec_id]
            raise MissingExtraError(
                f"codec {codec_id!r} needs a package that is not installed: pip install 'gzarr[{extra}]'"
            ) from error
        raise UnknownCodecError(f"codec {codec_id!r} is not in the numcodecs registry; {_remedy(codec_id)}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise MetadataError(f"codec {codec_id!r} refuses its configuration {config}: {error}") from error


def _register_image_codec(codec_id: str) -> None:
    """Register a codec of imagecodecs unless it is registered already. Raises MissingExtraError."""
    if codec_id in numcodecs.registry.codec_registry:
        return
    try:
        import imagecodecs.numcodecs
    except ImportError as error:
        raise MissingExtraError(
            f"codec {codec_id!r} needs a package that is not installed: pip install 'gzarr[images]', or register a"
            " codec of that id with gzarr.register_codec"
        ) from error
    imagecodecs.numcodecs.register_codecs((codec_id,), verbose=False)


def _remedy(codec_id: str) -> str:
    if codec_id.startswith(IMAGES):
        return "the installed imagecodecs does not have it: pip install --upgrade 'gzarr[images]'"
    return "register the class that has it with numcodecs.register_codec or gzarr.register_codec"
