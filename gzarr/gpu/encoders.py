"""The device's table of encoders: from the name of a spec to what encodes a whole wave of chunks on the device."""

from __future__ import annotations

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
    """Compressed by the host's library, whatever the device."""
    nbytes = step.decoded.nbytes
    if nbytes is None:
        return None

    def encode(wave: Wave, batch: Chunks | Encoded) -> Encoded:
        if isinstance(batch, Encoded) or batch.rows is None:
            raise TypeError("zstd takes plain chunks")
        rows = batch.rows if isinstance(batch.rows, np.ndarray) else wave.device.download(batch.rows)
        data = [bytes(compress(row.tobytes(), 1)) for row in rows]
        sizes = np.array([len(item) for item in data], np.int64)
        stride = int(sizes.max()) + 16
        host = np.zeros((len(data), stride), np.uint8)
        for row, item in zip(host, data, strict=True):
            row[: len(item)] = np.frombuffer(item, np.uint8)
        owner = wave.device.upload(host)
        wave.kept.append(owner)
        return Encoded(owner, wave.device.address(owner) + np.arange(len(data), dtype=np.int64) * stride, sizes, 16)

    return encode


ENCODERS: dict[str, EncoderFactory] = {"bytes": _bytes, "zstd": _zstd}
