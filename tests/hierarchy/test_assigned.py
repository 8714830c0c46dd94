"""Floats that are out of range for integers become the same numbers as where NumPy assigns them, however they lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gzarr
from tests.support.values import check_as_numpy, floats_out_of_range

pytestmark = pytest.mark.filterwarnings("ignore:.*(encountered in|discards the imaginary)")


def made(shape: Any, dtype: Any) -> gzarr.Array:
    chunks = tuple(max(n // 3, 1) for n in shape)
    return gzarr.create_array(shape=shape, chunks=chunks, dtype=dtype, zarr_format=2, fill_value=0)


#: Shape, and what NumPy assigns into by slices and integers: its cast runs along what lies next to each other there.
FORMS = (
    *(((97,), key) for key in np.s_[..., ::3, 5:77, ::-1, 90:2:-4]),
    *(((41, 53), key) for key in np.s_[:, ::3, 7:8, (..., slice(None, None, 3)), (slice(2, 30), slice(5, 44))]),
    *(((41, 53), key) for key in np.s_[(slice(None, None, -2), 1), (slice(None, None, 2), slice(3, None, 2))]),
    *(
        ((5, 13, 11), key)
        for key in np.s_[(slice(1, 4), slice(None, None, 2), slice(None, None, -3)), (slice(None), 3)]
    ),
    *(((6, 1, 50), key) for key in np.s_[::2, (slice(None), 0, slice(None, None, 2)), (slice(None, None, 2), ..., 1)]),
    *(((41, 53), key) for key in ([1, 5, 3, 9] * 4, (slice(2, 30), [1, 5, 3, 9] * 4), (0, [1, 5, 3, 9] * 4))),
)


@pytest.mark.parametrize(
    ("source", "target"), [("f4", "<u4"), (">f8", "<u4"), ("c8", "<u4"), ("f2", "u1"), ("f8", ">i8")]
)
def test_floats_become_what_numpy_makes_of_them(source: str, target: str) -> None:
    """Of the whole value, along the same axes: a cast makes other numbers of neighbours than of elements far apart."""
    for shape, key in FORMS if target == "<u4" else FORMS[::4]:
        array = made(shape, target)
        wanted = np.zeros(shape, target)[key].shape
        value, wide = (floats_out_of_range(tuple(n * k for n in wanted), source) for k in (1, 2))
        for given in (value, np.asfortranarray(value), value[::-1], wide[(slice(None, None, 2),) * len(wanted)]):
            check_as_numpy(array, key, given)
        if len(wanted) > 1:
            check_as_numpy(array, key, value[:1])
        if not _has_list(key):
            check_as_numpy(array, key, floats_out_of_range((), source))


def _has_list(key: Any) -> bool:
    return any(isinstance(item, list) for item in (key, *(key if isinstance(key, tuple) else ())))


def test_floats_out_of_range_in_points_fields_and_appended_rows() -> None:
    array = made((41, 53), "u4")
    rows = np.arange(40).reshape(4, 10)
    for value in (floats_out_of_range((4, 10), "f4"), floats_out_of_range((10, 4), "f4").T):
        check_as_numpy(array, (rows, rows), value)
    array = made((41, 53), [("a", "u1"), ("b", "<u4")])
    check_as_numpy(array, "b", floats_out_of_range((41, 53), "f8"))
    for axis, value in enumerate((floats_out_of_range((41, 5), "f4"), floats_out_of_range((3, 7), "f4"))):
        array = made((3, 5), "u4")
        shape = array.append(value, axis)
        grown = np.zeros(shape, "u4")
        grown[(slice(None),) * axis + (slice((3, 5)[axis], None),)] = value
        np.testing.assert_array_equal(np.asarray(array), grown)
