"""NIfTI, DICOM, rasters and bioio's files become OME-Zarr, with values and places as their libraries read them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.cli.main import main
from gzarr.convert import from_bioio, from_dicom, from_nifti, from_rasterio, from_tiff, to_geotiff, to_nifti, to_tiff
from gzarr.images import create_image, open_image

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("suffix", [".nii", ".nii.gz"])
@pytest.mark.parametrize("shape", [(7, 8, 9), (7, 8, 9, 3), (5, 6, 7, 2, 3)])
def test_nifti_goes_there_and_back(tmp_path: Path, suffix: str, shape: tuple[int, ...]) -> None:
    nibabel = pytest.importorskip("nibabel")
    data = RNG.integers(-100, 1000, shape, "i2")
    affine = np.array([[0, 1.5, 0.1, -9], [2, 0, 0, 8], [0, 0.2, 3, 7], [0, 0, 0, 1]])
    made = nibabel.Nifti1Image(data, affine)
    made.header.set_xyzt_units("mm", "sec")
    made.header["pixdim"][4] = 0  # a time step that is not known
    made.to_filename(tmp_path / f"a{suffix}")
    image = from_nifti(tmp_path / f"a{suffix}", tmp_path / "a.zarr")
    names = "xyztc"[: len(shape)]
    np.testing.assert_array_equal(image[0][...], data.transpose([names.index(axis) for axis in image.axes]))
    assert (image.units["x"], image.version) == ("millimeter", "0.6")
    voxel = np.array([1, 2, 3])  # z, y, x
    point = np.zeros(image.ndim)
    point[list(image.spatial)] = voxel * np.array(list(image.scale().values()))[list(image.spatial)]
    found = open_image(tmp_path / "a.zarr").transform([point], "scanner")[0][list(image.spatial)]
    np.testing.assert_allclose(found[::-1], (affine @ [*voxel[::-1], 1])[:3], atol=1e-5)
    to_nifti(image, tmp_path / f"b{suffix}")
    again = nibabel.load(tmp_path / f"b{suffix}")
    np.testing.assert_array_equal(np.asanyarray(again.dataobj), data)
    np.testing.assert_allclose(again.affine, affine, atol=1e-5)
    with pytest.raises(gzarr.GzarrError, match="dtype"):
        to_nifti(create_image(shape=(3, 4), dtype="bool"), tmp_path / "c.nii")


def test_nifti_with_a_slope_has_its_values(tmp_path: Path) -> None:
    nibabel = pytest.importorskip("nibabel")
    made = nibabel.Nifti1Image(RNG.random((4, 5, 6)), np.eye(4))
    made.header.set_data_dtype("i2")
    made.to_filename(tmp_path / "a.nii")
    image = from_nifti(tmp_path / "a.nii", None, version="0.5")
    np.testing.assert_array_equal(image[0][...], nibabel.load(tmp_path / "a.nii").get_fdata().T)


def slices(
    folder: Path, pydicom: Any, positions: list[float], slope: float, uid: str = "1.2.3"
) -> np.ndarray[Any, Any]:
    """Files in an order of their own."""
    data = RNG.integers(0, 4000, (len(positions), 5, 6), "u2")
    for number, (place, pixels) in enumerate(zip(positions, data, strict=True)):
        one = pydicom.Dataset()
        one.file_meta = pydicom.dataset.FileMetaDataset()
        one.file_meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
        one.SOPClassUID, one.SOPInstanceUID, one.SeriesInstanceUID = "1.2.840.10008.5.1.4.1.1.2", f"{uid}.{number}", uid
        one.Rows, one.Columns, one.SamplesPerPixel, one.BitsAllocated, one.BitsStored = 5, 6, 1, 16, 16
        one.HighBit, one.PixelRepresentation, one.PhotometricInterpretation = 15, 0, "MONOCHROME2"
        one.PixelSpacing, one.RescaleSlope, one.RescaleIntercept = [0.7, 0.5], slope, -1024
        one.ImageOrientationPatient, one.ImagePositionPatient = [1, 0, 0, 0, 0, -1], [10, place, 30]
        one.PixelData = pixels.tobytes()
        one.save_as(folder / f"{uid}-{len(positions) - number}.dcm", enforce_file_format=True)
    return data[np.argsort(positions)]


@pytest.mark.parametrize(("slope", "dtype"), [(1, "i4"), (0.5, "f4")])
def test_dicom_is_sorted_and_rescaled(tmp_path: Path, slope: float, dtype: str) -> None:
    pydicom = pytest.importorskip("pydicom")
    data = slices(tmp_path, pydicom, [6.0, -2.0, 2.0], slope)
    (tmp_path / "notes.txt").write_text("no DICOM")
    image = from_dicom(tmp_path, tmp_path / "a.zarr")
    np.testing.assert_array_equal(image[0][...], (data.astype("f8") * slope - 1024).astype(dtype))
    assert (image.dtype, list(image.scale().values())) == (np.dtype(dtype), [4.0, 0.7, 0.5])
    np.testing.assert_allclose(image.transform([[4.0, 0.7, 1.0]], "patient"), [[29.3, 2.0, 11.0]])  # z, y, x
    slices(tmp_path, pydicom, [0.0, 1.0, 9.0], 1, "1.2.4")
    with pytest.raises(gzarr.CopyError, match=r"1\.2\.3.*1\.2\.4.*give one of them as series="):
        from_dicom(tmp_path, None)
    with pytest.raises(gzarr.CopyError, match=r"lie 1\.0 to 8\.0 apart"):
        from_dicom(tmp_path, None, series="1.2.4")


def test_dicom_whose_values_would_be_wrong_is_refused(tmp_path: Path) -> None:
    pydicom = pytest.importorskip("pydicom")
    data = slices(tmp_path, pydicom, [0.0, 1.0], 100_000)
    image = from_dicom(tmp_path, None)
    np.testing.assert_array_equal(image[0][...], data.astype("i8") * 100_000 - 1024)
    file = next(tmp_path.glob("*.dcm"))
    other = pydicom.dcmread(file)
    other.PixelRepresentation = 1
    other.save_as(file)
    with pytest.raises(gzarr.CopyError, match="others of its series"):
        from_dicom(tmp_path, tmp_path / "a.zarr")
    other.SharedFunctionalGroupsSequence = [pydicom.Dataset()]
    other.save_as(file)
    with pytest.raises(gzarr.CopyError, match="SharedFunctionalGroupsSequence is not converted"):
        from_dicom([file], None)


@pytest.mark.parametrize("bands", [1, 3])
def test_rasters_go_there_and_back(tmp_path: Path, bands: int) -> None:
    rasterio = pytest.importorskip("rasterio")
    data = RNG.integers(0, 255, (bands, 700, 600)).astype("f4")
    data[:, :99] = -1
    transform = rasterio.Affine(10, 0, 5e5, 0, -20, 4e6)
    profile = {"width": 600, "height": 700, "count": bands, "dtype": "float32", "crs": "EPSG:32633", "nodata": -1}
    with rasterio.open(tmp_path / "a.tif", "w", driver="GTiff", transform=transform, tiled=True, **profile) as file:
        file.write(data)
    image = from_rasterio(tmp_path / "a.tif", tmp_path / "a.zarr")
    np.testing.assert_array_equal(image[0][...], data if bands > 1 else data[0])
    assert (image.scale()["y"], image[0].stats().n_missing) == (20.0, bands * 99 * 600)
    to_geotiff(image, tmp_path / "b.tif")
    with rasterio.open(tmp_path / "b.tif") as file:
        np.testing.assert_array_equal(file.read(), data)
        assert (file.transform, file.crs, file.nodata) == (transform, "EPSG:32633", -1)
        assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert file.overviews(1)


@pytest.mark.parametrize("ome", [True, False])
@pytest.mark.parametrize("raster", ["Area", "Point"])
def test_geotiff_goes_there_and_back(tmp_path: Path, raster: str, ome: bool) -> None:
    """Samples of pixels become bands, and the transform stays that of the corner."""
    rasterio = pytest.importorskip("rasterio")
    shape = {"count": 3, "height": 40, "width": 50, "interleave": "pixel", "photometric": "rgb"}
    place = {"crs": "EPSG:32633", "transform": rasterio.Affine(10, 1, 500000, 2, -20, 4600000)}
    data = RNG.integers(0, 99, (3, 40, 50), "u1")
    with rasterio.open(tmp_path / "a.tif", "w", driver="GTiff", dtype="uint8", **shape, **place) as file:
        file.update_tags(AREA_OR_POINT=raster)
        file.descriptions = ("nir", None, "red")
        file.write(data)
    from_tiff(tmp_path / "a.tif", tmp_path / "a.zarr", ome=ome)
    level = str(tmp_path / ("a.zarr/0" if ome else "a.zarr"))
    assert main(["convert", level, str(tmp_path / "b.tif")]) == 0
    to_geotiff(open_image(tmp_path / "a.zarr")[0] if ome else level, tmp_path / "b.tif", overwrite=True)
    assert main(["quicklook", str(tmp_path / "a.zarr"), str(tmp_path / "a.png"), "--channels", "nir"]) == 0
    with rasterio.open(tmp_path / "b.tif") as file:
        np.testing.assert_array_equal(file.read(), data)
        assert (file.transform, file.crs) == (place["transform"], "EPSG:32633")
        assert (file.descriptions[0], file.descriptions[2]) == ("nir", "red")
    with pytest.warns(UserWarning, match="no place for spatial:transform; to_geotiff"):
        to_tiff(tmp_path / "a.zarr", tmp_path / "c.tif")


@pytest.mark.parametrize("names", ["row col ?", "bands latitude longitude u1", "lat lon bands u1", "i j f2"])
def test_geotiff_of_axes_of_any_name_and_type(tmp_path: Path, names: str) -> None:
    """An axis of another name is that of the bands if the others have names of images; GDAL has no bool and float16."""
    rasterio = pytest.importorskip("rasterio")
    names, _, dtype = names.rpartition(" ")
    data = RNG.integers(0, 99, (2, 40, 50)[-len(names.split()) :]).astype(dtype)
    place = {"spatial:transform": [10, 0, 500000, 0, -20, 4600000], "proj:code": "EPSG:32633", "units": None}
    array = gzarr.create_array(None, data=data, dimension_names=names.split(), attributes=place)
    to_geotiff(array, tmp_path / "a.tif")
    with rasterio.open(tmp_path / "a.tif") as file:
        wanted = data.transpose(2, 0, 1) if names == "lat lon bands" else data
        np.testing.assert_array_equal(file.read().squeeze(), wanted)
        assert (file.dtypes[0], file.units[0]) == ("float32" if dtype == "f2" else "uint8", None)


@pytest.mark.parametrize(
    ("y", "units", "crs", "fill"),
    [
        (np.arange(50, 10, -1.0), ("degrees_north", "degrees_east"), "EPSG:4326", 99),
        (np.arange(11.0, 51), ("degreeN", "degree_E"), "EPSG:4326", 1 << 60),
        (np.arange(11, 51), ("m", "km"), "EPSG:32633", float("nan")),
    ],
)
def test_coordinates_say_where_a_geotiff_lies(tmp_path: Path, y: Any, units: Any, crs: str, fill: float) -> None:
    """As GDAL reads them: the first row is the northernmost, east of 180 degrees is west, values stay packed."""
    rasterio = pytest.importorskip("rasterio")
    group = gzarr.open_group(tmp_path / "a.zarr", mode="w")
    packed = {"scale_factor": 0.002 if units[1] == "km" else 2.0, "add_offset": 0.0 if units[1] == "km" else 360.0}
    for name, values, unit in zip("yx", (y, np.arange(50, dtype="i2")), units, strict=True):
        said = {"units": [unit] if name == "y" else unit}  # as in HDF5
        said |= {"standard_name": f"projection_{name}_coordinate"} if unit[-1] == "m" else {}
        said |= packed if name == "x" else {}
        group.create_array(name, data=values, dimension_names=[name], attributes=said)
    group.create_array("crs", data=0, attributes={"spatial_ref": rasterio.CRS.from_string(crs).to_wkt()})
    told = {"scale_factor": [0.5], "_FillValue": fill, "units": 1} | ({"grid_mapping": "crs"} if crs[-1] == "3" else {})
    data = RNG.integers(0, 99, (40, 50)).astype("f4" if fill != fill else "u8" if fill > 99 else "u1")
    group.create_array("t", data=data, dimension_names=["y", "x"], attributes=told)
    assert main(["convert", str(tmp_path / "a.zarr/t"), str(tmp_path / "a.tif")]) == 0
    to_geotiff(group["t"], tmp_path / "a.tif", overwrite=True)
    with rasterio.open(tmp_path / "a.tif") as file:
        np.testing.assert_array_equal(file.read(1), data if y[0] > y[1] else data[::-1])
        assert (file.crs, file.scales, file.offsets, file.units) == (crs, (0.5,), (0,), ("1",))
        np.testing.assert_allclose(file.transform[:6], (2, 0, -1, 0, -1, 50.5), atol=1e-12)
        np.testing.assert_equal(file.nodata, None if fill == 1 << 60 else fill)  # which rasterio would not keep
    group["y"].attrs["units"] = ["rad"]
    with pytest.warns(UserWarning, match="no place for y, x, scale_factor"):
        assert main(["convert", str(tmp_path / "a.zarr/t"), str(tmp_path / "b.tif")]) == 0


def test_what_bioio_reads_is_taken_over() -> None:
    array = pytest.importorskip("dask.array")
    data = RNG.integers(0, 99, (1, 2, 3, 8, 9), "u2")

    def read(axes: str) -> Any:
        whole = array.from_array(data, chunks=(1, 1, 1, 8, 9))
        return whole if len(axes) == 5 else whole[0]

    pixel = SimpleNamespace(Z=2.0, Y=0.5, X=0.25)
    file = SimpleNamespace(
        dask_data=None, get_image_dask_data=read, physical_pixel_sizes=pixel, channel_names=["DAPI", "GFP"]
    )
    image = from_bioio(file, None)
    np.testing.assert_array_equal(image[0][...], data[0])
    assert image.scale() == {"c": 1.0, "z": 2.0, "y": 0.5, "x": 0.25}
    assert [channel.label for channel in image.channels] == ["DAPI", "GFP"]
