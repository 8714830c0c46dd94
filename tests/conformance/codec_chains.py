"""Codecs of arrays to exchange with other implementations. Imports no gzarr."""

import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numcodecs
import numpy as np

from tests.conformance.layouts import Layout, v3
from tests.conformance.samples import VARIABLE, Dtype, as_dtype


@dataclass(frozen=True)
class Codecs:
    """A codec chain in a case.

    Attributes:
        name: to show.
        options: keywords of ``create_array``; values may be functions of the dtype.
        kinds: kinds of dtypes that it encodes ("V" also for structs, "O" for variable lengths); None for all.
        sizes: sizes in bytes of the elements that it encodes; None for all.
        lossless: whether values come back as they were.
        ndims: numbers of dimensions that it encodes.
        elements: whether it needs the bytes of elements, not of a shard or of objects.
    """

    name: str
    options: Mapping[str, Any]
    kinds: str | None = None
    sizes: tuple[int, ...] | None = None
    lossless: bool = True
    ndims: tuple[int, ...] | None = None
    elements: bool = False

    def fits(self, dtype: Dtype, layout: Layout) -> bool:
        """Whether the codecs can encode chunks of that type and layout."""
        found = as_dtype(dtype)
        if self.kinds is not None and found.kind not in self.kinds:
            return False
        if self.ndims is not None and len(layout.shape) not in self.ndims:
            return False
        # an array-to-array codec or serializer cannot stand beside a serializer of the layout's own
        if "serializer" in layout.options and ("filters" in self.options or "serializer" in self.options):
            return False
        if "serializer" in layout.options and (dtype in VARIABLE or self.elements):
            return False
        return self.sizes is None or found.itemsize in self.sizes


def _typestr(dtype: np.dtype[Any]) -> str:
    return dtype.newbyteorder("<").str


def _small(dtype: np.dtype[Any]) -> str:
    return f"<{dtype.kind}2" if dtype.itemsize > 1 else dtype.str


BLOSC_NAMES = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
SHUFFLES = ("noshuffle", "shuffle", "bitshuffle")
BLOSCS = tuple(c for c in BLOSC_NAMES if c in numcodecs.blosc.list_compressors())
#: Codecs that numcodecs has only with other packages.
OPTIONAL = ("zfpy", "pcodec", "msgpack2", "crc32c")
INSTALLED = tuple(name for name in OPTIONAL if name in numcodecs.registry.codec_registry)
CHECKSUMS = tuple(
    name
    for name in ("crc32", "crc32c", "adler32", "fletcher32", "jenkins_lookup3")
    if name in numcodecs.registry.codec_registry
)


def _compressors_v3() -> Iterator[Codecs]:
    yield Codecs("default", {})
    yield Codecs("raw", {"compressors": None})
    yield Codecs("gzip", {"compressors": [v3("gzip", level=5)]})
    yield Codecs("zstd", {"compressors": [v3("zstd", level=3, checksum=False)]})
    yield Codecs("zstd with checksum", {"compressors": [v3("zstd", level=-1, checksum=True)]})
    yield Codecs("crc32c", {"compressors": [{"name": "crc32c"}]})
    yield Codecs("crc32c around gzip", {"compressors": [{"name": "crc32c"}, v3("gzip", level=1), {"name": "crc32c"}]})
    for cname in BLOSCS:
        for shuffle in SHUFFLES:
            options = {"cname": cname, "clevel": 5, "shuffle": shuffle, "typesize": 4, "blocksize": 0}
            yield Codecs(f"blosc {cname} {shuffle}", {"compressors": [v3("blosc", **options)]})
    for cname in ("lz4", "zstd"):
        options = {"cname": cname, "clevel": 9, "shuffle": "shuffle", "typesize": 2, "blocksize": 64}
        yield Codecs(f"blosc {cname} in blocks", {"compressors": [v3("blosc", **options)]})


