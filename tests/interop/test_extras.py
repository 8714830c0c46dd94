"""Without the library that a bridge needs, importing it says which extra brings it; gzarr itself needs neither."""

import pytest

from tests.support.processes import run_python


@pytest.mark.parametrize("library", ["dask", "xarray", "torch", "jax", "zarr"])
def test_a_missing_library_is_named_with_its_extra(library):
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "import gzarr\n"
        f"try:\n    import gzarr.interop.{library}\n"
        "except gzarr.errors.MissingExtraError as error:\n    print(error)"
    )
    assert f"pip install 'gzarr[{library}]'" in run_python(code)


def test_bridges_are_imported_where_they_are_first_used():
    code = (
        "import sys, gzarr; print(sorted({'dask', 'xarray', 'pandas', 'torch', 'jax'} & set(sys.modules)))\n"
        "print(gzarr.interop.dask.__name__, hasattr(gzarr.interop, 'numpy'))"
    )
    assert run_python(code).split() == ["[]", "gzarr.interop.dask", "False"]
