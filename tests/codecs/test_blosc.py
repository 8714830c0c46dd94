"""Blosc's spec: spellings of its shuffle, and what it takes from the elements."""

import numpy as np
import pytest

from gzarr.codecs import BloscCodec, BytesRepr


@pytest.mark.parametrize(
    ("given", "kept"),
    [(0, "noshuffle"), (1, "shuffle"), (np.int64(2), "bitshuffle"), (-1, None), ("auto", None), (None, None)],
)
def test_blosc_takes_every_spelling_of_the_shuffle(given, kept) -> None:
    assert BloscCodec(shuffle=given).shuffle == kept


@pytest.mark.parametrize(("itemsize", "shuffle"), [(1, "bitshuffle"), (2, "shuffle"), (8, "shuffle")])
def test_blosc_takes_what_it_leaves_open_from_the_elements(itemsize: int, shuffle: str) -> None:
    spec, _ = BloscCodec().resolve(BytesRepr(80, itemsize))
    assert (spec.typesize, spec.shuffle) == (itemsize, shuffle)
    kept, _ = BloscCodec(shuffle="noshuffle", typesize=3).resolve(BytesRepr(80, itemsize))
    assert (kept.typesize, kept.shuffle) == (3, "noshuffle")
