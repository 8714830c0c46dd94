"""Blosc frames that only the device has are taken apart as those that the host sees."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numcodecs import blosc as encoder

from gzarr.errors import CodecError
from gzarr.gpu.codecs.batch import BatchContext, Streams
from gzarr.gpu.codecs.blosc import parsing
from gzarr.gpu.codecs.blosc.on_device import parse_blosc
from gzarr.gpu.device.emulated import EmulatedDevice
from gzarr.gpu.device.hostbuild import find_compiler
from tests.gpu.staging_buffers import StagingBuffer, damaged, staging_buffer_of

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler: the kernels cannot be built")

NBYTES = 48_000


def frame(number: int, name: str = "lz4") -> bytes:
    """A frame of `NBYTES`, whose kind goes by its number."""
    rng = np.random.default_rng(number)
    values = rng.integers(0, 256 if number % 3 else 4, NBYTES, np.uint8)
    dtype = ("u1", "i2", "f4", "f8", "V3", "V24")[number % 6]
    level = (5, 9, 1, 0)[number % 4]
    blocksize = (0, 4096, 1000, 30_000)[number // 2 % 4]
    made: bytes = encoder.compress(values.view(dtype), name.encode(), level, number % 3, blocksize)
    return made


def on_device(device: EmulatedDevice, staging_buffer: StagingBuffer) -> Streams:
    return Streams(None, device.upload(staging_buffer.data), staging_buffer.offsets, staging_buffer.sizes, device)


def outcome(device: EmulatedDevice, staging_buffer: StagingBuffer) -> parsing.BloscTable | CodecError:
    try:
        return parse_blosc(BatchContext(device), on_device(device, staging_buffer), NBYTES)
    except CodecError as error:
        return error


def same(one: parsing.BloscTable, other: parsing.BloscTable) -> None:
    for field in dataclasses.fields(one):
        if field.name != "streams":
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), err_msg=field.name)
    for field in dataclasses.fields(one.streams):
        mine, theirs = getattr(one.streams, field.name), getattr(other.streams, field.name)
        np.testing.assert_array_equal(mine, theirs, err_msg=field.name)
        assert mine.dtype == theirs.dtype


@pytest.mark.parametrize("seed", range(6))
def test_sound_frames(seed: int) -> None:
    device = EmulatedDevice()
    staging_buffer = staging_buffer_of([frame(seed * 20 + i, ("lz4", "lz4hc")[i % 2]) for i in range(20)], seed=seed)
    batch = on_device(device, staging_buffer)
    same(parse_blosc(BatchContext(device), batch, NBYTES), parsing.parse_frames(*staging_buffer, NBYTES))
    assert batch.copy is None  # the host has not seen more than headers
    assert device.launches == ["blosc_parse"]


def test_only_stored_frames() -> None:
    device = EmulatedDevice()
    staging_buffer = staging_buffer_of([frame(3), frame(7)])
    batch = on_device(device, staging_buffer)
    table = parse_blosc(BatchContext(device), batch, NBYTES)
    assert table.memcpy.all()
    same(table, parsing.parse_frames(*staging_buffer, NBYTES))
    assert device.launches == []


@pytest.mark.parametrize("name", ["zstd", "zlib", "blosclz"])
def test_other_compressors_are_taken_apart_on_the_host(name: str) -> None:
    device = EmulatedDevice()
    staging_buffer = staging_buffer_of([frame(2), frame(9, name), frame(5)])
    batch = on_device(device, staging_buffer)
    same(parse_blosc(BatchContext(device), batch, NBYTES), parsing.parse_frames(*staging_buffer, NBYTES))
    assert batch.copy is not None


@pytest.mark.parametrize("seed", range(12))
def test_damaged_frames_are_refused_or_give_what_lies_within(seed: int) -> None:
    rng = np.random.default_rng(seed)
    device = EmulatedDevice()
    refused = 0
    for chunk in damaged(frame(seed), rng, 40):
        staging_buffer = staging_buffer_of([frame(0), chunk])
        table = outcome(device, staging_buffer)
        if isinstance(table, CodecError):
            refused += 1
            assert (table.index, table.codec) == (1, "blosc")
            continue
        streams = table.streams
        low, high = (
            staging_buffer.offsets[streams.frame],
            (staging_buffer.offsets + staging_buffer.sizes)[streams.frame],
        )
        assert (streams.source >= low).all()
        assert (streams.source + streams.csize <= high).all()
        assert (streams.dest + streams.nbytes <= NBYTES).all()
        here = streams.frame[~table.to_host[streams.frame]]
        filled = np.bincount(here, streams.nbytes, minlength=2)
        assert (filled[~table.to_host] == NBYTES).all()
    assert refused > 10


def test_what_the_host_refuses_is_refused() -> None:
    device = EmulatedDevice()
    refused = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        for chunk in damaged(frame(1), rng, 8):
            staging_buffer = staging_buffer_of([chunk], tight=True)
            try:
                parsing.parse_frames(*staging_buffer, NBYTES)
            except CodecError:
                if int.from_bytes(chunk[16:20], "little", signed=True) != 0:  # the kernel lets blocks begin at 0
                    refused += 1
                    with pytest.raises(CodecError):
                        parse_blosc(BatchContext(device), on_device(device, staging_buffer), NBYTES)
    assert refused > 50
