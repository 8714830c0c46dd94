"""A new codec is a spec and one entry for each backend: nothing else has to know of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pytest

import gzarr
from gzarr.codecs import ArrayRepr, Codec, CodecSpec, Step, register_codec
from gzarr.codecs.registry import _FACTORIES, _SPECS
from gzarr.codecs.spec import Kind, Repr, need_array
from gzarr.cpu.codecs.per_chunk import per_chunk
from gzarr.gpu.backend import GpuBackend
from gzarr.gpu.codecs import TABLE, device_codec
from gzarr.gpu.codecs.batch import BatchContext, DeviceCodec
from gzarr.gpu.codecs.filters import Filter, filter_codec
from gzarr.gpu.device.emulated import EmulatedDevice

DATA = np.arange(23 * 17, dtype="<i4").reshape(23, 17)


# -- what codecs/mask.py would hold ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MaskCodec(CodecSpec):
    """Flips the bits of integers that are set in a mask."""

    mask: int = 0

    name = "mask"
    kind: ClassVar[Kind] = "array_array"

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        array = need_array(self.name, decoded)
        return self, ArrayRepr(array.dtype, array.shape, array.fill_value)


# -- what cpu/codecs/mask.py would hold --------------------------------------------------------------------------


def on_cpu(step: Step) -> Codec:
    mask = step.spec.configuration()["mask"]
    return per_chunk("mask", lambda chunk: chunk ^ mask, lambda chunk: chunk ^ mask)


# -- what gpu/codecs/mask.py would hold --------------------------------------------------------------------------


def flipping(step: Step, direction: str) -> Filter | str:
    if not isinstance(step.decoded, ArrayRepr) or step.decoded.dtype.kind not in "iu":
        return "masks are for integers"
    dtype, mask = step.decoded.dtype.newbyteorder("="), step.spec.configuration()["mask"]

    def run(context: BatchContext, rows: Any) -> Any:
        return (rows.view(dtype) ^ mask).view(np.uint8)

    return run


ON_DEVICE = filter_codec(flipping)


@pytest.fixture
def mask() -> Iterator[None]:
    """Registers the codec, as `gzarr.codecs` does with its own."""
    kept = [(table, dict(table)) for table in (_SPECS, *_FACTORIES.values())]
    register_codec(MaskCodec, cpu=on_cpu, gpu=ON_DEVICE)
    yield
    for table, before in kept:
        table.clear()
        table.update(before)


@pytest.mark.usefixtures("mask")
@pytest.mark.parametrize("compressors", [None, gzarr.codecs.ZstdCodec(1)])
def test_both_directions_run_on_both_backends(compressors: Any) -> None:
    options = {"chunks": (12, 9), "filters": MaskCodec(0x5A5A), "compressors": compressors}
    stored = gzarr.create_array({}, data=DATA, device="cpu", **options)
    assert np.array_equal(stored[:], DATA)
    device = GpuBackend(EmulatedDevice(), strict=True)
    array = gzarr.open_array(stored.store, mode="r", device=device)
    assert {row.where for row in array.placement} == {"emulated"}
    assert np.array_equal(array[:], DATA)
    written = gzarr.create_array({}, shape=DATA.shape, dtype=DATA.dtype, device=device, **options)
    written[...] = DATA
    assert np.array_equal(gzarr.open_array(written.store, mode="r", device="cpu")[:], DATA)
    if compressors is None:
        assert {key: bytes(data) for key, data in stored.store.items()} == {
            key: bytes(data) for key, data in written.store.items()
        }


@pytest.mark.usefixtures("mask")
def test_the_reason_of_an_entry_is_that_of_the_placement() -> None:
    array = gzarr.create_array({}, shape=9, dtype="f4", filters=MaskCodec(1), device="cpu")
    rows = array.to(GpuBackend(EmulatedDevice())).placement
    assert [(row.where, row.why) for row in rows if row.step == "mask"] == [("host", "masks are for integers")]


@pytest.mark.usefixtures("mask")
def test_a_registered_entry_comes_before_that_of_the_table() -> None:
    assert device_codec("mask") is ON_DEVICE
    register_codec(gzarr.codecs.ZstdCodec, gpu=ON_DEVICE)
    assert device_codec("zstd") is ON_DEVICE
    assert device_codec("unheard of") is None


def test_the_table_holds_pairs() -> None:
    assert all(isinstance(codec, DeviceCodec) for codec in TABLE.values())
    assert {"blosc", "bytes", "crc32c", "gzip", "transpose", "zstd", "numcodecs.delta", "nvcomp.ans"} <= set(TABLE)
