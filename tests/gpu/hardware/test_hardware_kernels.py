"""Every kernel on CUDA against its NumPy reference: the kernels' own tests, launched on the device."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gpu.hardware.on_device import DeviceBoxes, DeviceKernels
from tests.gpu.kernels.boxes import BOXES
from tests.gpu.kernels.launching import DEVICE, SUMS
from tests.gpu.kernels.repeated import kernel_tests

pytestmark = pytest.mark.gpu
globals().update(kernel_tests())


@pytest.fixture(autouse=True, scope="module")
def on_device(cuda: Any) -> Iterator[None]:
    """The tests launch through few objects: for a while these launch on the device."""
    launcher, boxes = DeviceKernels(cuda.CudaDevice()), DeviceBoxes(cuda.CudaDevice)
    BOXES.make, BOXES.put, BOXES.got = boxes.make, boxes.put, boxes.got  # type: ignore[method-assign]
    DEVICE.launch = launcher.launch  # type: ignore[method-assign]
    SUMS.of = launcher.checksums  # type: ignore[method-assign]
    try:
        yield
    finally:
        del DEVICE.launch, SUMS.of, BOXES.make, BOXES.put, BOXES.got
