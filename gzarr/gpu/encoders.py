"""The device's table of encoders: from the name of a spec to what encodes a whole wave of chunks on the device."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numcodecs.zstd import compress

from gzarr.codecs.spec import Step
from gzarr.gpu.batch import Chunks, Encoded, Wave
from gzarr.gpu.device import Device

WaveEncoder: TypeAlias = Callable[[Wave, Chunks | Encoded], Chunks | Encoded]
EncoderFactory: TypeAlias = Callable[[Step, Device], WaveEncoder | None]


def _bytes(step: Step, device: Device) -> WaveEncoder | None:
    return lambda wave, batch: batch


def _zstd(step: Step, device: Device) -> WaveEncoder | None:
    """On the emulated device only."""
    if device.xp is not np and device.name != "emulated":
        return None

    def encode(wave: Wave, batch: Chunks | Encoded) -> Encoded:
        if isinstance(batch, Encoded):
            raise TypeError("zstd after a compressor")
        wave.device.launches.append("zstd compress")  # type: ignore[attr-defined]
        data = [bytes(compress(ctypes.string_at(a, batch.nbytes), 1)) for a in batch.addresses.tolist()]
        sizes = np.array([len(item) for item in data], np.int64)
        room = 16
        stride = int(sizes.max()) + room
        owner = wave.device.empty(stride * len(data))
        wave.kept.append(owner)
        addresses = wave.device.address(owner) + np.arange(len(data), dtype=np.int64) * stride
        for address, item in zip(addresses.tolist(), data, strict=True):
            ctypes.memmove(address, item, len(item))
        return Encoded(owner, addresses, sizes, room)

    return encode


ENCODERS: dict[str, EncoderFactory] = {"bytes": _bytes, "zstd": _zstd}
