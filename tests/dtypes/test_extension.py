"""Data types of ml_dtypes: their names, when they are imported, and what is said without them."""

import numpy as np
import pytest

from gzarr.dtypes import DataType, from_v2, from_v3, parse_dtype, to_v2, to_v3
from tests.support.processes import run_python

ml_dtypes = pytest.importorskip("ml_dtypes")


ML = (
    *("bfloat16", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e3m4", "float8_e4m3"),
    *("float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("float8_e8m0fnu", "int2", "int4", "uint2", "uint4"),
)


@pytest.mark.parametrize("name", ML)
def test_ml_dtypes_by_class_dtype_and_name(name):
    kind = getattr(ml_dtypes, name)
    expected = DataType(np.dtype(kind))
    for like in (kind, np.dtype(kind), name, {"name": name}, expected):
        assert parse_dtype(like) == expected
    assert to_v2(expected) == to_v3(expected) == expected.name == name
    assert from_v2(name) == from_v3(name) == expected
    assert from_v2([["a", name, [2]]]).dtype == np.dtype([("a", kind, (2,))])


@pytest.mark.parametrize(("name", "theirs"), [("complex_float16", "complex32"), ("complex_bfloat16", "bcomplex32")])
def test_ml_complex_types_have_other_names_in_zarr(name, theirs):
    expected = DataType(np.dtype(getattr(ml_dtypes, theirs)))
    assert parse_dtype(name) == from_v3(name) == from_v2(name) == parse_dtype(expected.dtype) == expected
    assert to_v3(expected) == to_v2(expected) == name


def test_ml_types_are_imported_only_when_named():
    out = run_python(
        "import sys; from gzarr.dtypes import from_v3, parse_dtype\n"
        "parse_dtype('i4'); from_v3('float32'); print('ml_dtypes' in sys.modules)\n"
        "print(parse_dtype('bfloat16').dtype.itemsize, 'ml_dtypes' in sys.modules)"
    )
    assert out.split() == ["False", "2", "True"]


@pytest.mark.parametrize("function", ["parse_dtype", "from_v2", "from_v3"])
def test_without_ml_dtypes_the_error_names_the_extra(function):
    out = run_python(
        "import sys; sys.modules['ml_dtypes'] = None\n"
        "import gzarr.dtypes; from gzarr.errors import MissingExtraError\n"
        f"try: gzarr.dtypes.{function}('bfloat16')\n"
        "except MissingExtraError as error: print(error)"
    )
    assert "'bfloat16'" in out
    assert "pip install 'gzarr[ml]'" in out
