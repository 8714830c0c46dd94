"""Images out of data whose axes have names and coordinates, as those of xarray: taken as they are meant, or refused."""

from typing import Any

import numpy as np
import pytest

import gzarr
import gzarr.images
from gzarr.images import ImageWriter, create_image, open_image
from gzarr.images.named_data import Placed, place

xr = pytest.importorskip("xarray")

PICTURE = np.arange(6 * 8 * 3, dtype="u1").reshape(6, 8, 3)


def picture(**coordinates: Any) -> Any:
    """A picture with its channels last, as cameras give it."""
    return xr.DataArray(PICTURE, dims=("y", "x", "c"), coords=coordinates)


def line(dim: str, values: Any, units: str | None = None) -> Any:
    return (dim, np.asarray(values), {} if units is None else {"units": units})


@pytest.mark.parametrize("lazy", [False, True])
def test_axes_go_into_the_order_of_ome_zarr(lazy: bool) -> None:
    data = picture()
    image = create_image(data=data.chunk({"y": 4}) if lazy else data, levels=1)
    assert image.axes == ("c", "y", "x")
    np.testing.assert_array_equal(image[0][...], PICTURE.transpose(2, 0, 1))
    stack = xr.DataArray(np.zeros((2, 3, 4, 5, 6), "u1"), dims=("x", "c", "time", "z", "y"))
    image = create_image(data=stack, levels=0)
    assert (image.axes, image.shape) == (("time", "c", "z", "y", "x"), (4, 3, 5, 6, 2))
    assert image[0].dimension_names == image.axes


def test_data_are_not_loaded_to_be_transposed() -> None:
    array = pytest.importorskip("dask.array")
    blocks = array.ones((64, 64, 2), chunks=(32, 64, 2)).map_blocks(
        pytest.fail, dtype="u1", meta=np.empty((0,) * 3, "u1")
    )
    placed = place(Placed(xr.DataArray(blocks, dims=("y", "x", "c"))), {})
    assert placed.data.chunksize == (2, 32, 64)


def test_coordinates_become_scale_translation_units_and_channels() -> None:
    data = picture(
        y=line("y", 5 + 0.1 * np.arange(6), "um"),
        x=line("x", np.float32(0.3) * np.arange(8, dtype="f4"), "micrometers"),
        c=["red", "green", "blue"],
    )
    image = create_image(data=data)
    assert [axis.unit for axis in image.metadata.axes] == [None, "micrometer", "micrometer"]
    assert image.scale(0) == pytest.approx({"c": 1, "y": 0.1, "x": 0.3}, rel=1e-6)
    assert image.metadata.datasets[0].translation == (0, 5, 0)
    assert [channel.label for channel in image.channels] == ["red", "green", "blue"]
    assert gzarr.images.validate(image.group).ok


def test_times_are_seconds() -> None:
    days = np.arange("2020-01-01", "2020-01-05", dtype="M8[D]").astype("M8[ns]")
    for values, start in ((days, 0), (days - days[0] + np.timedelta64(5, "s"), 5)):
        data = xr.DataArray(np.zeros((4, 5, 5), "u1"), dims=("t", "y", "x"), coords={"t": values})
        image = create_image(data=data, units={"y": "nanometer"})
        assert image.scale(0)["t"] == 86400
        assert image.metadata.datasets[0].translation[0] == start
        assert [axis.unit for axis in image.metadata.axes] == ["second", "nanometer", None]


def test_units_that_ome_zarr_does_not_know_and_other_coordinates_are_left_out() -> None:
    data = picture(y=line("y", range(6), "degrees_north"), x=line("x", range(8), "second"), run=7)
    assert [axis.unit for axis in create_image(data=data).metadata.axes] == [None] * 3
    assert create_image(data=data.isel(y=[3])).metadata.datasets[0].translation == (0, 3, 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 1, 2, 4, 5, 6], "are not regular"),
        ([0, 0, 0, 0, 0, 0], "are not regular"),
        ([0, 1, 2, np.nan, 4, 5], "are not regular"),
        ([5, 4, 3, 2, 1, 0], r"descend; sort the data, data.sortby\('y'\)"),
        (list("abcdef"), "are <U1; give numbers"),
    ],
)
def test_coordinates_that_no_image_can_have_are_refused(values: Any, message: str) -> None:
    with pytest.raises(gzarr.MetadataError, match=f"the coordinates of axis 'y' {message}.*drop_vars"):
        create_image(data=picture(y=values))


def test_coordinates_are_regular_but_for_the_rounding_of_their_type() -> None:
    """Those of maps often have 4 bytes."""
    for step, offset in ((1 / 240, 179), (0.1, 10_000)):
        image = create_image(data=picture(y=(offset + step * np.arange(6)).astype("f4")), levels=0)
        assert image.scale(0)["y"] == pytest.approx(step, rel=1e-2)
    with pytest.raises(gzarr.MetadataError, match="are not regular"):
        create_image(data=picture(y=np.array([0, 1, 2, 3.01, 4, 5], "f4")))


