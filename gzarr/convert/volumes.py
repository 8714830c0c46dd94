"""Reads images of medicine and microscopy by the libraries of their formats, and writes NIfTI.

Theory of operation. Each format becomes a `LazyVolume`: data that are read when they are sliced, with axes in the order
of OME-Zarr. `gzarr.images.create_image` makes an image of it, in bounded memory. Where a format says how voxels lie in
space, a coordinate system of OME-Zarr 0.6 keeps it.
"""

import gzip
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gzarr.convert.writing import replacing
from gzarr.errors import CopyError, MetadataError
from gzarr.hierarchy.array import Array
from gzarr.images.create import create_image
from gzarr.images.image import Image, open_image
from gzarr.images.named_data import LazyVolume
from gzarr.images.scenes import add_coordinate_system
from gzarr.indexing.regions import Region
from gzarr.storage.extras import require

_ORDER = "tczyx"
_UNITS = {"mm": "millimeter", "micron": "micrometer", "meter": "meter"}
_UNITS |= {"sec": "second", "msec": "millisecond", "usec": "microsecond"}
#: How far distances of slices may differ, in parts of their median.
_TOLERANCE = 1e-2


def from_nifti(source: str | os.PathLike[str], dest: Any, **kwargs: Any) -> Image:
    """Convert a NIfTI file, or another one that nibabel opens, to OME-Zarr.

    Parameters
    ----------
    source : str or path
        The file. Of one that is compressed as a whole (".nii.gz"), every block is decompressed from the beginning,
        unless indexed_gzip is installed.
    dest : path, URL, store or Group
        Where the image goes.
    **kwargs
        Keywords of `gzarr.images.create_image`. ``version`` is "0.6" by default, in which the coordinate system
        "scanner" keeps the affine of the file: right, anterior and superior in millimeters, of which x is the first.

    Returns
    -------
    Image
        The image, of axes "zyx" and, of more than three axes, time and channels.
    """
    file = require("nibabel", "nifti", "from_nifti").load(source)
    names = "xyztc"[: file.ndim]
    axes = "".join(name for name in _ORDER if name in names)
    order = [names.index(name) for name in axes]

    def read(region: Region) -> Any:
        parts = dict(zip(axes, region, strict=True))
        return np.asanyarray(file.dataobj[tuple(parts[name] for name in names)]).transpose(order)

    dtype = np.asanyarray(file.dataobj[(slice(0, 1),) * file.ndim]).dtype.newbyteorder("=")
    zooms = {name: float(zoom) or 1.0 for name, zoom in zip(names, file.header.get_zooms(), strict=False)}
    units = dict(zip(("space", "time"), map(_UNITS.get, file.header.get_xyzt_units()), strict=True))
    volume = LazyVolume(tuple(file.shape[n] for n in order), dtype, read)
    given = {"axes": axes, "scale": {name: zooms[name] for name in axes if name != "c"}, "version": "0.6"}
    given["units"] = {n: u for n in axes if n != "c" and (u := units["time" if n == "t" else "space"])}
    image = create_image(dest, volume, **{**given, **kwargs})
    spatial = [axes.index(name) for name in "zyx" if name in axes]
    return _placed(image, "scanner", _reversed(file.affine, len(spatial)), spatial)


def _reversed(affine: NDArray[Any], n: int) -> NDArray[np.float64]:
    """A matrix of x, y, z in homogeneous coordinates as one of z, y, x."""
    order = [*range(n - 1, -1, -1), 3]
    return np.asarray(affine, float)[np.ix_(order, order)]


def _placed(image: Image, system: str, voxels: NDArray[np.float64], spatial: Sequence[int]) -> Image:
    """An image with a coordinate system, given what takes its voxels to it. Before 0.6, there is none."""
    if image.version != "0.6":
        return image
    scale, where = np.array(image.metadata.transformation(0).scale), [*spatial, image.ndim]
    matrix = np.eye(image.ndim + 1)
    matrix[np.ix_(where, where)] = voxels @ np.diag([*1 / scale[list(spatial)], 1.0])
    return add_coordinate_system(image, system, matrix)


