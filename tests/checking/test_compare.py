"""Comparisons: equal hierarchies are equal however they are stored, and every difference is named."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.checking import values
from gzarr.checking.values import Tolerance, unequal
from gzarr.errors import NodeNotFoundError

DATA = np.arange(40 * 30, dtype="f4").reshape(40, 30)


def make(zarr_format: Any = 3, **keywords: Any) -> gzarr.Group:
    root = gzarr.group(zarr_format=zarr_format, attributes={"title": "test", "n": 1})
    options = {"chunks": (10, 7), "fill_value": np.nan, "attributes": {"unit": "m"}, **keywords}
    root.create_array("a/x", data=DATA, **options)
    root.create_array("words", data=np.array(["a", "bc"], object), dtype=str)
    return root


def differences(a: Any, b: Any, **options: Any) -> list[tuple[str, str]]:
    found = gzarr.compare(a, b, **options)
    assert bool(found) == found.equal == (not found.differences)
    json.dumps(found.to_json(), allow_nan=False)
    return [(difference.path, difference.what) for difference in found.differences]


@pytest.mark.parametrize(
    "other", [{}, {"zarr_format": 2}, {"chunks": (40, 4)}, {"shards": (20, 14)}, {"compressors": None}]
)
def test_layouts_do_not_count(other: dict[str, Any], tmp_path: Path) -> None:
    root = make()
    assert differences(root, make(**other)) == []
    found = gzarr.compare(root, make(**other))
    assert bool(found.layout) == bool(other)
    assert bool(differences(root, make(**other), strict=True)) == bool(other)
    assert found.narrays == 2
    assert "equal" in repr(found)


def test_a_copy_is_equal(tmp_path: Path) -> None:
    root = make(dimension_names=("y", "x"), fill_value=0)
    for zarr_format in (2, 3):
        dest = tmp_path / f"{zarr_format}.zarr"
        gzarr.transfer(root, dest, zarr_format=zarr_format)
        assert differences(root, dest) == []


def test_metadata() -> None:
    root, other = make(), make(attributes={"unit": "s"}, fill_value=1.0, dimension_names=("y", "x"))
    other.attrs["n"] = True
    assert differences(root, other) == [
        ("", "attributes"),
        ("a/x", "fill_value"),
        ("a/x", "attributes"),
        ("a/x", "dimension_names"),
    ]
    assert "{'unit': 'm'} != {'unit': 's'}" in repr(gzarr.compare(root, other))


def test_shape_and_dtype() -> None:
    a = gzarr.array(np.arange(6))
    assert differences(a, gzarr.array(np.arange(7))) == [("", "shape")]
    assert differences(a, gzarr.array(np.arange(6, dtype="i4"))) == [("", "dtype")]
    assert differences(a, gzarr.array(np.arange(6, dtype=">i8"), zarr_format=2)) == []


def test_members() -> None:
    root, other = make(), make()
    del other["words"]
    other.create_array("a/y/z", data=[1])
    root.create_group("kind")
    other.create_array("kind", data=[1])
    assert differences(root, other) == [("a/y", "member"), ("kind", "kind"), ("words", "member")]
    assert "/words: member: an array != missing" in repr(gzarr.compare(root, other))
    assert differences(root, other["a/x"]) == [("", "kind")]


@pytest.mark.parametrize("region", [1, 1000, 1 << 25])
def test_values(region: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "REGION_NBYTES", region)
    root, other = make(), make(chunks=(13, 5))
    other["a/x"][3, 4] = np.nan
    other["a/x"][39, 29] = 0
    other["words"][1] = "bd"
    found = gzarr.compare(root, other)
    x, words = (difference.values for difference in found.differences)
    assert x is not None
    assert words is not None
    assert (x.count, x.size, x.largest) == (2, 1200, 1199.0)
    assert sorted(x.first) == [((3, 4), "94.0", "nan"), ((39, 29), "1199.0", "0.0")]
    assert (words.count, words.largest, words.first) == (1, None, (((1,), "bc", "bd"),))
    assert differences(root, other, metadata_only=True) == []


def test_only_some_differences_are_named() -> None:
    found = gzarr.compare(gzarr.zeros(100), gzarr.ones(100)).differences[-1].values
    assert found is not None
    assert (found.count, len(found.first), found.first[0][0]) == (100, 5, (0,))


def test_tolerance() -> None:
    a, b = gzarr.array([1.0, 100.0, np.inf, np.nan]), gzarr.array([1.1, 101.0, np.inf, np.nan])
    assert (differences(a, b), differences(a, b, atol=0.2)) == ([("", "values")], [("", "values")])
    assert differences(a, b, atol=0.2, rtol=0.01) == []
    assert differences(gzarr.array(np.uint8([1, 255])), gzarr.array(np.uint8([2, 254])), atol=1) == []
    assert differences(gzarr.array(np.uint8([1, 255])), gzarr.array(np.uint8([2, 252])), atol=1) == [("", "values")]


NAT = np.datetime64("NaT", "s")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (np.array([np.nan, 1, -0.0]), np.array([np.nan, 2, 0.0]), [False, True, False]),
        (np.array([NAT, NAT]), np.array([NAT, np.datetime64(0, "s")]), [False, True]),
        (np.array([complex(np.nan, 1), 1j]), np.array([complex(np.nan, 2), 2j]), [False, True]),
        (np.array([2**63, 2**64 - 1], "u8"), np.array([2**63, 0], "u8"), [False, True]),
        (np.array([2**63], "u8"), np.array([-(2**63)], "i8"), [True]),
        (np.array(["a", "b"]), np.array(["a", "bb"]), [False, True]),
        (np.array([(1, np.nan), (2, 1)], "i4,f4"), np.array([(1, np.nan), (2, 2)], "i4,f4"), [False, True]),
        (np.array([([1, 2],), ([3, 4],)], "(2,)i4,"), np.array([([1, 2],), ([3, 5],)], "(2,)i4,"), [False, True]),
        (np.array([b"ab", b"cd"], "V2"), np.array([b"ab", b"ce"], "V2"), [False, True]),
        (np.array([True, False]), np.array([True, True]), [False, True]),
    ],
)
def test_types(a: Any, b: Any, expected: list[bool]) -> None:
    assert unequal(a, b, Tolerance()).tolist() == expected
    assert not unequal(a, a.copy(), Tolerance()).any()
    if a.dtype == b.dtype and a.dtype.kind != "V":
        found = gzarr.compare(gzarr.array(a), gzarr.array(b)).differences
        assert found[0].values is not None
        assert found[0].values.count == 1


def test_objects() -> None:
    a, b = np.empty(3, object), np.empty(3, object)
    a[:] = [np.array([1, 2]), np.array([1.0, np.nan]), None]
    b[:] = [np.array([1, 2, 3]), np.array([1.0, np.nan]), None]
    assert unequal(a, b, Tolerance()).tolist() == [True, False, False]


def test_small_floats() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    a = np.array([1, np.nan, 2], ml_dtypes.bfloat16)
    assert unequal(a, np.array([1, np.nan, 3], ml_dtypes.bfloat16), Tolerance()).tolist() == [False, False, True]


def test_the_largest_difference_of_integers() -> None:
    a = gzarr.array(np.array([-(2**63), 5], "i8"))
    found = gzarr.compare(a, gzarr.array(np.array([2**63 - 1, 5], "i8"))).differences[0].values
    assert found is not None
    assert found.largest == 2.0**64 - 1


def test_infinity_in_json() -> None:
    assert differences(gzarr.array([np.inf]), gzarr.array([1.0])) == [("", "values")]


def test_damage_and_nothing(tmp_path: Path) -> None:
    root, other = make(), make()
    other.store["a/x/c/0/0"] = b"damaged"
    assert differences(root, other) == [("a/x", "unreadable")]
    assert "a/x/c/0/0" in repr(gzarr.compare(root, other))
    with pytest.raises(NodeNotFoundError):
        gzarr.compare(root, tmp_path / "none.zarr")


def test_consolidated_groups_need_no_listing(tmp_path: Path) -> None:
    root = make()
    gzarr.consolidate_metadata(root)
    assert differences(gzarr.open_consolidated(root.store), make()) == []


def test_progress() -> None:
    seen: list[tuple[int, int, str]] = []
    gzarr.compare(make(), make(), progress=lambda *args: seen.append(args))
    assert seen[-1][0] == seen[-1][1] == DATA.nbytes + 16
