"""Every kernel's PTX against its NumPy reference: the kernels' own tests, launched in the interpreter."""

from collections.abc import Iterator

import pytest

from tests.gpu.kernels.boxes import BOXES
from tests.gpu.kernels.launching import DEVICE, SUMS, Sums
from tests.gpu.kernels.repeated import kernel_tests
from tests.gpu.ptx import nvrtc
from tests.gpu.ptx.capture import PtxDevice
from tests.gpu.ptx.launching import PtxKernels
from tests.properties.fewer import examples_of

pytestmark = pytest.mark.skipif(nvrtc.why_missing() is not None, reason=str(nvrtc.why_missing()))
globals().update(kernel_tests())


@pytest.fixture(autouse=True, scope="module")
def on_device() -> Iterator[None]:
    """The tests launch through one object, and take checksums from another."""
    DEVICE.launch = PtxKernels().launch  # type: ignore[method-assign]
    SUMS.of = Sums(PtxDevice).of  # type: ignore[method-assign]
    BOXES.make = PtxDevice
    try:
        with examples_of(globals(), 4):
            yield
    finally:
        del DEVICE.launch, SUMS.of, BOXES.make
