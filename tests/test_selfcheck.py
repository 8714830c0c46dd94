"""The self-check: a sound device passes, each kind of fault is named, every codec is checked."""

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr import selfcheck
from gzarr.gpu.codecs import TABLE
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from gzarr.gpu.pipeline import copies

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")


@needs_compiler
def test_a_device_without_faults_passes() -> None:
    assert selfcheck.find_faults("emulated") == []


@needs_compiler
def test_each_kind_of_fault_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    decompress, point_boxes = EmulatedDevice.decompress, copies._point_boxes

    def spoil(self: Any, decoder: str, source: Any, nbytes: Any, target: Any, *args: Any, **options: Any) -> Any:
        outcome = decompress(self, decoder, source, nbytes, target, *args, **options)
        if decoder == "lz4":
            np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * 1).from_address(int(target[-1])))[0] ^= 1
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(EmulatedDevice, "decompress", spoil)
        names = {fault.partition(":")[0] for fault in selfcheck.find_faults("emulated")}
        assert names == {"blosc lz4 byte-shuffled", "lz4", "delta and shuffle"}

    def no_points(counts: np.ndarray, *args: Any) -> Any:
        return point_boxes(np.zeros_like(counts), *args)

    with monkeypatch.context() as patch:
        patch.setattr(copies, "_point_boxes", no_points)
        faults = selfcheck.find_faults("emulated")
        assert "big-endian transposed: the GPU reads other values than the CPU at single points" in faults
    with monkeypatch.context() as patch:
        patch.setattr(EmulatedDevice, "decompress", None)
        assert any("TypeError" in fault for fault in selfcheck.find_faults("emulated"))


def test_every_codec_that_the_device_claims_is_checked() -> None:
    """The exceptions are codecs that nothing on the host writes, and second names of the same functions."""
    named = set()
    for keywords in [*selfcheck.default_cases().values(), *selfcheck.CASES.values()]:
        try:
            made = gzarr.create_array({}, shape=4, **{"dtype": "f4", **keywords, "chunks": 4, "shards": None})
        except gzarr.MissingExtraError as error:
            pytest.skip(str(error))
        named |= {placed.step for placed in made.placement}
    unwritten = {"nvcomp.ans", "nvcomp.bitcomp", "nvcomp.cascaded"}
    seconds = {"numcodecs.blosc", "numcodecs.crc32c", "numcodecs.gzip", "numcodecs.nvcomp_batch", "numcodecs.zstd"}
    assert set(TABLE) - named <= unwritten | seconds
