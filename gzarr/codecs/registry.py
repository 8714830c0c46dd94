"""From JSON and other libraries' codec objects to specs, and registration of third-party codecs."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, TypeVar, cast

import numcodecs.abc
import numcodecs.registry
from numcodecs.errors import UnknownCodecError as NumcodecsUnknownCodecError

from gzarr.codecs.n5 import N5Codec
from gzarr.codecs.numcodecs import KINDS, PREFIX, NumcodecsCodec
from gzarr.codecs.spec import CodecSpec, Factory
from gzarr.errors import MetadataError, MissingExtraError, UnknownCodecError

#: Spec classes by Zarr v3 name; `gzarr.codecs` registers its own.
_SPECS: dict[str, type[CodecSpec]] = {}

#: What third parties registered: backend -> name of the codec -> its entry in that backend's table.
_FACTORIES: dict[str, dict[str, Any]] = {"cpu": {}, "gpu": {}}

#: The argument that a number after a codec's name stands for, unless it is ``level``.
_LEVELS = {"blosc": "clevel", "lz4": "acceleration", "lzma": "preset"}

#: Names in drafts of the specification.
_ALIASES = {"endian": "bytes"}

_Class = TypeVar("_Class", bound=type)

#: Every name that was registered, again or for the first time.
_registered: list[str] = []


def register_codec(
    spec_class: _Class, *, name: str | None = None, cpu: Factory | None = None, gpu: Any = None
) -> _Class:
    """Register a codec, or replace one that is registered. Also a class decorator.

    Parameters
    ----------
    spec_class : type
        A subclass of `gzarr.codecs.CodecSpec`, or a numcodecs codec class, which goes into the numcodecs registry.
    name : str, optional
        Zarr v3 name of the codec; by default the class attribute ``name`` (of numcodecs classes: ``codec_id``).
    cpu : callable, optional
        Function of a `gzarr.codecs.Step` that returns the `gzarr.codecs.Codec` which runs on the CPU.
    gpu : gzarr.gpu.codecs.batch.DeviceCodec, optional
        Both directions on a GPU; without them the codec runs on the host.

    Returns
    -------
    type
        The class.

    Raises
    ------
    MetadataError
        If the class is not a codec class, or has no name.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import gzarr, numpy as np
    >>> @dataclass(frozen=True, slots=True)
    ... class Invert(gzarr.codecs.CodecSpec):
    ...     name = "example.invert"
    ...     kind = "bytes_bytes"
    ...
    ...     def resolve(self, decoded):
    ...         return self, gzarr.codecs.BytesRepr(decoded.nbytes)
    >>> def invert(step):
    ...     def run(chunks):
    ...         return [~np.frombuffer(chunk, np.uint8) for chunk in chunks]
    ...
    ...     return gzarr.codecs.Codec(decode=run, encode=run)
    >>> _ = gzarr.register_codec(Invert, cpu=invert)
    >>> array = gzarr.create_array(shape=3, dtype="i4", compressors=Invert())
    >>> array[:] = [1, 2, 3]
    >>> array[:].tolist()
    [1, 2, 3]
    """
    if issubclass(spec_class, numcodecs.abc.Codec):
        numcodecs.registry.register_codec(spec_class, codec_id=name)
        name = PREFIX + (name or str(cast("Any", spec_class).codec_id))
    elif issubclass(spec_class, CodecSpec):
        name = name or spec_class.name  # type: ignore[assignment]
        if not isinstance(name, str):
            raise MetadataError(f"codec class {spec_class.__name__} has no class attribute 'name'; pass name=...")
        _SPECS[name] = spec_class
        if spec_class.v2_id is not None:
            SPECS[spec_class.v2_id] = spec_class
    else:
        raise MetadataError(f"{spec_class!r} is neither a CodecSpec class nor a numcodecs codec class")
    for backend, entry in (("cpu", cpu), ("gpu", gpu)):
        if entry is not None:
            _FACTORIES[backend][name] = entry
    _registered.append(name)
    return spec_class


def registry_state() -> int:
    """A number that changes with every registration: specs parsed before may then be outdated."""
    return len(_registered)


def registered_factory(backend: str, name: str) -> Any:
    """What a third party registered for a codec on a backend ("cpu" or "gpu"); None if nothing."""
    return _FACTORIES[backend].get(name)


def collect_tables(package: str, paths: Iterable[str]) -> dict[str, Any]:
    """The table of a backend's codecs: the tables ``CODECS`` of the modules of a package, in one.

    package: its name. paths: its ``__path__``.
    """
    modules = [import_module(f"{package}.{module.name}") for module in iter_modules(list(paths))]
    return {name: entry for module in modules for name, entry in getattr(module, "CODECS", {}).items()}


def codec_names() -> tuple[str, ...]:
    """Zarr v3 names of the codecs that have a spec, sorted."""
    return tuple(sorted(_SPECS))


def parse_codec(value: Any) -> CodecSpec:
    """Make a spec of whatever names a codec.

    Parameters
    ----------
    value : object
        A spec; Zarr v3 metadata, as an object or a bare name; Zarr v2 metadata (``{"id": ...}``); a codec object of
        numcodecs or zarr-python; or the name of a numcodecs compressor, with its level after a colon: ``"zstd:3"``,
        ``"blosc-lz4"``.

    Returns
    -------
    CodecSpec
        The spec.

    Raises
    ------
    UnknownCodecError
        If the codec is not registered.
    MetadataError
        If the value is malformed.

    Examples
    --------
    >>> from gzarr.codecs import parse_codec
    >>> parse_codec({"name": "gzip", "configuration": {"level": 1}})
    GzipCodec(level=1)
    >>> parse_codec({"id": "zstd", "level": 3})
    ZstdCodec(level=3, checksum=False)
    >>> parse_codec("blosc-lz4:9")
    BloscCodec(cname='lz4', clevel=9, shuffle='shuffle', typesize=None, blocksize=0)
    """
    if isinstance(value, CodecSpec):
        return value
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, Mapping):
        return _from_json(value)
    if hasattr(value, "get_config") and hasattr(value, "codec_id"):
        return from_v2(value.get_config())
    if hasattr(value, "to_dict"):
        return _from_zarr(value)
    raise MetadataError(
        f"{value!r} is not a codec; give a codec of gzarr.codecs, a numcodecs codec, or a JSON object with a name"
    )


def _from_json(value: Mapping[str, Any]) -> CodecSpec:
    if "name" not in value and "id" in value:
        return from_v2(value)
    name = value.get("name")
    if not isinstance(name, str):
        raise MetadataError(f"a codec must have a 'name' that is a string, got {dict(value)!r}")
    for field in value:
        if field not in ("name", "configuration", "must_understand"):
            raise MetadataError(f"codec {name!r}: unknown field {field!r} beside 'name' and 'configuration'")
    configuration = value.get("configuration")
    if configuration is None:
        configuration = {}
    if not isinstance(configuration, Mapping):
        raise MetadataError(f"codec {name!r}: configuration must be an object, got {configuration!r}")
    return _from_name(name, configuration)


def _from_text(text: str) -> CodecSpec:
    """The codec of a Zarr v3 name, or of a numcodecs name with a level: "zstd", "zstd:3", "blosc-lz4:5"."""
    name, colon, level = text.partition(":")
    codec_id, _, cname = name.partition("-") if name.startswith("blosc-") else (name, "", "")
    if name in _SPECS and not colon:
        return _from_name(name, {})
    if codec_id not in numcodecs.registry.codec_registry and codec_id not in numcodecs.registry.entries:
        return _from_name(text, {})
    given: dict[str, Any] = {"cname": cname} if cname else {}
    try:
        given |= {_LEVELS.get(codec_id, "level"): int(level)} if colon else {}
        return from_v2(numcodecs.registry.get_codec({"id": codec_id, **given}).get_config())
    except (ValueError, TypeError) as error:
        why = str(error).replace("''", "'")
        raise MetadataError(f"codec {text!r}: {why}; use for instance 'zstd:3', 'gzip', 'lz4', 'blosc-lz4'") from error


def _from_name(name: str, configuration: Mapping[str, Any]) -> CodecSpec:
    spec_class = _SPECS.get(_ALIASES.get(name, name))
    if spec_class is not None:
        return spec_class.from_json(configuration)
    if name.startswith(PREFIX):
        return NumcodecsCodec(name.removeprefix(PREFIX), configuration)  # type: ignore[arg-type]
    from difflib import get_close_matches

    close = get_close_matches(name, codec_names(), 1)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    raise UnknownCodecError(
        f"codec {name!r} is not known{meant}; known codecs: {', '.join(codec_names())} and {PREFIX}*. "
        "Register its spec with gzarr.register_codec"
    )


def _from_zarr(codec: Any) -> CodecSpec:
    """The spec of a codec object of zarr-python, whose ``_tunable_attrs`` names the fields that were left open."""
    document = dict(codec.to_dict())
    open_fields = getattr(codec, "_tunable_attrs", ())
    if open_fields and isinstance(document.get("configuration"), Mapping):
        fields = document["configuration"].items()
        document["configuration"] = {field: value for field, value in fields if field not in open_fields}
    return _from_json(document)


# -- Zarr v2 and numcodecs ---------------------------------------------------------------------------------------------

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


def standard(spec: CodecSpec) -> CodecSpec:
    """The codec of the v3 specification that numcodecs' crc32c is with its checksum at the end; others unchanged."""
    is_same = spec.name == "numcodecs.crc32c" and spec.to_v2().items() <= {"id": "crc32c", "location": "end"}.items()
    return from_v2({"id": "crc32c"}) if is_same else spec


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
