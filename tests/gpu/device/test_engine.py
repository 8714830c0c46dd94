"""The decompression engine is used where the driver says that there is one, and where damage cannot reach it."""

from __future__ import annotations

from typing import Any

import pytest

import gzarr
from gzarr import codecs
from gzarr.gpu.device.engine import Engine, engine_note, find_engine


class Driver:
    """libcuda with some attributes; it refuses others with CUDA_ERROR_INVALID_VALUE."""

    def __init__(self, attributes: dict[int, int]) -> None:
        self._attributes = attributes

    def cuDeviceGet(self, device: Any, number: int) -> int:  # noqa: N802 - CUDA's name
        device._obj.value = number
        return 0 if number < 2 else 101

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:  # noqa: N802 - CUDA's name
        if attribute not in self._attributes:
            return 1
        value._obj.value = self._attributes[attribute]
        return 0


B200 = Driver({136: 7, 137: 4 << 20})


def test_the_driver_says_what_the_engine_takes() -> None:
    assert find_engine(1, "auto", B200) == Engine(
        frozenset({"lz4", "snappy", "deflate", "gzip"}), 4 << 20, always=False
    )
    assert find_engine(0, "on", Driver({136: 4, 137: 9})) == Engine(frozenset({"lz4"}), 9, always=True)


@pytest.mark.parametrize("driver", [Driver({136: 0, 137: 0}), Driver({}), Driver({136: 7})], ids=["H200", "old", "odd"])
def test_other_gpus_have_none(driver: Driver) -> None:
    assert find_engine(0, "on", driver) is None


def test_it_can_be_turned_off_and_needs_a_device() -> None:
    assert find_engine(0, "off", B200) is None
    assert find_engine(2, "auto", B200) is None


@pytest.mark.parametrize(
    ("decoder", "nbytes", "verified", "always", "takes"),
    [
        ("lz4", 100, True, False, True),
        ("lz4", 100, False, False, False),
        ("lz4", 100, False, True, True),
        ("lz4", 101, True, True, False),
        ("zstd", 100, True, True, False),
    ],
)
def test_it_takes_verified_streams_of_its_formats_that_are_small_enough(
    decoder: str, nbytes: int, verified: bool, always: bool, takes: bool
) -> None:
    engine = Engine(frozenset({"lz4"}), 100, always)
    assert engine.takes(decoder, nbytes, verified=verified) == takes


def test_placement_says_whether_it_may_be_used() -> None:
    engine = Engine(frozenset({"lz4"}), 100, always=False)
    lz4, crc = codecs.NumcodecsCodec("lz4"), codecs.Crc32cCodec()
    assert engine_note(None, [lz4, crc]) is None
    assert engine_note(engine, [codecs.ZstdCodec(), crc]) is None
    assert engine_note(engine, [crc, lz4, crc]) == (
        1,
        "by the decompression engine where nvCOMP finds that streams of up to 100 bytes fit",
    )
    step, why = engine_note(engine, [crc, lz4]) or (-1, "")
    assert (step, "no checksum is verified before (gpu.decompression_engine)" in why) == (1, True)
    assert "hide damage" not in (engine_note(engine._replace(always=True), [lz4]) or (0, ""))[1]


def test_the_setting_has_three_values() -> None:
    with (
        pytest.raises(ValueError, match=r"gpu\.decompression_engine"),
        gzarr.config.set({"gpu.decompression_engine": 1}),
    ):
        pass
