"""Fields and casts by the compiled loop: NumPy's values, and the files of the reference path."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.codecs import BytesCodec, ShardingCodec
from tests.cpu.compiled.looping import SHAPE, Watched, needs_loop
from tests.cpu.compiled.test_read_blocks import CHUNK as LARGE_CHUNK
from tests.cpu.compiled.test_read_blocks import CODECS
from tests.cpu.compiled.test_read_blocks import SHAPE as LARGE
from tests.properties.cases import same

pytestmark = [needs_loop, pytest.mark.usefixtures("few_chunks_are_enough")]

RECORD = np.dtype([("a", "<i4"), ("b", "<f4"), ("c", "u1", (3,)), ("d", "<i8")])


def records(shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    numbers = np.random.default_rng(1).integers(0, 250, shape)
    out = np.zeros(shape, RECORD)
    out["a"], out["b"], out["d"] = numbers, numbers / 2, -numbers
    return out


@pytest.mark.parametrize("codecs", [CODECS, [BytesCodec()], [ShardingCodec(LARGE_CHUNK, CODECS)]])
def test_fields_and_casts_of_large_chunks(codecs: list[Any], tmp_path: Path, watched: Watched) -> None:
    chunks = (260, 400, 10) if len(codecs) == 1 and isinstance(codecs[0], ShardingCodec) else LARGE_CHUNK
    model = records(LARGE)
    for name in ("records", "numbers"):
        held = model if name == "records" else model["d"]
        array = gzarr.create_array(
            tmp_path, name=name, shape=LARGE, chunks=chunks, dtype=held.dtype, codecs=codecs, fill_value=None
        )
        array[...] = held
        for key in (np.s_[:], np.s_[7], np.s_[3::7, ::50], np.s_[100:150, :, 4], np.s_[:, 5]):
            if name == "records":
                same(array.get_basic_selection(key, fields="d"), held["d"][key])
            else:
                same(array.astype("f4")[key], held[key].astype("f4"))
        lists = [5, 129, 131, 4], [3, 220], [0, 7, 5]
        if name == "numbers":
            same(array.astype("i2").oindex[lists], held[np.ix_(*lists)].astype("i2"))
    assert watched.done > 0
    assert watched.left == 0