def test_names_that_ome_zarr_does_not_know_need_axes() -> None:
    data = picture().rename(y="lat", x="lon")
    with pytest.raises(gzarr.MetadataError, match="OME-Zarr does not know 'lat', 'lon'; name them all"):
        create_image(data=data)
    image = create_image(data=data, axes="yxc")
    np.testing.assert_array_equal(image[0][...], PICTURE.transpose(2, 0, 1))
    image = create_image(
        data=data.assign_coords(lat=np.arange(6) * 2.0), axes=["y", {"name": "x", "type": "space"}, "c"]
    )
    assert image.scale(0) == {"c": 1, "y": 2, "x": 1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"axes": "zyx"}, "axes: 'zyx' contradict the data, whose axes are"),
        ({"axes": "yx"}, "name each of them"),
        ({"scale": 2}, "scale: 2 contradicts the coordinates of the data, which say 0.5"),
        ({"scale": {"y": np.float32(0.4)}}, "scale: .*0.4.* contradicts"),
        ({"translation": {"y": 1.0}}, "translation: 1.0 contradicts"),
        ({"units": "nanometer"}, "units: 'nanometer' contradicts .*'micrometer'"),
        ({"axes": ["y", "x", "c"], "scale": (1, 1, 1)}, "scale: .* the order of .* is unclear; give data.transpose"),
        ({"chunks": (1, 4, 4)}, r"chunks: .* are stored as \('c', 'y', 'x'\)"),
    ],
)
def test_what_a_call_says_must_agree(given: dict[str, Any], message: str) -> None:
    data = picture(y=line("y", np.arange(6) * 0.5, "micrometer"))
    with pytest.raises(gzarr.MetadataError, match=message):
        create_image(data=data, **given)


def test_a_call_completes_the_data() -> None:
    data = picture(y=line("y", np.arange(6) * 0.5, "micrometer"), c=["a", "b", "c"])
    image = create_image(data=data, axes="yxc", scale=0.5, units="um", channels=["R", "G", "B"], chunks=None)
    assert image.scale(0) == {"c": 1, "y": 0.5, "x": 0.5}
    assert {axis.unit for axis in image.metadata.axes[1:]} == {"micrometer"}
    assert [channel.label for channel in image.channels] == ["R", "G", "B"]
    ordered = data.transpose("c", "y", "x")
    assert create_image(data=ordered, scale=(1, 0.5, 2), chunks=(1, 4, 4))[0].chunks == (1, 4, 4)


def test_stored_arrays_with_names(zarr_format: int) -> None:
    named = gzarr.create_array(
        data=xr.DataArray(PICTURE[..., 0], dims=("t", "y")).expand_dims("x", 2), zarr_format=zarr_format
    )
    assert create_image(data=named, levels=0).axes == ("t", "y", "x")
    last = gzarr.create_array(data=picture(), zarr_format=zarr_format)
    image = create_image(data=last, levels=0)
    assert image.axes == ("c", "y", "x")
    np.testing.assert_array_equal(image[0][...], PICTURE.transpose(2, 0, 1))
    assert create_image(data=last, axes="zyx").axes == ("z", "y", "x")


@pytest.mark.parametrize("names", [("time", "row", "col"), ("lon", "lat", "band"), (None, "x", "y")])
def test_stored_arrays_and_views_have_the_axes_that_open_image_finds(names: tuple[str | None, ...]) -> None:
    array = gzarr.create_array(data=PICTURE, dimension_names=names)
    wanted = open_image(array, "r")
    for data in (array, array.lazy):
        image = create_image(data=data, levels=0)
        assert image.axes == wanted.axes
        np.testing.assert_array_equal(image[0][...], wanted[0][...])


class Frames:
    """Data that can be sliced and no more, as those of a camera's file."""

    shape, dtype, chunks = PICTURE.shape, PICTURE.dtype, (3, 8, 3)

    def __getitem__(self, region: Any) -> Any:
        return PICTURE[region]


@pytest.mark.parametrize(
    "make", [np.asarray, np.ndarray.tolist, lambda data: gzarr.array(data, chunks=(4, 4, 3)), lambda _: Frames()]
)
def test_channels_that_a_call_names_last(make: Any) -> None:
    image = create_image(data=make(PICTURE), axes="yxc", scale={"y": 0.5}, channels=["R", "G", "B"], levels=1)
    assert (image.axes, image.scale()) == (("c", "y", "x"), {"c": 1, "y": 0.5, "x": 1})
    np.testing.assert_array_equal(image[0][...], PICTURE.transpose(2, 0, 1))
    assert gzarr.images.validate(image.group).ok
    with pytest.raises(gzarr.MetadataError, match=r"chunks: .* \('c', 'y', 'x'\), .* give data.transpose\(2, 0, 1\)"):
        create_image(data=make(PICTURE), axes="yxc", chunks=(1, 4, 4))


def test_labels_and_frames_go_to_the_axes_of_their_names() -> None:
    image = create_image(data=picture())
    labels = xr.DataArray(np.arange(48, dtype="u1").reshape(8, 6), dims=("x", "y"))
    group = image.write_label("cells", labels)
    np.testing.assert_array_equal(group[0][...], labels.transpose("y", "x"))
    with pytest.raises(ValueError, match=r"labels with the axes \('x', 'q'\) do not lie over"):
        image.write_label("others", labels.rename(y="q"))
    with ImageWriter(shape=(6, 6), dtype="u1", store=None, axes="tyx") as writer:
        frame = xr.DataArray(np.ones((6, 6), "u1"), dims=("y", "x"))
        writer.append(frame)
        with pytest.raises(ValueError, match="'y' to 'x'"):
            writer.append(frame.transpose())