def to_nifti(source: Any, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write an image to a NIfTI file, block by block.

    Parameters
    ----------
    source : Image or path
        The image; level 0 is written.
    path : str or path
        Path of the file, compressed if it ends in ".gz". It appears when it is complete.
    overwrite : bool, default False
        Whether to replace an existing file.
    """
    nibabel = require("nibabel", "nifti", "to_nifti")
    image = source if isinstance(source, Image) else open_image(source, "r")
    array, sizes = image.levels[0].to("cpu"), dict(zip(image.axes, image.shape, strict=True))
    names = [name for name in "xyztc" if name in sizes or name in "xyz" or (name == "t" and "c" in sizes)]
    header = (nibabel.Nifti2Header if max(array.shape) >= 1 << 15 else nibabel.Nifti1Header)()
    header.set_data_shape([sizes.get(name, 1) for name in names])
    try:
        header.set_data_dtype(array.dtype)
    except (ValueError, nibabel.spatialimages.HeaderDataError) as error:
        raise CopyError(f"{array.store_path}: NIfTI has no numbers of {array.dtype}; choose another dtype") from error
    scale = image.scale()
    header.set_zooms([scale.get(name, 1.0) for name in names])
    known = {unit: name for name, unit in _UNITS.items()}
    header.set_xyzt_units(known.get(image.units["x"] or ""), known.get(image.units.get("t") or ""))
    header.set_sform(_affine_of(image), code=1)
    header["vox_offset"] = header.single_vox_offset
    order = [image.axes.index(name) for name in reversed(names) if name in sizes]
    with replacing(path, overwrite=overwrite) as partial:
        opened = gzip.open if str(path).endswith(".gz") else open
        with opened(partial, "wb") as file:
            header.write_to(file)
            file.write(b"\0" * (header.single_vox_offset - file.tell()))
            for block in _in_order(array, order):
                file.write(np.ascontiguousarray(block, header.get_data_dtype()).tobytes())


def _affine_of(image: Image) -> NDArray[np.float64]:
    """What takes the voxels x, y, z to the coordinates of the last system."""
    spatial = [image.axes.index(name) for name in "zyx" if name in image.axes]
    scale, moved = map(np.array, image.metadata.transformation(0))
    whole = np.diag([*scale, 1.0])
    whole[:-1, -1] = moved
    systems = image.metadata.placed
    if systems is not None and len(systems.names) > 1:
        with suppress(MetadataError):
            whole = image.matrix(systems.names[-1]) @ whole
    where = [*spatial[::-1], image.ndim]
    made, at = np.eye(4), [*range(len(spatial)), 3]
    made[np.ix_(at, at)] = whole[np.ix_(where, where)]
    return made


def _in_order(array: Array, order: Sequence[int]) -> Iterator[NDArray[Any]]:
    """Blocks of an array along its axes in an order, a chunk of planes each."""
    outer = order[:-2] or [order[0]]
    steps = [1] * (len(outer) - 1) + [array.chunks[outer[-1]]]
    for place in np.ndindex(*(-(-array.shape[axis] // n) for axis, n in zip(outer, steps, strict=True))):
        region = [slice(None)] * array.ndim
        for axis, n, at in zip(outer, steps, place, strict=True):
            region[axis] = slice(at * n, (at + 1) * n)
        yield array[tuple(region)].transpose(order)


# -- DICOM -------------------------------------------------------------------------------------------------------------


def from_dicom(source: Any, dest: Any, *, series: str | None = None, **kwargs: Any) -> Image:
    """Convert a series of DICOM to OME-Zarr: slices in the order in which they lie, with the values that they mean.

    Parameters
    ----------
    source : path or sequence of paths
        A folder, or the files.
    dest : path, URL, store or Group
        Where the image goes.
    series : str, optional
        Its SeriesInstanceUID, of several.
    **kwargs
        Keywords of `gzarr.images.create_image`. ``version`` is "0.6" by default, in which the coordinate system
        "patient" keeps how slices lie: left, posterior and superior in millimeters, of which x is the first.

    Returns
    -------
    Image
        The image, of axes "zyx". Values are rescaled as the files say: to integers if slope and intercept are such,
        otherwise to float32.
    """
    pydicom = require("pydicom", "dicom", "from_dicom")
    slices = _slices_of(pydicom, source, series)
    first = slices[0][1]
    frames = int(first.get("NumberOfFrames", 1))
    if first.get("SamplesPerPixel", 1) != 1 or (frames > 1 and len(slices) > 1):
        raise CopyError(f"{slices[0][0]}: colours, and several files of several frames, are not converted")
    unread = [name for name in ("SharedFunctionalGroupsSequence", "ModalityLUTSequence") if name in first]
    if unread:
        raise CopyError(f"{slices[0][0]}: what values mean by {unread[0]} is not converted; convert it to NIfTI before")
    rows, columns = np.reshape(np.array(first.get("ImageOrientationPatient", [1, 0, 0, 0, 1, 0]), float), (2, 3))
    normal = np.cross(rows, columns)
    step = _sort(slices, normal) or float(first.get("SpacingBetweenSlices") or first.get("SliceThickness") or 1.0)
    spacing = [float(n) for n in first.get("PixelSpacing", first.get("ImagerPixelSpacing", [1.0, 1.0]))]
    voxels = np.eye(4)
    voxels[:3, :3] = np.stack([rows * spacing[1], columns * spacing[0], normal * step], 1)
    voxels[:3, 3] = np.array(slices[0][1].get("ImagePositionPatient", [0, 0, 0]), float)
    given = {"axes": "zyx", "scale": [step, *spacing], "units": "millimeter", "version": "0.6"}
    given["name"] = first.get("SeriesDescription")
    image = create_image(dest, _dicom_volume(pydicom, slices, frames), **{**given, **kwargs})
    return _placed(image, "patient", _reversed(voxels, 3), [0, 1, 2])


def _slices_of(pydicom: Any, source: Any, series: str | None) -> list[tuple[Path, Any]]:
    """The files of a series, with their headers."""
    files = sorted(Path(source).rglob("*")) if isinstance(source, (str, os.PathLike)) else [Path(one) for one in source]
    found: dict[str, list[tuple[Path, Any]]] = {}
    for file in files:
        with suppress(pydicom.errors.InvalidDicomError, IsADirectoryError):
            header = pydicom.dcmread(file, stop_before_pixels=True)
            if "Rows" in header:
                found.setdefault(str(header.SeriesInstanceUID), []).append((file, header))
    if series is None and len(found) == 1:
        (series,) = found
    if series not in found:
        listed = {uid: f"{len(slices)} files" for uid, slices in found.items()}
        raise CopyError(f"from_dicom: {source} has the series {listed}; give one of them as series=")
    return found[series]


def _sort(slices: list[tuple[Path, Any]], normal: NDArray[np.float64]) -> float | None:
    """Put slices in the order in which they lie. Returns: how far apart, if that can be told. Raises: CopyError."""
    if len(slices) == 1 or not all("ImagePositionPatient" in header for _, header in slices):
        slices.sort(key=lambda one: int(one[1].get("InstanceNumber") or 0))
        return None

    def place(one: tuple[Path, Any]) -> float:
        return float(normal @ np.array(one[1].ImagePositionPatient, float))

    slices.sort(key=place)
    steps = np.diff([place(one) for one in slices])
    step = float(np.median(steps))
    if not np.allclose(steps, step, rtol=_TOLERANCE, atol=0) or not step:
        raise CopyError(
            f"from_dicom: slices lie {steps.min()} to {steps.max()} apart, so one is missing or twice there; give the "
            "files of those that belong together"
        )
    return step


def _dicom_volume(pydicom: Any, slices: Sequence[tuple[Path, Any]], frames: int) -> LazyVolume:
    """The slices of a series, with the values that they mean."""
    first = slices[0][1]
    plane = int(first.Rows), int(first.Columns)
    factors = [(float(one.get("RescaleSlope", 1)), float(one.get("RescaleIntercept", 0))) for _, one in slices]
    stored = np.dtype(f"{'i' if first.PixelRepresentation else 'u'}{first.BitsAllocated // 8}")
    dtype = stored
    if set(factors) != {(1.0, 0.0)}:
        most = max((abs(slope) * 2.0 ** (8 * stored.itemsize) + abs(least)) for slope, least in factors)
        integer = "i4" if most < 1 << 31 else "i8"
        dtype = np.dtype(integer if all(n.is_integer() for pair in factors for n in pair) else "f4")

    def one(number: int) -> Any:
        file = slices[number][0]
        pixels = pydicom.dcmread(file).pixel_array
        if pixels.shape[-2:] != plane or not np.can_cast(pixels.dtype, stored, "equiv"):
            raise CopyError(f"{file}: {pixels.dtype} of {pixels.shape}, others of its series {stored} of {plane}")
        if dtype == stored:
            return pixels
        slope, intercept = factors[number]
        return (pixels * slope + intercept).astype(dtype)

    def read(region: Region) -> Any:
        if frames > 1:
            return one(0)[region]
        return np.stack([one(number)[region[1:]] for number in range(*region[0].indices(len(slices)))])

    return LazyVolume((len(slices) * frames, *plane), dtype, read, (frames, *plane))


# -- other libraries ---------------------------------------------------------------------------------------------------


def from_bioio(source: Any, dest: Any, *, scene: str | int | None = None, **kwargs: Any) -> Image:
    """Convert what bioio reads (CZI, LIF, ND2 and others, by its plugins) to OME-Zarr, with voxel sizes and channels.

    Parameters
    ----------
    source : path, URL or bioio.BioImage
        The file.
    dest : path, URL, store or Group
        Where the image goes.
    scene : str or int, optional
        Which image of the file; by default the first one.
    **kwargs
        Keywords of `gzarr.images.create_image`.

    Returns
    -------
    Image
        The image, without axes of one element but y and x.
    """
    file = source if hasattr(source, "dask_data") else require("bioio", "bioio", "from_bioio").BioImage(source)
    if scene is not None:
        file.set_scene(scene)
    sizes = dict(zip(_ORDER, file.get_image_dask_data("TCZYX").shape, strict=True))
    axes = "".join(name for name in _ORDER if sizes[name] > 1 or name in "yx")
    pixel = file.physical_pixel_sizes
    known = {name: size for name in "zyx" if name in axes and (size := getattr(pixel, name.upper()))}
    given: dict[str, Any] = {"axes": axes, "scale": known or None, "units": "micrometer" if known else None}
    given["channels"] = list(file.channel_names) if "c" in axes and file.channel_names else None
    return create_image(dest, file.get_image_dask_data(axes.upper()), **{**given, **kwargs})
