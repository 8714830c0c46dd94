"""Checks whether a GPU answers as the CPU does: small arrays of every codec, read and written on a device, bit for bit.

It runs in a process of its own (`gzarr.gpu.detection.verify`), once per GPU and its software, before ``device="auto"``
takes the GPU. Reads are strict, so that nothing passes because the host did it. Formats that only nvCOMP writes, and
those whose extra is not installed, cannot be made here and are left out.
"""

import json
from contextlib import suppress
from typing import Any

import numcodecs as nc
import numpy as np

from gzarr import codecs
from gzarr.api.create import create_array
from gzarr.api.open import open_array
from gzarr.codecs.registry import codec_names
from gzarr.devices import gpu_has_codec
from gzarr.errors import MetadataError, MissingExtraError

SHAPE, CHUNKS = (96, 80), (40, 33)
#: How arrays are opened on the device, besides strict: with little memory, and without KvikIO, which is optional.
OPTIONS: dict[str, Any] = {"max_device_nbytes": 64 << 20, "reader": "host"}


_V2: dict[str, Any] = {"zarr_format": 2, "compressor": None}
#: What is checked besides the defaults of codecs: keywords of `gzarr.create_array`.
CASES: dict[str, dict[str, Any]] = {
    "no codec": {"compressors": None},
    "big-endian transposed": {**_V2, "dtype": ">i4", "order": "F"},
    "blosc lz4 byte-shuffled": {"compressors": codecs.BloscCodec("lz4", 5, "shuffle")},
    "blosc zstd bit-shuffled": {"compressors": codecs.BloscCodec("zstd", 5, "bitshuffle")},
    "blosc zlib": {**_V2, "compressor": nc.Blosc("zlib", 5, nc.Blosc.SHUFFLE)},
    "zstd and crc32c": {"compressors": [codecs.ZstdCodec(3, checksum=True), codecs.Crc32cCodec()]},
    "zlib": {**_V2, "compressor": nc.Zlib(5)},
    "lz4": {**_V2, "compressor": nc.LZ4()},
    "sharding": {"chunks": (16, 8), "shards": (48, 40), "compressors": codecs.ZstdCodec(1)},
    "delta and shuffle": {**_V2, "dtype": "i4", "filters": [nc.Delta("i4"), nc.Shuffle(4)], "compressor": nc.LZ4()},
    "fixedscaleoffset": {**_V2, "dtype": "f8", "filters": [nc.FixedScaleOffset(0, 8, "f8", "i4")]},
    "quantize": {**_V2, "dtype": "f8", "filters": [nc.Quantize(3, "f8", "f4")]},
    "bitround": {**_V2, "filters": [nc.BitRound(7)]},
    "astype": {**_V2, "dtype": "f8", "filters": [nc.AsType("f4", "f8")]},
    "packbits": {**_V2, "dtype": "bool", "filters": [nc.PackBits()]},
    "scale_offset": {"dtype": "f8", "filters": codecs.ScaleOffsetCodec(offset=3.0, scale=2.0), "compressors": None},
    "cast_value": {"dtype": "f8", "filters": codecs.CastValueCodec("float32"), "compressors": None},
    **{kind.codec_id: {**_V2, "filters": [kind()]} for kind in (nc.CRC32, nc.Adler32, nc.Fletcher32)},
}


def default_cases() -> dict[str, dict[str, Any]]:
    """Every codec of a GPU that needs no configuration: keywords of `gzarr.create_array`."""
    cases = {}
    for name in filter(gpu_has_codec, codec_names()):
        with suppress(MetadataError):
            spec = codecs.parse_codec(name)
            keyword = {"array_array": "filters", "bytes_bytes": "compressors"}.get(spec.kind)
            if keyword is not None:
                cases[name] = {keyword: spec}
    return cases


def find_faults(device: str) -> list[str]:
    """Find what a device does otherwise than the CPU.

    Parameters
    ----------
    device : str
        Such as "cuda:0".

    Returns
    -------
    list of str
        "name: what is wrong" for each fault; nothing if all is well.
    """
    faults = []
    for name, keywords in {**default_cases(), **CASES}.items():
        try:
            fault = _fault(device, keywords)
        except MissingExtraError:
            continue
        except Exception as error:  # noqa: BLE001 - whatever a driver or a library raises is the answer
            fault = f"the GPU fails with {type(error).__name__}: {error}"
        if fault:
            faults.append(f"{name}: {fault}")
    return faults


def main(device: str = "cuda:0") -> None:
    """Check a device, and print its faults as JSON in the last line.

    Parameters
    ----------
    device : str
        Such as "cuda:0".
    """
    print("\n" + json.dumps(find_faults(device)), flush=True)  # noqa: T201 - its parent process reads it


def _data(dtype: Any) -> np.ndarray[Any, Any]:
    """Return smooth numbers with noise in their last digits, as measurements have."""
    rows = np.add.outer(*(np.sin(np.linspace(0, 20, n)) for n in SHAPE))
    noise = np.random.default_rng(0).normal(0, 0.01, SHAPE)
    return np.asarray(1000 * (rows + noise)).astype(dtype)


def _fault(device: str, keywords: dict[str, Any]) -> str:
    """Return what is wrong with one kind of array, or ""."""
    keywords = {"dtype": "f4", "chunks": CHUNKS, **keywords}
    dtype = np.dtype(keywords.pop("dtype"))
    data = _data(dtype)
    on_cpu = create_array({}, data=data, device="cpu", **keywords)
    on_device = on_cpu.to(device, strict=True, **OPTIONS)
    for key, text in ((np.s_[...], "..."), (np.s_[3:90:2, ::-3], "3:90:2, ::-3"), (np.s_[50], "50")):
        if not _same(on_device[key], on_cpu[key]):
            return f"the GPU reads other values than the CPU at [{text}]"
    points = tuple(np.random.default_rng(1).integers(0, n, 50) for n in SHAPE)
    if not _same(on_device.vindex[points], on_cpu.vindex[points]):
        return "the GPU reads other values than the CPU at single points"
    plain = create_array({}, data=data, chunks=CHUNKS, compressors=None, device="cpu")
    values = plain.to(device, strict=True, **OPTIONS)[...]
    written = create_array({}, shape=SHAPE, dtype=dtype, device=device, strict=False, **OPTIONS, **keywords)
    written[...] = values
    written[5:70, 11:60] = values[5:70, 11:60]
    read_back = open_array(written.store, mode="r", device="cpu")[...]
    return "" if _same(read_back, on_cpu[...]) else "the CPU reads other values than the GPU has written"


def _same(got: Any, wanted: Any) -> bool:
    """Return whether an array, on the host or a device, has the very bytes of one on the host."""
    got, wanted = np.asarray(got.get() if hasattr(got, "get") else got), np.asarray(wanted)
    native = wanted.astype(wanted.dtype.newbyteorder("="))
    got = got.astype(got.dtype.newbyteorder("="))
    return (got.shape, got.dtype, got.tobytes()) == (native.shape, native.dtype, native.tobytes())
