"""The decompression engine of data centre Blackwell GPUs: which streams it takes, and which may go to it.

nvCOMP gives streams to the engine if it is asked to choose (its default backend), the engine takes their format and
size, and all buffers are memory of cudaMalloc, as in CuPy's default pool; other memory (of a managed or asynchronous
pool) it decodes with its CUDA kernels. The engine reports success for damaged streams, and what it then does is
undefined, so it is asked for only if a checksum of the encoded bytes was verified before, or if the setting
``gpu.decompression_engine`` is "on".

Source: nvCOMP 6, headers (nvcompDecompressBackend_t, lz4.h) and "Decompression Engine"; CUDA driver API,
cuDeviceGetAttribute and cuMemBatchDecompressAsync. Nothing here has met such a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from gzarr.codecs.spec import CodecSpec

#: CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK and ..._MAXIMUM_LENGTH (CUdevice_attribute).
_ALGORITHM_MASK, _MAXIMUM_LENGTH = 136, 137
#: Bits of the mask (CUmemDecompressAlgorithm), by nvCOMP's codecs, which the engine has.
_ALGORITHMS = {"deflate": 1, "gzip": 1, "snappy": 2, "lz4": 4}
#: Codecs whose streams are of these formats; Blosc's may be.
_CODECS = frozenset({"blosc", "gzip", "zlib", "lz4", "nvcomp.deflate", "nvcomp.snappy", "nvcomp_batch"})
#: Codecs that verify a checksum of encoded bytes before these are decoded.
_CHECKSUMS = frozenset({"crc32c", "crc32", "adler32", "fletcher32"})


class Engine(NamedTuple):
    """The engine of a GPU.

    Attributes
    ----------
    decoders : frozenset[str]
        The decoders of nvCOMP that it can take the place of.
    max_nbytes : int
        Bytes of the largest stream, encoded or decoded.
    always : bool
        Whether it is also used for streams without a verified checksum.
    """

    decoders: frozenset[str]
    max_nbytes: int
    always: bool

    def takes(self, decoder: str, nbytes: int, *, verified: bool) -> bool:
        """Whether it may decode streams of up to ``nbytes``. verified: whether their checksums were verified."""
        return (verified or self.always) and decoder in self.decoders and nbytes <= self.max_nbytes


def find_engine(number: int, use: str, driver: Any = None) -> Engine | None:
    """The engine of a GPU, by its number; None if it has none, or ``use`` is "off".

    use: "auto", "on" or "off". driver: libcuda.so.1, initialized; None to load it.
    """
    if use == "off":
        return None
    device, mask, largest = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1") if driver is None else driver
        # Drivers that do not know an attribute refuse it.
        refused = (
            driver.cuDeviceGet(ctypes.byref(device), number)
            or driver.cuDeviceGetAttribute(ctypes.byref(mask), _ALGORITHM_MASK, device)
            or driver.cuDeviceGetAttribute(ctypes.byref(largest), _MAXIMUM_LENGTH, device)
        )
    except (OSError, AttributeError):  # no driver, or not all of it
        return None
    if refused:
        return None
    decoders = frozenset(name for name, bit in _ALGORITHMS.items() if mask.value & bit)
    return Engine(decoders, largest.value, use == "on") if decoders else None


def engine_note(engine: Engine | None, specs: Sequence[CodecSpec]) -> tuple[int, str] | None:
    """The step of a chain whose streams the engine could take, and whether it may; None if there is none.

    specs: of the codecs on the device, in encoding order.
    """
    names = [spec.name.removeprefix("numcodecs.") for spec in specs]
    step = next((i for i, name in enumerate(names) if name in _CODECS), None)
    if engine is None or step is None:
        return None
    if engine.always or _CHECKSUMS.intersection(names[step + 1 :]):
        return (
            step,
            f"by the decompression engine where nvCOMP finds that streams of up to {engine.max_nbytes} bytes fit",
        )
    why = "it would hide damage, and no checksum is verified before"
    return step, f"not by the decompression engine: {why} (gpu.decompression_engine)"
