"""Codecs of the numcodecs registry: ``numcodecs.<id>`` in Zarr v3, ``{"id": ...}`` in Zarr v2.

A spec holds the id and the configuration and never asks the registry, so metadata that names a missing codec can still
be read and copied. This module knows what the codecs of numcodecs itself do to a chunk's dtype and shape. Every other
codec is of kind "any": it gets an array if the chunk still is one, and makes bytes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from gzarr.codecs.spec import ArrayRepr, BytesRepr, CodecSpec, Kind, Repr, need_array
from gzarr.errors import MetadataError

PREFIX = "numcodecs."

ARRAY_ARRAY = ("delta", "fixedscaleoffset", "quantize", "bitround", "astype", "packbits", "categorize")
ARRAY_BYTES = ("zfpy", "pcodec", "vlen-utf8", "vlen-bytes", "vlen-array", "json2", "msgpack2", "pickle")
#: Codecs that add four bytes.
CHECKSUMS = ("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3")
BYTES_BYTES = ("blosc", "zstd", "gzip", "bz2", "lzma", "lz4", "zlib", "shuffle", "base64", "nvcomp_batch", *CHECKSUMS)

KINDS: dict[str, Kind] = {
    **dict.fromkeys(ARRAY_ARRAY, "array_array"),
    **dict.fromkeys(ARRAY_BYTES, "array_bytes"),
    **dict.fromkeys(BYTES_BYTES, "bytes_bytes"),
}

#: Fields with the dtypes of what goes into an array-to-array codec and of what comes out.
DTYPE_FIELDS = {
    **dict.fromkeys(("delta", "fixedscaleoffset", "quantize", "categorize"), ("dtype", "astype")),
    "astype": ("decode_dtype", "encode_dtype"),
}

#: What zfpy and pcodec can encode.
DTYPES = {
    "zfpy": ("int32", "int64", "float32", "float64"),
    "pcodec": ("uint16", "uint32", "uint64", "int16", "int32", "int64", "float16", "float32", "float64"),
}


def _plain(value: Any) -> Any:
    """JSON for the values that numcodecs configurations hold besides JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.dtype):
        return value.str
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


