"""Memory of a device is divided, and covers what functions take for themselves."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
import gzarr.images
from gzarr.cpu.backend import CpuBackend
from gzarr.devices import backend_for
from gzarr.images.pyramid.device_memory import left_nbytes, sharing

DATA = np.random.default_rng(0).integers(0, 255, (300, 400), np.uint8)


def test_a_device_leaves_half_of_its_memory_to_what_is_computed() -> None:
    backend = sharing("emulated", 100 << 20)
    assert backend.options["max_device_nbytes"] == 50 << 20
    assert left_nbytes(backend, 1 << 20, 100 << 20) == 50 << 20
    assert sharing("emulated", None) is backend_for("emulated")
    assert left_nbytes(backend, 1 << 20, None) == 1 << 20
    strict = backend_for("emulated", strict=True)
    assert sharing(strict, 100 << 20).options["strict"] is True
    with pytest.raises(ValueError, match="max_device_nbytes"):
        sharing("emulated", 0)


def test_the_cpu_has_no_device_memory() -> None:
    backend = sharing("cpu", 100)
    assert type(backend) is CpuBackend
    assert left_nbytes(backend, 1 << 20, 100) == 1 << 20


def largest(block: Any, factors: tuple[int, ...]) -> Any:
    """A function that takes much memory for itself."""
    wide = np.concatenate([block.astype("f8")] * 4)
    del wide
    return block[:: factors[0], :: factors[1]].copy()


def test_units_are_smaller_for_functions_that_take_much(tmp_path: Path, device: str) -> None:
    seen: list[tuple[int, ...]] = []

    def method(block: Any, factors: tuple[int, ...]) -> Any:
        seen.append(block.shape)
        return largest(block, factors)

    image = gzarr.images.create_image(tmp_path / "a", data=DATA, axes="yx", chunks=(32, 32), levels=0)
    limits = {"max_nbytes": 400_000} if device == "cpu" else {"max_device_nbytes": 800_000}
    built = gzarr.images.build_pyramid(image, 1, method=method, device=device, **limits)  # type: ignore[arg-type]
    np.testing.assert_array_equal(built.levels[1].to("cpu")[...], DATA[::2, ::2])
    # Of 41 bytes for each element: the trial has the whole image.
    assert seen[0] == DATA.shape
    assert max(np.prod(shape) for shape in seen[1:]) * 41 <= 400_000


def test_filters_keep_to_the_memory_of_the_device(tmp_path: Path) -> None:
    data = np.tile(DATA, (4, 4))
    source = gzarr.create_array(tmp_path / "a", data=data, chunks=(200, 200))
    shapes: list[tuple[int, ...]] = []

    def blurred(block: Any) -> Any:
        shapes.append(block.shape)
        return block // 2

    out = gzarr.images.map_overlap(
        blurred, source, tmp_path / "b", 2, device="emulated", max_device_nbytes=3_000_000, max_nbytes=1
    )
    np.testing.assert_array_equal(out.to("cpu")[...], data // 2)
    assert len(shapes) > 3
    with pytest.raises(ValueError, match="max_nbytes"):
        gzarr.images.map_overlap(blurred, source, tmp_path / "c", 2, device="cpu", max_nbytes=1, max_device_nbytes=1000)


def test_workers_of_a_cluster_have_their_own_memory(tmp_path: Path) -> None:
    image = gzarr.images.create_image(tmp_path / "a", data=DATA, axes="yx", levels=0)
    with pytest.raises(ValueError, match="max_device_nbytes"):
        gzarr.images.build_pyramid(image, 1, max_device_nbytes=1000, on=object())
