"""nvCOMP's own formats as codecs: ``nvcomp.deflate``, ``gdeflate``, ``snappy``, ``bitcomp``, ``ans``, ``cascaded``.

On disk, a chunk is one bare stream, exactly as nvCOMP's batched C functions (``nvcompBatched<X>CompressAsync``) write
it for one chunk of their batch: no header, no size, no padding, no checksum. The decoded size is that of the chunk, so
these codecs must follow codecs whose output has a fixed size. ``deflate`` is a raw Deflate stream (RFC 1951, without
the envelope of zlib or gzip), ``snappy`` is Snappy's raw format (not its framing format), and ``gdeflate`` is one
GDeflate page of at most 65,536 decoded bytes. The formats of ``ans``, ``bitcomp`` and ``cascaded`` are not published.

The name in Zarr v3 is ``nvcomp.<algorithm>``; Zarr v2 has ``{"id": "nvcomp.<algorithm>", ...}``. KvikIO before 25.10
wrote the same bare streams in Zarr v2 as ``{"id": "nvcomp_batch", "algorithm": ...}``. Those are read and written too,
also with ``lz4`` (after its size, four bytes little-endian) and ``zstd`` (plain frames).

nvCOMP verifies no checksum and promises little for damaged streams: add ``crc32c`` after these codecs.

Source: nvCOMP 6, headers of the batched C interface; KvikIO 25.08, NvCompBatchCodec.
"""

from dataclasses import dataclass
from typing import Self

from gzarr.codecs.fields import check_integer
from gzarr.codecs.spec import BytesRepr, CompressorSpec, Repr, need_bytes
from gzarr.errors import MetadataError

PREFIX = "nvcomp."
#: The codecs by name.
BY_NAME: "dict[str, type[NvcompSpec]]" = {}


@dataclass(frozen=True, slots=True)
class NvcompSpec(CompressorSpec):
    """Base of the codecs of nvCOMP. Streams say how they were made, so few have a field."""

    name = ""

    def __init_subclass__(cls) -> None:
        BY_NAME[cls.name] = cls

    @property
    def algorithm(self) -> str:
        """Name of the algorithm in nvCOMP, in lower case."""
        return self.name.removeprefix(PREFIX)

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Check that bytes of a known size go in; bytes of unknown size come out. See `CodecSpec.resolve`."""
        if need_bytes(self.name, decoded).nbytes is None:
            raise MetadataError(
                f"codec {self.name!r} does not store the size of its data, so it cannot follow a codec whose output "
                "varies in size; make it the first compressor, of an array with elements of fixed size"
            )
        return self, BytesRepr()


@dataclass(frozen=True, slots=True)
class NvcompDeflateCodec(NvcompSpec):
    """Compress to a raw Deflate stream.

    Parameters
    ----------
    level : int, default 6
        From 0 (stored) to 9 (smallest), for writing on the host; a GPU ignores it.

    Raises
    ------
    MetadataError
        If the level is not an integer from 0 to 9.

    Notes
    -----
    The name is ``nvcomp.deflate`` in Zarr v2 and v3. Runs on a GPU and on the CPU.

    Source: RFC 1951; nvCOMP, ``nvcompBatchedDeflateCompressAsync``.

    Examples
    --------
    >>> import gzarr
    >>> array = gzarr.create_array(shape=1000, dtype="i4", compressors=gzarr.codecs.NvcompDeflateCodec(level=9))
    >>> array.compressors
    (NvcompDeflateCodec(level=9),)
    """

    level: int = 6

    name = v2_id = "nvcomp.deflate"

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_integer(self.name, "level", self.level, 0, 9))


@dataclass(frozen=True, slots=True)
class NvcompGdeflateCodec(NvcompSpec):
    """Compress with GDeflate, a Deflate that 32 threads decode together.

    Parameters
    ----------
    level : int, default 6
        From 1 (fastest) to 12 (smallest), for writing on the host; a GPU ignores it.

    Raises
    ------
    MetadataError
        If the level is not an integer from 1 to 12.

    Notes
    -----
    The name is ``nvcomp.gdeflate`` in Zarr v2 and v3. Runs on a GPU; runs on the CPU on Linux with ``gzarr[gdeflate]``.
    A chunk holds at most 65,536 bytes.

    Source: nvCOMP, ``nvcompBatchedGdeflateCompressAsync``.

    Examples
    --------
    >>> import gzarr
    >>> gdeflate = gzarr.codecs.NvcompGdeflateCodec()
    >>> gzarr.create_array(shape=1000, dtype="i4", compressors=gdeflate).compressors
    (NvcompGdeflateCodec(level=6),)
    """

    level: int = 6

    name = v2_id = "nvcomp.gdeflate"

    def __post_init__(self) -> None:
        object.__setattr__(self, "level", check_integer(self.name, "level", self.level, 1, 12))


@dataclass(frozen=True, slots=True)
class NvcompSnappyCodec(NvcompSpec):
    """Compress with Snappy, in its raw format.

    Notes
    -----
    The name is ``nvcomp.snappy`` in Zarr v2 and v3. Runs on a GPU; runs on the CPU with ``gzarr[snappy]``.

    Source: nvCOMP, ``nvcompBatchedSnappyCompressAsync``.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.create_array(shape=1000, dtype="i4", compressors=gzarr.codecs.NvcompSnappyCodec()).compressors
    (NvcompSnappyCodec(),)
    """

    name = v2_id = "nvcomp.snappy"


@dataclass(frozen=True, slots=True)
class NvcompBitcompCodec(NvcompSpec):
    """Compress numbers with Bitcomp.

    Notes
    -----
    The name is ``nvcomp.bitcomp`` in Zarr v2 and v3. Runs on a GPU only.

    Source: nvCOMP, ``nvcompBatchedBitcompCompressAsync``.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.create_array(shape=1000, dtype="i4", compressors=gzarr.codecs.NvcompBitcompCodec()).compressors
    (NvcompBitcompCodec(),)
    """

    name = v2_id = "nvcomp.bitcomp"


@dataclass(frozen=True, slots=True)
class NvcompAnsCodec(NvcompSpec):
    """Compress with ANS, an entropy coder.

    Notes
    -----
    The name is ``nvcomp.ans`` in Zarr v2 and v3. Runs on a GPU only.

    Source: nvCOMP, ``nvcompBatchedANSCompressAsync``.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.create_array(shape=1000, dtype="i4", compressors=gzarr.codecs.NvcompAnsCodec()).compressors
    (NvcompAnsCodec(),)
    """

    name = v2_id = "nvcomp.ans"


@dataclass(frozen=True, slots=True)
class NvcompCascadedCodec(NvcompSpec):
    """Compress numbers with Cascaded: run lengths, differences and bit packing.

    Notes
    -----
    The name is ``nvcomp.cascaded`` in Zarr v2 and v3. Runs on a GPU only.

    Source: nvCOMP, ``nvcompBatchedCascadedCompressAsync``.

    Examples
    --------
    >>> import gzarr
    >>> gzarr.create_array(shape=1000, dtype="i4", compressors=gzarr.codecs.NvcompCascadedCodec()).compressors
    (NvcompCascadedCodec(),)
    """

    name = v2_id = "nvcomp.cascaded"


SPECS = tuple(BY_NAME.values())