@dataclass(frozen=True, slots=True, repr=False)
class NumcodecsCodec(CodecSpec):
    """Use a codec of the numcodecs registry.

    Parameters
    ----------
    id : str
        Id of the codec in the registry, such as "delta".
    config : mapping or str, optional
        Configuration without the id, as an object or as JSON text. Its order is kept, but does not matter to equality.

    Raises
    ------
    MetadataError
        If the id is empty, or the configuration is not JSON.

    Notes
    -----
    The name is ``numcodecs.<id>`` in Zarr v3 and ``{"id": "<id>", ...}`` in Zarr v2. Runs on the CPU.
    Compressors, checksums and most filters also run on a GPU.

    Source: Zarr v3 extensions, "numcodecs codecs".

    Examples
    --------
    >>> import gzarr
    >>> delta = gzarr.codecs.NumcodecsCodec("delta")
    >>> gzarr.create_array(shape=1000, dtype="i4", filters=delta).filters
    (NumcodecsCodec(id='delta', config={'dtype': '<i4'}),)
    """

    id: str
    config: str = field(default="{}", compare=False)
    _canonical: str = field(default="", init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not self.id:
            raise MetadataError(f"a numcodecs codec needs an id, got {self.id!r}")
        config: Any = self.config
        try:
            if isinstance(config, str):
                config = json.loads(config)
            if not isinstance(config, Mapping):
                raise TypeError(f"it is not an object but {config!r}")  # noqa: TRY301
            config = dict(config)
            if config.pop("id", self.id) != self.id:
                raise ValueError(f"its id is {self.config['id']!r}")  # type: ignore[index]  # noqa: TRY301
            object.__setattr__(self, "config", json.dumps(config, default=_plain))
            object.__setattr__(self, "_canonical", json.dumps(config, default=_plain, sort_keys=True))
        except (TypeError, ValueError) as error:
            raise MetadataError(f"codec {PREFIX + self.id!r}: the configuration is malformed: {error}") from error

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, config={self.configuration()!r})"

    @property
    def name(self) -> str:
        """``numcodecs.<id>``."""
        return PREFIX + self.id

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """What the codec takes and gives; "any" for codecs that numcodecs itself does not have."""
        return KINDS.get(self.id, "any")

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Make a spec from a configuration that contains its ``id``. See `CodecSpec.from_json`."""
        return cls(configuration.get("id", ""), configuration)  # type: ignore[arg-type]

    def configuration(self) -> dict[str, Any]:
        """Give the configuration without the id. See `CodecSpec.configuration`."""
        return json.loads(self.config)

    def to_json(self) -> dict[str, Any]:
        """Give the codec as Zarr v3 metadata, with ``configuration`` even if empty: zarr-python requires it."""
        return {"name": self.name, "configuration": self.configuration()}

    def to_v2(self) -> dict[str, Any]:
        """Give the id and the configuration. See `CodecSpec.to_v2`."""
        return {"id": self.id, **self.configuration()}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Fill in missing dtypes and sizes of elements. See `CodecSpec.resolve`."""
        kind = self.kind
        if kind == "any":
            return self, BytesRepr()
        if kind == "bytes_bytes":
            return self._resolve_bytes(decoded)
        if kind == "array_bytes":
            self._check_array(need_array(self.name, decoded))
            return self, BytesRepr()
        if isinstance(decoded, BytesRepr):
            return self, BytesRepr()  # filters of Zarr v2 in an unusual order
        return self._resolve_array(decoded)

    def _with(self, **fields: Any) -> Self:
        return type(self)(self.id, self.configuration() | fields)  # type: ignore[arg-type]

    def _resolve_bytes(self, decoded: Repr) -> tuple[Self, Repr]:
        size = decoded.nbytes
        if self.id in CHECKSUMS:
            return self, BytesRepr(None if size is None else size + 4)
        if self.id == "base64":
            return self, BytesRepr(None if size is None else (size + 2) // 3 * 4)
        if self.id == "shuffle":
            itemsize = decoded.itemsize if isinstance(decoded, BytesRepr) else decoded.dtype.itemsize
            missing = self.configuration().get("elementsize") is None
            return (self._with(elementsize=itemsize) if missing else self), BytesRepr(size)
        return self, BytesRepr()

    def _check_array(self, array: ArrayRepr) -> None:
        names = DTYPES.get(self.id)
        if names is not None and array.dtype.newbyteorder("=").name not in names:
            raise MetadataError(f"codec {self.name!r} encodes {', '.join(names)}, not data type {array.dtype}")
        if self.id == "zfpy" and not 1 <= len(array.shape) <= 4:
            raise MetadataError(f"codec {self.name!r} encodes 1 to 4 dimensions, got shape {array.shape}")

    def _resolve_array(self, array: ArrayRepr) -> tuple[Self, Repr]:
        if self.id == "packbits":
            if array.dtype != np.bool_:
                raise MetadataError(f"codec {self.name!r} encodes booleans, not data type {array.dtype}")
            # one byte for the number of padding bits, then eight elements a byte
            return self, ArrayRepr(np.dtype("u1"), (1 + (array.nelements + 7) // 8,))
        config = self.configuration()
        spec = self
        dtype = array.dtype
        if self.id in DTYPE_FIELDS:
            own, other = DTYPE_FIELDS[self.id]
            if config.get(own) is None:
                spec = self._with(**{own: array.dtype.str})
                config = spec.configuration()
            default = "|u1" if self.id == "categorize" else config[own]
            dtype = self._dtype(other, config.get(other) or default)
        fill = array.fill_value if dtype == array.dtype else None
        return spec, ArrayRepr(dtype, array.shape, fill)

    def _dtype(self, name: str, value: Any) -> np.dtype[Any]:
        try:
            dtype: np.dtype[Any] = np.dtype(value)
        except TypeError as error:
            raise MetadataError(f"codec {self.name!r}: {name} {value!r} is not a NumPy data type") from error
        return dtype


class TrustedPickleCodec(NumcodecsCodec):
    """Pickles that the caller allows to be loaded."""

    __slots__ = ()


def trusted(spec: CodecSpec) -> CodecSpec:
    """The codec that loads pickles instead of the one that refuses them; every other codec unchanged."""
    if isinstance(spec, NumcodecsCodec) and spec.id == "pickle":
        return TrustedPickleCodec(spec.id, spec.config)
    return spec


def __getattr__(name: str) -> Any:
    """Return a codec of numcodecs: ``from gzarr.codecs.numcodecs import Delta``, as from zarr-python's module."""
    import numcodecs  # those who read its metadata only need none of it

    found = getattr(numcodecs, name, None)
    if name.startswith("_") or not isinstance(found, type):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found
