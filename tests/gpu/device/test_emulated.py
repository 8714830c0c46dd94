"""The device without hardware refuses what nvCOMP refuses."""

import numpy as np
import pytest

from gzarr.errors import DeviceError
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.nvcomp_tables import CODECS


def test_what_nvcomp_refuses_to_compress_is_refused() -> None:
    device = EmulatedDevice()
    memory = device.upload(np.zeros(1 << 18, np.uint8))
    at = np.array([device.address(memory)])
    at += -at % 16
    n, out = np.array([4096]), at + (1 << 17)
    room = CODECS["zstd"].compress_bound(4096)
    device.compress("zstd", at, n, out, room)
    with pytest.raises(DeviceError, match=r"outputs of \d+ bytes for chunks of 4096, which may take"):
        device.compress("zstd", at, n, out, room - 1)
    with pytest.raises(DeviceError, match="a chunk is not aligned to 4 bytes"):
        device.compress("zstd", at + 2, n, out, room)
    with pytest.raises(DeviceError, match="an output is not aligned to 8 bytes"):
        device.compress("deflate", at, n, out + 4, 4 * room)
    with pytest.raises(DeviceError, match="a batch of 0 streams"):
        device.compress("zstd", at[:0], n[:0], out[:0], room)
    with pytest.raises(DeviceError, match="cannot compress a chunk of 65537 bytes; the limit is 65536"):
        device.compress("deflate", at, np.array([65537]), out, 1 << 20)
