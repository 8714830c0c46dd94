"""Every kernel on CUDA against its NumPy reference: the kernels' own tests, launched on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.gpu.hardware.on_device import DeviceBoxes, DeviceKernels
from tests.gpu.kernels.boxes import BOXES
from tests.gpu.kernels.launching import DEVICE, SUMS
from tests.gpu.kernels.test_blosc_parse import *  # noqa: F403
from tests.gpu.kernels.test_calculate import *  # noqa: F403
from tests.gpu.kernels.test_copy_bits import test_boxes as test_copy_bits  # noqa: F401
from tests.gpu.kernels.test_copy_bytes import test_boxes as test_copy_bytes  # noqa: F401
from tests.gpu.kernels.test_copy_plain import test_boxes as test_copy_plain  # noqa: F401
from tests.gpu.kernels.test_copy_streams import *  # noqa: F403
from tests.gpu.kernels.test_copy_tiles import test_boxes as test_copy_tiles  # noqa: F401
from tests.gpu.kernels.test_copy_tiles import test_fortran_order_takes_tiles  # noqa: F401
from tests.gpu.kernels.test_differences import test_rows_of_any_length as test_differences  # noqa: F401
from tests.gpu.kernels.test_find_written import *  # noqa: F403
from tests.gpu.kernels.test_gather_box import *  # noqa: F403
from tests.gpu.kernels.test_gather_points import *  # noqa: F403
from tests.gpu.kernels.test_place_box import *  # noqa: F403
from tests.gpu.kernels.test_place_points import *  # noqa: F403
from tests.gpu.kernels.test_reduce_windows import test_common_factors as test_windows_of_common_factors  # noqa: F401
from tests.gpu.kernels.test_reduce_windows import (
    test_large_windows,  # noqa: F401
    test_windows_of_any_numbers,  # noqa: F401
)
from tests.gpu.kernels.test_running_sums import *  # noqa: F403
from tests.gpu.kernels.test_shuffle import test_any_sizes as test_shuffle_of_any_sizes  # noqa: F401
from tests.gpu.kernels.test_shuffle import test_each_item_size_in_one_launch as test_shuffle_of_each_item_size  # noqa: F401
from tests.gpu.kernels.test_shuffle_items import test_any_chunks as test_shuffle_items  # noqa: F401
from tests.gpu.kernels.test_shuffle_items import test_what_is_common_is_fast as test_common_shuffles  # noqa: F401
from tests.gpu.kernels.test_take_rows import test_complex_numbers as test_rows_of_complex_numbers  # noqa: F401
from tests.gpu.kernels.test_take_rows import test_rows_of_any_numbers  # noqa: F401
from tests.gpu.kernels.test_unshuffle import *  # noqa: F403
from tests.gpu.kernels.test_weighted_sums import test_no_bytes as test_weighted_sums_of_no_bytes  # noqa: F401
from tests.gpu.kernels.test_weighted_sums import test_streams_of_any_length_and_alignment as test_weighted_sums  # noqa: F401
from tests.gpu.kernels.test_xxh64 import test_no_bytes as test_xxh64_of_no_bytes  # noqa: F401
from tests.gpu.kernels.test_xxh64 import test_streams_of_any_length_and_alignment as test_xxh64  # noqa: F401

pytestmark = pytest.mark.gpu


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
