"""Times without a unit, whose bytes NumPy does not swap when it casts: the order of stored bytes changes no value."""

import numpy as np
import pytest

import gzarr

VALUES = np.array([1, 2, -5, 7])
ORDERS = ("<", ">")


def times(order, kind="m", values=VALUES):
    return values.astype(f"{order}i8").view(f"{order}{kind}8")


def create(order, kind, zarr_format, **how):
    return gzarr.create_array({}, shape=4, chunks=3, dtype=f"{order}{kind}8", zarr_format=zarr_format, **how)


@pytest.mark.parametrize("device", ["cpu", "emulated"])
@pytest.mark.parametrize("kind", "mM")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("order", ORDERS)
def test_the_byte_order_of_values_results_and_chunks_does_not_matter(order, kind, zarr_format, device):
    array = create(order, kind, zarr_format, device=device)
    for given in ORDERS:
        array[:] = times(given, kind)
        array[1:3] = times(given, kind)[1:3]
        np.testing.assert_array_equal(np.asarray(array[:]).astype("i8"), VALUES)
        array[3] = times(given, kind)[3]
        array.vindex[[1, 0]] = times(given, kind)[[1, 0]]
        np.testing.assert_array_equal(np.asarray(array.oindex[[3, 1]]).astype("i8"), VALUES[[3, 1]])
        out = times(given, kind, values=np.zeros(8, "i8"))[::2]
        if device == "cpu":
            assert array.get_basic_selection(slice(None), out=out) is out
            np.testing.assert_array_equal(out.astype("i8"), VALUES)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("stored", ["everything", "nothing"])
def test_bytes_are_stored_in_the_order_that_the_metadata_say(zarr_format, stored):
    store = {}
    array = gzarr.create_array(
        store, shape=3, chunks=3, dtype=">m8", zarr_format=zarr_format, compressors=None, fill_value=4
    )
    array[:2] = times("<", values=VALUES[:2])
    np.testing.assert_array_equal(np.frombuffer(store["0" if zarr_format == 2 else "c/0"], ">i8"), [1, 2, 4])
    np.testing.assert_array_equal(gzarr.open_array(store)[:].astype("i8"), [1, 2, 4])
