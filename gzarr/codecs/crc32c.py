"""The ``crc32c`` codec: four bytes of checksum after the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from gzarr.codecs.spec import BytesRepr, CodecSpec, Kind, Repr, need_bytes


@dataclass(frozen=True, slots=True)
class Crc32cCodec(CodecSpec):
    """Append the CRC-32C (Castagnoli) of the data, in little-endian order, and verify it on reading.

    Notes
    -----
    The name is ``crc32c`` in Zarr v2 and v3. Runs on the CPU and on a GPU.

    Source: Zarr v3 specification, "crc32c codec"; RFC 3720, appendix B.4.

    Examples
    --------
    >>> import gzarr
    >>> chain = [gzarr.codecs.ZstdCodec(), gzarr.codecs.Crc32cCodec()]
    >>> gzarr.create_array(shape=1000, dtype="i4", compressors=chain).compressors
    (ZstdCodec(level=0, checksum=False), Crc32cCodec())
    """

    name = "crc32c"
    kind: ClassVar[Kind] = "bytes_bytes"

    def to_v2(self) -> dict[str, Any]:
        """Give numcodecs' codec of the same bytes, which Zarr v2 puts anywhere in a chain. See `CodecSpec.to_v2`."""
        return {"id": self.name}

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Check that bytes go in; four more come out. See `CodecSpec.resolve`."""
        size = need_bytes(self.name, decoded).nbytes
        return self, BytesRepr(None if size is None else size + 4)
