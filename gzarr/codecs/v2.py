"""Specs to and from codecs of Zarr v2 metadata (numcodecs configurations) and numcodecs objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, cast

import numcodecs.abc
import numcodecs.registry
from numcodecs.errors import UnknownCodecError as NumcodecsUnknownCodecError

from gzarr.codecs.n5 import N5Codec
from gzarr.codecs.numcodecs import KINDS, NumcodecsCodec
from gzarr.codecs.spec import CodecSpec
from gzarr.errors import MetadataError, MissingExtraError, UnknownCodecError

#: Spec classes by Zarr v2 id; `gzarr.register_codec` fills it.
SPECS: dict[str, type[CodecSpec]] = {}
#: Prefix of the ids of image codecs, which the package imagecodecs has.
IMAGES = "imagecodecs_"
#: numcodecs codecs that need another package, and the extra of gzarr that installs it.
EXTRAS = {"zfpy": "zfp", "pcodec": "pcodec", "msgpack2": "msgpack"}


def from_v2(config: Mapping[str, Any]) -> CodecSpec:
    """The spec of a codec in Zarr v2 metadata.

    ``config`` is a numcodecs configuration, ``{"id": ..., ...}``. The result is the spec registered with this
    id. If there is none, or numcodecs has the codec and the configuration has a field that the spec lacks, it is a
    `NumcodecsCodec` with the same configuration. Raises MetadataError if there is no id or a field has a bad value.
    """
    if not isinstance(config, Mapping) or not isinstance(config.get("id"), str):
        raise MetadataError(f"a Zarr v2 codec must be an object with an 'id', got {config!r}")
    fields = {name: value for name, value in config.items() if name != "id"}
    spec_class = SPECS.get(config["id"])
    if spec_class is None or (config["id"] in KINDS and not fields.keys() <= set(_fields(spec_class))):
        return NumcodecsCodec(config["id"], fields)  # type: ignore[arg-type]
    return spec_class.from_json({**spec_class.v2_fields, **fields})


def _fields(spec_class: type[CodecSpec]) -> Collection[str]:
    return spec_class.v2_fields or [field.name for field in dataclasses.fields(cast("Any", spec_class))]


def to_numcodecs(spec: CodecSpec) -> Any:
    """The numcodecs object of a spec; a `ConfigOnly` for a codec of gzarr that numcodecs does not have.

    Raises UnknownCodecError if neither has the codec, MissingExtraError if an extra of gzarr would provide it, and
    MetadataError if numcodecs refuses the configuration.
    """
    if isinstance(spec, N5Codec):  # numcodecs has no codec for blocks: users mean the compressor in them
        return None if spec.compressor is None else to_numcodecs(from_v2(spec.compressor))
    config = spec.to_v2()
    codec_id = config["id"]
    if codec_id.startswith(IMAGES):
        _register_image_codec(codec_id)
    try:
        return numcodecs.registry.get_codec(config)
    except NumcodecsUnknownCodecError as error:
        if not isinstance(spec, NumcodecsCodec):
            return ConfigOnly(spec)
        if codec_id in EXTRAS:
            raise MissingExtraError(
                f"codec {codec_id!r} needs a package that is not installed: pip install 'gzarr[{EXTRAS[codec_id]}]'"
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


class ConfigOnly(numcodecs.abc.Codec):  # type: ignore[misc]
    """A codec as ``array.compressor`` of a v2 array shows it, where numcodecs has no class that could run it."""

    def __init__(self, spec: CodecSpec) -> None:
        self.spec = spec
        self.codec_id = spec.v2_id

    def __repr__(self) -> str:
        return repr(self.spec)

    def get_config(self) -> dict[str, Any]:
        """The numcodecs configuration."""
        return self.spec.to_v2()

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Refuse."""
        raise UnknownCodecError(f"{self.codec_id}: only arrays opened with gzarr encode and decode it")

    encode = decode
