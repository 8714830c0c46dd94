"""The backend of the host, without the compiled loop: results that are no plain arrays."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.codecs import BloscCodec, BytesCodec
from gzarr.storage import MemoryStore
from tests.properties.cases import same


@pytest.fixture(autouse=True, scope="module")
def without_the_compiled_loop() -> Iterator[None]:
    with gzarr.config.set({"cpu.native": False}):
        yield


def stored_in_compressed_rows() -> tuple[gzarr.Array, np.ndarray]:
    model = np.arange(120, dtype="<i4").reshape(4, 30)
    codecs = [BytesCodec(), BloscCodec("lz4", 5, "shuffle", 4)]
    array = gzarr.create_array(MemoryStore(), shape=model.shape, chunks=(1, 30), dtype="<i4", codecs=codecs)
    array[...] = model
    return array, model


class Collected:
    """Something to read into that keeps what it is given."""

    def __init__(self, model: np.ndarray) -> None:
        self.shape, self.dtype = model.shape, model.dtype
        self.pieces: list[tuple[Any, Any]] = []

    def __setitem__(self, index: Any, value: Any) -> None:
        self.pieces.append((index, value))


def test_what_keeps_the_pieces_given_to_it_keeps_their_values() -> None:
    array, model = stored_in_compressed_rows()
    out: Any = Collected(model)
    array.get_basic_selection(..., out=out)
    assert len(out.pieces) == 4
    for index, piece in out.pieces:
        same(piece, model[index])


def test_masked_arrays_are_unmasked_where_they_are_read_into() -> None:
    array, model = stored_in_compressed_rows()
    out = np.ma.masked_all(model.shape, model.dtype)
    array.get_basic_selection(..., out=out)
    assert not np.ma.getmaskarray(out).any()
    same(out.data, model)


def test_a_result_that_refuses_values_does_not_make_the_chunk_a_damaged_one() -> None:
    words = np.array(["one", "two"])
    array = gzarr.create_array(
        MemoryStore(), shape=2, chunks=2, dtype=words.dtype, codecs=[BytesCodec()], fill_value="0"
    )
    array[...] = words
    with pytest.raises(ValueError, match="one"):
        array.astype("i4")[...]