def _numcodecs_v3() -> Iterator[Codecs]:
    for name, configuration in (
        *(("blosc", {"cname": c, "clevel": 5, "shuffle": s}) for c, s in (("lz4", 1), ("zstd", 2), ("zlib", 0))),
        *(("bz2", {"level": n}) for n in (1, 9)),
        *((name, {"level": 3}) for name in ("zstd", "gzip", "zlib")),
        ("lz4", {"acceleration": 2}),
        ("lzma", {"format": 1, "check": -1, "preset": 1, "filters": None}),
        *((name, {}) for name in CHECKSUMS),
        ("crc32", {"location": "end"}),
    ):
        label = f"numcodecs.{name} {configuration}"
        yield Codecs(label, {"compressors": [v3(f"numcodecs.{name}", **configuration)]})
    shuffle = v3("numcodecs.shuffle", elementsize=4)
    yield Codecs("numcodecs.shuffle", {"compressors": [shuffle]}, "iufcUmM", (4, 8, 16), elements=True)
    two = [v3("numcodecs.shuffle", elementsize=2), v3("numcodecs.zlib", level=1)]
    yield Codecs("numcodecs.shuffle and zlib", {"compressors": two}, "iufcUmM", (2, 4, 8, 16), elements=True)


def _filters_v3() -> Iterator[Codecs]:
    """Codecs from array to array, and serializers. They compute in the dtype in memory, which is little-endian here."""
    delta = {"filters": lambda dtype: [v3("numcodecs.delta", dtype=_typestr(dtype))]}
    yield Codecs("numcodecs.delta", delta, "iuf", lossless=False)
    scale = {"offset": 10, "scale": 2}
    yield Codecs(
        "numcodecs.fixedscaleoffset",
        {"filters": lambda d: [v3("numcodecs.fixedscaleoffset", **scale, dtype=_typestr(d), astype="<i2")]},
        "f",
    )
    yield Codecs(
        "numcodecs.quantize", {"filters": lambda d: [v3("numcodecs.quantize", digits=2, dtype=_typestr(d))]}, "f"
    )
    yield Codecs("numcodecs.bitround", {"filters": [v3("numcodecs.bitround", keepbits=4)]}, "f", lossless=False)
    yield Codecs(
        "numcodecs.astype",
        {"filters": lambda d: [v3("numcodecs.astype", encode_dtype=_small(d), decode_dtype=_typestr(d))]},
        "iu",
    )
    yield Codecs("numcodecs.packbits", {"filters": [v3("numcodecs.packbits")]}, "b")
    yield Codecs("numcodecs.delta, gzip", {"filters": delta["filters"], "compressors": [v3("gzip", level=1)]}, "iu")
    if "zfpy" in INSTALLED:
        zfpy = v3("numcodecs.zfpy", mode=3, tolerance=-1, rate=-1, precision=16)
        options = {"serializer": zfpy, "compressors": None}
        yield Codecs("numcodecs.zfpy", options, "if", (4, 8), lossless=False, ndims=(1, 2, 3))
    if "pcodec" in INSTALLED:
        yield Codecs("numcodecs.pcodec", {"serializer": v3("numcodecs.pcodec"), "compressors": None}, "iuf", (2, 4, 8))


COMPRESSORS_V3 = (*_compressors_v3(), *_numcodecs_v3())
FILTERS_V3 = tuple(_filters_v3())
CODECS_V3 = (*COMPRESSORS_V3, *FILTERS_V3)


