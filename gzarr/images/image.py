"""The image: levels of one picture or volume, with axes, voxel sizes, units, channels and labels."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, Unpack

from gzarr.api.groups import open_group
from gzarr.api.open import open_array
from gzarr.errors import ContainsArrayError, GzarrError, MetadataError
from gzarr.errors.escaping import escaped
from gzarr.hierarchy.group import Group
from gzarr.identity.runs import Resume
from gzarr.images.image_data import ImageData, read_image
from gzarr.images.label_images import label_names, write_label
from gzarr.images.ome.point_transformations import along, matrix_along
from gzarr.images.ome.series import group_of_image
from gzarr.images.pyramid.recipes import Recipe
from gzarr.images.pyramid.resuming import read_marks
from gzarr.images.ways import way_in
from gzarr.storage.in_place import call

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from gzarr.display.progress import ProgressLike
    from gzarr.hierarchy.keywords import GroupKeywords, OpenMode
    from gzarr.images.label_images import LabelKeywords
    from gzarr.images.pictures import Channels, Contrast
    from gzarr.images.pyramid.downsample import Method
    from gzarr.images.pyramid.levels import Factors
    from gzarr.images.validation.validate import Validation

#: A notebook waits for the decoding of so many bytes.
_QUICK_NBYTES = 64 << 20


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Image(ImageData):
    """An image in several resolutions: a group of OME-Zarr.

    ``image[k]`` is the array of level k; level 0 is the largest. An image is made by `open_image` and `create_image`.

    Attributes
    ----------
    group : Group
        The group.
    metadata : Multiscale
        What its metadata said when it was opened.
    levels : tuple of Array
        The arrays, the largest first.

    Examples
    --------
    >>> import gzarr.images
    >>> image = gzarr.images.create_image("cell.zarr", shape=(40, 64, 64), dtype="u2",
    ...     scale={"z": 2.0, "y": 0.5, "x": 0.5}, units="micrometer")
    >>> image
    <Image file://cell.zarr zyx 40 x 64 x 64 uint16, 1 level>
    >>> part = image.region(z=20, y=slice(10, 20), units="micrometer")
    >>> part.data.shape, part.coords["z"], part.coords["y"][:3]
    ((20, 64), 20.0, array([10. , 10.5, 11. ]))
    """

    @property
    def labels(self) -> Labels:
        """The images of labels that belong to this one, by name."""
        return Labels(self)

    def write_label(
        self,
        name: str,
        data: Any,
        *,
        dtype: Any = None,
        levels: int | None = None,
        factors: Factors = None,
        method: Method = "mode",
        colors: Mapping[int, Any] | None = None,
        properties: Mapping[int, Mapping[str, Any]] | None = None,
        resume: Resume = False,
        overwrite: bool = False,
        max_nbytes: int | None = None,
        progress: ProgressLike = None,
        device: str | None = None,
        **kwargs: Unpack[LabelKeywords],
    ) -> Self:
        """Write an image of labels that belongs to this image, all its levels in one pass.

        Parameters
        ----------
        name : str
            Name of the labels.
        data : array-like or callable
            Integers on the axes of the image, of its extents or 1; axes of channels and time may be left out. Or a
            function that is given blocks of level 0, on the device, and returns their labels.
        dtype : dtype-like, optional
            Data type of the labels. By default that of the data, or of what the function gives for the first chunk.
        levels, factors : optional
            See `build_pyramid`. By default those of the image, as the specification wants it.
        method : str or callable
            "mode", "nearest", "min" or "max", or a function: see `build_pyramid`.
        colors : mapping, optional
            Red, green, blue and opacity by label, from 0 to 255.
        properties : mapping, optional
            What else is known of labels: a mapping of JSON values by label.
        resume : bool or str
            Whether to go on with labels that were not finished: it needs the same data and arguments. Of a function
            that cannot be compared, a text that stands for it: see `map_overlap`.
        overwrite : bool
            Whether to replace labels of that name.
        max_nbytes, progress
            See `build_pyramid`.
        device : str, optional
            Where the function runs and levels are made. By default the image's device.
        **kwargs
            ``chunks``, ``shards``, ``compressors`` and the other keywords of `gzarr.create_array`.

        Returns
        -------
        Image
            The labels.

        Raises
        ------
        MetadataError
            If the labels are no integers, or a keyword is malformed.
        ValueError
            If the labels do not lie over the image, the method would make labels of no object, or the function returns
            another shape or data type.
        ContainsGroupError
            If there are labels of that name and ``overwrite`` is false.

        Examples
        --------
        >>> import gzarr.images, numpy as np
        >>> image = gzarr.images.create_image(shape=(64, 64), dtype="u1")
        >>> labels = image.write_label("bright", lambda block: block > 100, colors={1: (255, 0, 0)})
        >>> list(image.labels), labels.dtype, labels.metadata.image_label.colors
        (['bright'], dtype('uint8'), {1: (255, 0, 0, 255)})
        """
        recipe = Recipe(levels, factors, method, max_nbytes, resume, overwrite, progress, name="write_label")
        given = {"dtype": dtype, "colors": colors, "properties": properties}
        group = write_label(self if device is None else self.to(device), name, data, recipe, **given, **kwargs)
        return type(self)(*read_image(group.to(self.group.backend)))

    def validate(self, *, data: bool = False, progress: ProgressLike = None, device: str = "cpu") -> Validation:
        """Validate what is stored of the image and its labels: see `gzarr.images.validate`."""
        from gzarr.images.validation.validate import validate  # few programs validate

        return validate(self, data=data, progress=progress, device=device)

    # -- coordinate systems --------------------------------------------------------------------------------------------

    @property
    def coordinate_systems(self) -> tuple[str, ...]:
        """Names of its coordinate systems; none before OME-Zarr 0.6."""
        found = self.metadata.placed
        return () if found is None else found.names

    def transform(self, points: Any, target: str, *, source: str | None = None) -> NDArray[np.float64]:
        """Return points of one of its coordinate systems in another, by the transformations of OME-Zarr 0.6.

        Parameters
        ----------
        points : array-like
            Coordinates of shape (..., n), in the order of the axes.
        target : str
            Name of the system that is wanted.
        source : str, optional
            Name of the system of the points. By default the one that the levels are placed in, as `region` has it.

        Returns
        -------
        numpy.ndarray
            Coordinates, on the host. Fields of displacements are read around the points only.

        Raises
        ------
        MetadataError
            If there is no such system, or no transformations lead there that can be followed, back if need be.

        Examples
        --------
        >>> import gzarr.images
        >>> image = gzarr.images.create_image(shape=(64, 64), dtype="u1", version="0.6")
        >>> image.transform([[1.0, 2.0]], "physical")
        array([[1., 2.]])
        """
        return along(way_in(self, target, source)[0], points)

    def matrix(self, target: str, *, source: str | None = None) -> NDArray[np.float64]:
        """Return what `transform` does as a matrix in homogeneous coordinates, of shape (m + 1, n + 1).

        Raises MetadataError also if a transformation is not affine, such as a field of displacements.
        """
        return matrix_along(*way_in(self, target, source))

    def reopened(self) -> Self:
        """Return the image as it is stored now: with levels that were added since."""
        self.group.attrs.refresh()
        return type(self)(*read_image(self.group, self.metadata.index))

    # -- showing -------------------------------------------------------------------------------------------------------

    def thumbnail(
        self,
        size: int = 256,
        channels: Channels = None,
        contrast: Contrast = None,
        position: Mapping[str, float] | None = None,
        skip: Any = None,
        *,
        units: str | Mapping[str, str] | None = None,
        device: str | None = None,
    ) -> bytes:
        """Draw a plane.

        Parameters
        ----------
        size : int
            Pixels of the longer side, at most; voxels are not magnified.
        channels : int, str or sequence of them, optional
            Numbers or labels of the channels to blend. By default those that are active.
        contrast : pair of float or sequence of pairs, optional
            Values that are black and in full colour, for all channels or for each. By default the windows of the
            metadata if they are narrower than the data type; else all values of 8 bits, or those from the 0.1th to the
            99.8th percentile.
        position : mapping, optional
            Coordinates by axis, in the image's units, of the plane. By default the middle of space and the first time.
        skip : number, array of bool or False, optional
            Voxels that are missing: see `gzarr.images.build_pyramid`. They are grey, as are those that are not finite,
            and no part of the pixels' means and the percentiles.
        units : str or mapping, optional
            Unit of the position, of all axes of its kind or by axis; by default the image's.
        device : str, optional
            Where planes are decoded; they are drawn on the host. By default the image's device.

        Returns
        -------
        bytes
            A PNG.

        Raises
        ------
        MetadataError, SelectionError
            If there is no such axis or channel, or the position is outside the image.
        MissingExtraError
            If Pillow is missing: install ``gzarr[ome]``.

        Examples
        --------
        >>> import gzarr.images
        >>> image = gzarr.images.create_image(shape=(64, 64), dtype="u1")
        >>> image.thumbnail(32)[1:4]
        b'PNG'
        """
        from gzarr.images.pictures import thumbnail

        at = self.in_own_units(position or {}, units)
        return thumbnail(self if device is None else self.to(device), size, channels, contrast, at, skip)

    def ortho(
        self,
        point: Mapping[str, float] | None = None,
        size: int = 512,
        channels: Channels = None,
        contrast: Contrast = None,
        skip: Any = None,
        *,
        units: str | Mapping[str, str] | None = None,
        device: str | None = None,
    ) -> bytes:
        """Draw the three planes of a volume through a point: (y, x), with (y, z) beside it and (z, x) below it.

        Parameters
        ----------
        point : mapping, optional
            Coordinates by axis, in the image's units. By default the middle of space and the first time.
        size : int
            Pixels of the longer side, at most; voxels are not magnified.
        channels, contrast, skip, units, device
            As in `thumbnail`.

        Returns
        -------
        bytes
            A PNG.

        Raises
        ------
        MetadataError, SelectionError
            If the image is flat, there is no such axis or channel, or the point is outside the image.
        MissingExtraError
            If Pillow is missing: install ``gzarr[ome]``.
        """
        from gzarr.images.pictures import ortho

        at = self.in_own_units(point or {}, units)
        return ortho(self if device is None else self.to(device), size, channels, contrast, at, skip)

    def _repr_png_(self) -> bytes | None:
        """A thumbnail for notebooks; None, for the text, if it cannot be drawn or takes long."""
        from gzarr.images.pictures import thumbnail_nbytes

        try:
            return self.thumbnail() if all(self.shape) and thumbnail_nbytes(self) <= _QUICK_NBYTES else None
        except (GzarrError, OSError):  # without Pillow, or of a damaged chunk
            return None


def _levels_of(node: Any) -> Group:
    """Arrays as the levels of an image, in place."""
    made: Group = call("open_levels", node)
    return made


class Labels(Mapping[str, Image]):
    """The images of labels of an image, by name. Each is opened when it is asked for."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def __getitem__(self, name: str) -> Image:
        names = label_names(self._image.group)
        if name not in names:
            raise KeyError(f"{name!r} is none of the labels of {self._image.group.store_path}: {names}")
        group = self._image.group[f"labels/{name}"]
        if not isinstance(group, Group):
            raise MetadataError(f"{group.store_path} is listed as an image of labels, but is an array")
        return Image(*read_image(group))

    def __iter__(self) -> Iterator[str]:
        return iter(label_names(self._image.group))

    def __len__(self) -> int:
        return len(label_names(self._image.group))

    def __repr__(self) -> str:
        names = ", ".join(label_names(self._image.group)) or "none"
        return escaped(f"<Labels of {self._image.group.store_path}: {names}>")


