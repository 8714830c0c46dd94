"""A device that tells its memory from the host's, and counts what is launched, and the bytes that go up and down."""

from __future__ import annotations

from typing import Any

import numpy as np

from gzarr.gpu.kernels import KERNELS
from tests.gpu.test_values import Strangers, Tagged


class CountingDevice(Strangers):
    """An emulated device.

    Attributes:
        up: bytes of each copy to the device so far.
        down: bytes of each copy to the host, each of which waits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.up: list[int] = []
        self.down: list[int] = []

    def upload(self, host: Any) -> Any:
        self.up.append(host.nbytes)
        return super().upload(host)

    def download(self, array: Any, *into: Any) -> Any:
        self.down.append(array.nbytes)
        return super().download(array, *into)

    def forget(self) -> None:
        """Count anew."""
        self.launches.clear()
        self.up.clear()
        self.down.clear()

    @property
    def kernels(self) -> list[str]:
        """Kernels launched, decoders and encoders left out."""
        return [name for name in self.launches if name in KERNELS]


def on_device(array: np.ndarray) -> np.ndarray:
    """An array of the device, which does not follow what becomes of the given one."""
    return np.array(array).view(Tagged)
