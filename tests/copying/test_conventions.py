"""Names, attributes and codecs translated between formats."""

import numpy as np

import gzarr


def test_between_formats_codecs_and_names_are_translated():
    source, dest = gzarr.group(), gzarr.group(zarr_format=2)
    source.create_array("a", data=np.arange(10.0), chunks=3, dimension_names=("x",))
    gzarr.copy_all(source, dest)
    assert dest["a"].zarr_format == 2
    assert dest["a"].attrs["_ARRAY_DIMENSIONS"] == ["x"]
    back = gzarr.group()
    gzarr.copy_all(dest, back)
    assert back["a"].dimension_names == ("x",)
    assert dict(back["a"].attrs) == {}
    assert np.array_equal(back["a"][:], np.arange(10.0))
