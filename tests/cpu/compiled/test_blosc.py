"""The compiled loop makes Blosc frames block by block, byte by byte those of numcodecs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest

import gzarr
from gzarr.codecs import BloscCodec
from gzarr.codecs.spec import BytesRepr, Step
from gzarr.cpu.compiled import library, source

pytestmark = pytest.mark.skipif(library.loop() is None, reason=f"the compiled loop is {library.status()}")

#: 3 x 2 chunks whose blocks end within rows.
SHAPE, CHUNK = (150, 134), (50, 67)
LAYOUTS: dict[str, Any] = {
    "rows": np.ascontiguousarray,
    "columns": np.asfortranarray,
    "reversed": lambda model: np.ascontiguousarray(model[::-1, ::-1])[::-1, ::-1],
    "spread": lambda model: np.repeat(np.repeat(model, 2, 0), 3, 1)[::2, ::3],
    "swapped": lambda model: model.astype(model.dtype.newbyteorder()),
    "row": lambda model: np.broadcast_to(model[0], SHAPE),
}


def smooth(dtype: str) -> Any:
    """Values whose upper bytes compress, and whose lowest ones do not."""
    rng = np.random.default_rng(5)
    field = np.cumsum(rng.integers(-9, 10, SHAPE), 0) + rng.integers(0, 256, SHAPE)
    return (field + 1j * field).astype(dtype) if dtype[1] == "c" else (field + 70_000).astype(dtype)


@pytest.mark.parametrize("blocksize", [0, 1024])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["<u2", "<i4", "<f8", "<c16"])
def test_frames_are_those_of_numcodecs(dtype: str, layout: str, order: Any, blocksize: int, tmp_path: Path) -> None:
    value = LAYOUTS[layout](smooth(dtype))
    codec = BloscCodec("lz4", 5, "shuffle", blocksize=blocksize)
    array = gzarr.create_array(
        tmp_path, shape=SHAPE, chunks=CHUNK, dtype=dtype, compressors=codec, order=order, zarr_format=2
    )
    array[...] = value
    theirs = numcodecs.Blosc("lz4", 5, numcodecs.Blosc.SHUFFLE, blocksize)
    for i in range(3):
        chunk = value[50 * i : 50 * i + 50, 67:].astype(dtype).ravel(order)
        assert (tmp_path / f"{i}.1").read_bytes() == theirs.encode(chunk)


def test_the_loop_makes_frames_of_lz4_whose_bytes_are_shuffled() -> None:
    def made(codec: BloscCodec) -> bool:
        step = Step(replace(codec, typesize=4), BytesRepr(4000, 4), BytesRepr())
        encoder = source.make_encoder(step, checksum=False)
        assert encoder is not None
        return encoder.frame != 0

    assert made(BloscCodec("lz4", 5, "shuffle"))
    assert not made(BloscCodec("lz4", 5, "bitshuffle"))
    assert not made(BloscCodec("lz4hc", 5, "shuffle"))
    assert not made(BloscCodec("lz4", 0, "shuffle"))
