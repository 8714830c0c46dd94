"""nvCOMP's own formats as codecs: ``nvcomp.deflate``, ``gdeflate``, ``snappy``, ``bitcomp``, ``ans``, ``cascaded``.

On disk a chunk is one bare stream, exactly as nvCOMP's batched C functions (``nvcompBatched<X>CompressAsync``) write
it for one chunk of their batch: no header, no size, no padding, no checksum. The decoded size is not stored: it is the
size of the chunk, which the metadata says, so these codecs must follow codecs that give a fixed number of bytes. Of
formats that others define too, that means: ``deflate`` is a raw Deflate stream (RFC 1951, no zlib or gzip envelope);
``snappy`` is Snappy's raw format (not its framing format); ``gdeflate`` is one GDeflate page of at most 65,536 decoded
bytes. ``ans``, ``bitcomp`` and ``cascaded`` are known to nVidia alone.

The name in Zarr v3 is ``nvcomp.<algorithm>``; Zarr v2 has ``{"id": "nvcomp.<algorithm>", ...}``. KvikIO (before 25.10)
wrote the same bare streams in Zarr v2 as ``{"id": "nvcomp_batch", "algorithm": ...}``; these are read and written as
they are, with ``lz4`` (behind its size, four bytes little-endian) and ``zstd`` (plain frames) besides.

nvCOMP takes no checksum of its own formats and promises little for damaged streams: put ``crc32c`` behind them.

Source: nvCOMP 6, headers of the batched C interface; KvikIO 25.08, NvCompBatchCodec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numcodecs.abc
import numcodecs.registry

from gzarr.codecs.fields import check_fields, check_integer, field_names, need_bytes
from gzarr.codecs.spec import BytesRepr, CodecSpec, Kind, Repr
from gzarr.errors import MetadataError, MissingExtraError

PREFIX = "nvcomp."


@dataclass(frozen=True, slots=True)
class NvcompCodec(CodecSpec):
    """Base of the codecs of nvCOMP; has no fields, as the streams say how they were made."""

    name = ""
    kind: ClassVar[Kind] = "bytes_bytes"

    @property
    def algorithm(self) -> str:
        """NvCOMP's name, in small letters."""
        return self.name.removeprefix(PREFIX)

    @classmethod
    def from_json(cls, configuration: Mapping[str, Any]) -> Self:
        """Parse; every field may be missing."""
        check_fields(cls.name, configuration, field_names(cls))
        return cls(**configuration)

    def configuration(self) -> dict[str, Any]:
        """The fields, if there are any."""
        return {field: getattr(self, field) for field in field_names(type(self))}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Nothing is open; bytes of unknown size come out. Raises: MetadataError if their own size is unknown."""
        if need_bytes(self.name, decoded).nbytes is None:
            raise MetadataError(
                f"codec {self.name!r} does not store the size of its data, so it cannot follow a codec whose output "
                "varies in size: make it the first compressor, of an array of fixed-size elements"
            )
        return self, BytesRepr()


@dataclass(frozen=True, slots=True)
class NvcompDeflateCodec(NvcompCodec):
    """Raw Deflate. level: 0 (stored) to 9 (smallest); for writing on the host."""

    level: int = 6

    name = "nvcomp.deflate"

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_integer(self.name, "level", self.level, 0, 9))


@dataclass(frozen=True, slots=True)
class NvcompGdeflateCodec(NvcompCodec):
    """GDeflate: Deflate cut for 32 threads. level: 1 (fast) to 12 (smallest); for writing on the host."""

    level: int = 6

    name = "nvcomp.gdeflate"

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_integer(self.name, "level", self.level, 1, 12))


@dataclass(frozen=True, slots=True)
class NvcompSnappyCodec(NvcompCodec):
    """Snappy."""

    name = "nvcomp.snappy"


@dataclass(frozen=True, slots=True)
class NvcompBitcompCodec(NvcompCodec):
    """Bitcomp, for numbers. On a GPU only."""

    name = "nvcomp.bitcomp"


@dataclass(frozen=True, slots=True)
class NvcompAnsCodec(NvcompCodec):
    """ANS, an entropy coder. On a GPU only."""

    name = "nvcomp.ans"


@dataclass(frozen=True, slots=True)
class NvcompCascadedCodec(NvcompCodec):
    """Cascaded: run lengths, differences and bit packing, for numbers. On a GPU only."""

    name = "nvcomp.cascaded"


SPECS: tuple[type[NvcompCodec], ...] = (
    NvcompAnsCodec,
    NvcompBitcompCodec,
    NvcompCascadedCodec,
    NvcompDeflateCodec,
    NvcompGdeflateCodec,
    NvcompSnappyCodec,
)
BY_NAME: dict[str, type[NvcompCodec]] = {spec.name: spec for spec in SPECS}


class NvcompConfig(numcodecs.abc.Codec):  # type: ignore[misc]
    """What ``array.compressor`` of a v2 array shows: the configuration; it cannot encode, not knowing chunks' sizes."""

    def __init__(self, **fields: Any) -> None:
        self.fields = fields

    def get_config(self) -> dict[str, Any]:
        """The numcodecs configuration."""
        return {"id": self.codec_id, **self.fields}

    def encode(self, buf: Any) -> Any:
        """Not here: see `decode`."""
        raise MissingExtraError(f"{self.codec_id}: only arrays opened with gzarr encode it")

    def decode(self, buf: Any, out: Any = None) -> Any:
        """Not here: the decoded size is the chunk's, which only an array knows."""
        raise MissingExtraError(f"{self.codec_id}: only arrays opened with gzarr decode it")


for _name in BY_NAME:
    numcodecs.registry.register_codec(type("NvcompConfig", (NvcompConfig,), {"codec_id": _name}))