def _codecs_v2() -> Iterator[Codecs]:
    yield Codecs("raw", {"compressors": None})
    for cname in BLOSCS:
        for shuffle in (-1, 0, 1, 2):
            codec = numcodecs.Blosc(cname, 5, shuffle)
            yield Codecs(f"blosc {cname} {shuffle}", {"compressors": codec})
    yield Codecs("blosc in blocks", {"compressors": numcodecs.Blosc("lz4", 1, 1, 64)})
    filters = [{"id": lzma.FILTER_DELTA, "dist": 4}, {"id": lzma.FILTER_LZMA2, "preset": 1}]
    raw = numcodecs.LZMA(format=lzma.FORMAT_RAW, filters=filters)
    for name, codec in (
        ("zstd", numcodecs.Zstd(3)),
        ("zstd with checksum", numcodecs.Zstd(1, checksum=True)),
        ("gzip", numcodecs.GZip(2)),
        ("zlib", numcodecs.Zlib(2)),
        ("bz2", numcodecs.BZ2(1)),
        ("lz4", numcodecs.LZ4(2)),
        ("lzma", numcodecs.LZMA(preset=1)),
        ("lzma with filters", raw),
    ):
        yield Codecs(name, {"compressors": codec})
    for name in CHECKSUMS:
        checksum = numcodecs.get_codec({"id": name})
        yield Codecs(name, {"filters": [checksum], "compressors": numcodecs.Zlib(1)})
    yield Codecs("crc32 at the end", {"filters": [numcodecs.CRC32(location="end")], "compressors": None})
    shuffle = {"filters": [numcodecs.Shuffle(4)], "compressors": numcodecs.Zlib(1)}
    yield Codecs("shuffle", shuffle, "iufcUmM", (4, 8, 16))
    own = {"filters": lambda d: [numcodecs.Shuffle(d.itemsize)], "compressors": None}
    yield Codecs("shuffle of elements", own, "biufcSUmMV")
    yield Codecs("base64", {"filters": [numcodecs.Base64()], "compressors": None})
    yield Codecs("delta", {"filters": lambda d: [numcodecs.Delta(d.str)], "compressors": None}, "iuf", lossless=False)
    yield Codecs(
        "delta to smaller", {"filters": lambda d: [numcodecs.Delta(d.str, f"<{d.kind}2")], "compressors": None}, "i"
    )
    yield Codecs(
        "fixedscaleoffset",
        {"filters": lambda d: [numcodecs.FixedScaleOffset(10, 2, d.str, "<i2")], "compressors": numcodecs.Zlib(1)},
        "f",
    )
    yield Codecs("quantize", {"filters": lambda d: [numcodecs.Quantize(2, d.str)], "compressors": None}, "f")
    native = {"filters": [numcodecs.BitRound(4)], "compressors": None}
    yield Codecs("bitround", native, "f", lossless=False)
    yield Codecs("astype", {"filters": lambda d: [numcodecs.AsType(f">{d.kind}8", d.str)], "compressors": None}, "iu")
    yield Codecs("packbits", {"filters": [numcodecs.PackBits()], "compressors": None}, "b")
    both = {"filters": lambda d: [numcodecs.Delta(d.str), numcodecs.Shuffle(d.itemsize)]}
    yield Codecs("delta and shuffle", {**both, "compressors": numcodecs.Zstd(1)}, "iu")
    if "pcodec" in INSTALLED:
        yield Codecs("pcodec", {"compressors": numcodecs.PCodec()}, "iuf", (2, 4, 8))
    if "zfpy" in INSTALLED:
        yield Codecs(
            "zfpy", {"compressors": numcodecs.ZFPY(mode=3, precision=16)}, "if", (4, 8), lossless=False, ndims=(1, 2, 3)
        )


CODECS_V2 = tuple(_codecs_v2())


def _known_to_tensorstore(codecs: Codecs) -> bool:
    """Whether TensorStore has the codecs: no numcodecs.*, in v2 one compressor and no filters."""
    compressors = codecs.options.get("compressors")
    if "filters" in codecs.options or "serializer" in codecs.options:
        return False
    if isinstance(compressors, numcodecs.abc.Codec):
        return compressors.codec_id in ("blosc", "gzip", "zlib", "bz2", "zstd") and not getattr(
            compressors, "checksum", 0
        )
    return not any("numcodecs" in codec["name"] for codec in compressors or ())


def codecs_of(zarr_format: int, peer: str) -> tuple[Codecs, ...]:
    """The codecs that a peer has."""
    codecs: tuple[Codecs, ...] = CODECS_V3 if zarr_format == 3 else CODECS_V2
    return tuple(c for c in codecs if _known_to_tensorstore(c)) if peer == "tensorstore" else codecs
