"""The ``vlen-utf8`` and ``vlen-bytes`` codecs: strings of variable length, each after its length."""

from dataclasses import dataclass
from typing import ClassVar, Self

from gzarr.codecs.spec import BytesRepr, CodecSpec, Kind, Repr, need_array
from gzarr.errors import MetadataError


class _VLenCodec(CodecSpec):
    """A codec without fields, for elements of some kinds of dtype."""

    kind: ClassVar[Kind] = "array_bytes"
    dtype_kinds: ClassVar[str]

    __slots__ = ()

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Check that strings go in; bytes of unknown size come out. See `CodecSpec.resolve`."""
        dtype = need_array(self.name, decoded).dtype
        if dtype.kind not in self.dtype_kinds:
            raise MetadataError(f"codec {self.name!r} encodes strings of variable length, not data type {dtype}")
        return self, BytesRepr()


@dataclass(frozen=True, slots=True)
class VLenUTF8Codec(_VLenCodec):
    """Encode strings of variable length as UTF-8.

    Notes
    -----
    The name is ``vlen-utf8`` in Zarr v2 and v3. Runs on the CPU only.

    Source: Zarr v3 extensions, "vlen-utf8 codec"; numcodecs.VLenUTF8.

    Examples
    --------
    >>> import gzarr
    >>> array = gzarr.create_array(shape=2, dtype="string", serializer=gzarr.codecs.VLenUTF8Codec())
    >>> array[0] = "text"
    >>> array[:].tolist()
    ['text', '']
    """

    name = v2_id = "vlen-utf8"
    dtype_kinds: ClassVar[str] = "OTU"


@dataclass(frozen=True, slots=True)
class VLenBytesCodec(_VLenCodec):
    """Encode byte strings of variable length.

    Notes
    -----
    The name is ``vlen-bytes`` in Zarr v2 and v3. Runs on the CPU only.

    Source: Zarr v3 extensions, "vlen-bytes codec"; numcodecs.VLenBytes.

    Examples
    --------
    >>> import gzarr
    >>> array = gzarr.create_array(shape=2, dtype="bytes", serializer=gzarr.codecs.VLenBytesCodec())
    >>> array[0] = b"data"
    >>> array[:].tolist()
    [b'data', b'']
    """

    name = v2_id = "vlen-bytes"
    dtype_kinds: ClassVar[str] = "OS"