def open_image(
    store: Any,
    mode: OpenMode | None = None,
    *,
    path: str | None = None,
    series: int | str | None = None,
    multiscale: int | str = 0,
    device: str | None = None,
    **kwargs: Unpack[GroupKeywords],
) -> Image:
    """Open an OME-Zarr image: versions 0.4, 0.5, 0.6 and the older ones. Or an array, as an image of one level.

    An image in TIFF, or an array in any format, such as a dataset of HDF5, is read in place.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping
        Where the image is stored.
    mode : {"r", "r+"}, optional
        "r" reads; "r+" also lets levels and labels be added. By default "r+", or "r" for a store that can only be read
        and for the path of a ZIP archive, which has one writer.
    path : str, optional
        Path of the image in the store.
    series : int or str, optional
        Which image, by number or path, of a collection of bioformats2raw. It may be left out if there is only one.
    multiscale : int or str
        Which image, by number or name, if the group has several.
    device : str, optional
        Where reads put their results: "auto", "cpu", "cuda" or "cuda:N". By default the setting ``device``.
    **kwargs
        See `gzarr.open_group`.

    Returns
    -------
    Image
        The image.

    Raises
    ------
    GroupNotFoundError
        If no group is stored there.
    MetadataError
        If the group is no image, or its metadata are malformed or do not fit its arrays. The message names the group,
        the field and the remedy; `validate` lists all that is wrong.

    Examples
    --------
    >>> import gzarr.images
    >>> made = gzarr.images.create_image("plane.zarr", shape=(512, 512), dtype="u1", scale=0.25, units="micrometer")
    >>> image = gzarr.images.open_image("plane.zarr", "r")
    >>> image.axes, image.scale(0), image.units["y"]
    (('y', 'x'), {'y': 0.25, 'x': 0.25}, 'micrometer')
    """
    if mode not in (None, "r", "r+"):
        raise ValueError(f"mode must be 'r' or 'r+', got {mode!r}; create_image makes new images")
    if isinstance(store, Group) and path is None and device is None and not kwargs and mode in (None, "r+"):
        return Image(*read_image(group_of_image(store, series), multiscale))
    if mode is None:
        named = os.fspath(store) if isinstance(store, (str, os.PathLike)) else ""
        mode = "r" if ".zip" in named or ".ozx" in named else "r+"
    try:
        group = open_group(store, mode, path=path, device=device, **kwargs)
    except ContainsArrayError:
        group = _levels_of(open_array(store, mode="r", path=path, device=device, **kwargs))
    try:
        if series is None and {"axes", "ome"} & set(group.attrs) == {"axes"} and "0" in group:  # of TIFF
            group = _levels_of(group)
        return Image(*read_image(group_of_image(group, series), multiscale))
    except MetadataError as error:
        marks = read_marks(group.store, group.path)
        if marks is None:
            raise
        message = f"{group.store_path}: an unfinished {marks['name']} is here; call it again with resume=True"
        raise MetadataError(message) from error
