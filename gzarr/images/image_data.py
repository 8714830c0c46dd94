"""The data of an image: its levels, and where their elements lie."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from gzarr.errors import MetadataError, SelectionError
from gzarr.errors.escaping import escaped
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.images.ome.axes import by_axis, names_of, ordered, spatial, unit_factor, units_by_axis
from gzarr.images.ome.channels import Channel
from gzarr.images.ome.documents import Multiscale, place_name, read_multiscale
from gzarr.images.ome.faults import Notes
from gzarr.images.region import Region, level_for, spans
from gzarr.images.stored_levels import open_levels, scaled_by_shape
from gzarr.storage.in_place import call

if TYPE_CHECKING:
    from gzarr.backend import Backend
    from gzarr.hierarchy.keywords import DeviceKeywords


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ImageData:
    """The levels of an image and what is known of them: what `Image` is made of.

    Attributes
    ----------
    group : Group
        The group.
    metadata : Multiscale
        What its metadata said when it was opened.
    levels : tuple of Array
        The arrays, the largest first.
    """

    group: Group
    metadata: Multiscale
    levels: tuple[Array, ...]

    def __getitem__(self, level: int) -> Array:
        if not hasattr(level, "__index__"):
            raise TypeError(
                f"{self.group.store_path}: [] takes the number of a level, as in image[0][...]; got {level!r}"
            )
        return self.levels[self._number(level)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise TypeError(f"{self.group.store_path} may have several levels: take one, as image[0][...]")

    def __len__(self) -> int:
        return len(self.levels)

    def __iter__(self) -> Iterator[Array]:
        return iter(self.levels)

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes, in the order of those of the arrays."""
        return names_of(self.metadata.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of level 0."""
        return self.levels[0].shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.metadata.axes)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the elements."""
        return self.levels[0].dtype

    @property
    def units(self) -> dict[str, str | None]:
        """Unit of the coordinates by axis, None where it is unknown."""
        return {axis.name: axis.unit for axis in self.metadata.axes}

    @property
    def spatial(self) -> tuple[int, ...]:
        """Numbers of the axes of space."""
        return spatial(self.metadata.axes)

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Names, colours and ranges of the channels; empty if the metadata say nothing of them."""
        return self.metadata.channels

    @property
    def version(self) -> str:
        """Version of OME-Zarr."""
        return self.metadata.version

    @property
    def name(self) -> str:
        """Name of the image; without one, that of its group or file."""
        return self.metadata.name or place_name(self.group).removesuffix(".zarr").removesuffix(".ome") or "image"

    @property
    def device(self) -> str:
        """Name of the device that reads put their results on."""
        return self.group.device

    @property
    def is_labels(self) -> bool:
        """Whether its elements are labels of objects, not intensities."""
        return self.metadata.image_label is not None

    def scale(self, level: int = 0) -> dict[str, float]:
        """Return the size of a voxel by axis, in `units`."""
        return dict(zip(self.axes, self.metadata.transformation(self._number(level)).scale, strict=True))

    def translation(self, level: int = 0) -> dict[str, float]:
        """Return the coordinates of the first voxel's centre by axis, in `units`."""
        return dict(zip(self.axes, self.metadata.transformation(self._number(level)).translation, strict=True))

    def _number(self, level: int) -> int:
        if not -len(self.levels) <= level < len(self.levels):
            raise SelectionError(f"{self.group.store_path} has {len(self.levels)} levels, there is no level {level}")
        return level % len(self.levels)

    # -- reading -------------------------------------------------------------------------------------------------------

    def level_for(self, scale: float | Mapping[str, float], *, units: str | Mapping[str, str] | None = None) -> int:
        """Return the coarsest level that still shows what a voxel size shows.

        Parameters
        ----------
        scale : float or mapping
            The size of a voxel, of all axes of space or by axis.
        units : str or mapping, optional
            Its unit, or units by axis; by default the image's.

        Returns
        -------
        int
            The last level of which no axis is coarser than asked for. An axis that is so at level 0 does not count.

        Raises
        ------
        MetadataError
            If there is no such axis or unit.

        Examples
        --------
        >>> import gzarr.images
        >>> image = gzarr.images.create_image(shape=(64, 64), dtype="u1", scale=0.5, units="micrometer")
        >>> image.level_for(2000, units="nanometer")
        0
        """
        if not isinstance(scale, Mapping):
            scale = {self.axes[number]: float(scale) for number in self.spatial}
        wanted = self.in_own_units(by_axis(self.metadata.axes, scale, "scale"), units)
        if not all(size > 0 for size in wanted.values()):
            raise MetadataError(f"scale: numbers > 0 are needed, got {scale!r}")
        return level_for([self.scale(level) for level in range(len(self))], wanted)

    def in_own_units(
        self, values: Mapping[str, float], units: str | Mapping[str, str] | None = None
    ) -> dict[str, float]:
        """Return lengths or coordinates by axis in the image's units, from those given, as of `region`.

        Raises MetadataError for units that are unknown, or where the image has none.
        """
        found = dict(values)
        for name, unit in ({} if units is None else units_by_axis(self.metadata.axes, units)).items():
            own = self.units[name]
            if name in found:
                if own is None:
                    raise MetadataError(f"{self.group.store_path}: axis {name!r} has no unit; leave units out")
                found[name] *= unit_factor(unit, own)
        return found

    def region(
        self,
        selection: Mapping[str, Any] | None = None,
        /,
        *,
        units: str | Mapping[str, str] | None = None,
        level: int | None = None,
        scale: float | Mapping[str, float] | None = None,
        **axes: Any,
    ) -> Region:
        """Read a part of the image that is given in coordinates.

        Parameters
        ----------
        selection : mapping, optional
            Slices or numbers by axis, as the keywords: for axes whose names are no keywords.
        units : str or mapping, optional
            Unit of the coordinates, of all axes of its kind or by axis; by default the image's. The coordinates
            returned have it too.
        level : int, optional
            The level to read; by default level 0.
        scale : float or mapping, optional
            A voxel size that suffices, instead of a level: see `level_for`.
        **axes
            A slice, for voxels whose centres lie in it, or a number, for the nearest voxel, by axis; all of an axis
            that is left out. Channels are given by number or name.

        Returns
        -------
        Region
            The elements, on the image's device, and the coordinates of their centres.

        Raises
        ------
        SelectionError
            If the region is not in the image.
        MetadataError
            If there is no such axis or unit.

        Examples
        --------
        >>> import gzarr.images
        >>> image = gzarr.images.create_image(shape=(64, 64), dtype="u1", scale=0.5, units="micrometer")
        >>> data, coords = image.region(y=slice(5000, 7000), x=3000, units="nanometer")
        >>> data.shape, coords["y"].tolist(), coords["x"]
        ((4,), [5000.0, 5500.0, 6000.0, 6500.0], 3000.0)
        """
        wanted = by_axis(self.metadata.axes, {**(selection or {}), **axes}, "region")
        given = {} if units is None else units_by_axis(self.metadata.axes, units)
        if level is None:
            level = 0 if scale is None else self.level_for(scale, units=units)
        elif scale is not None:
            raise MetadataError(f"region: level={level} and scale={scale} both choose a level; give one of them")
        number = self._number(level)
        labels = [channel.label for channel in self.channels]
        array, placed = self.levels[number], self.metadata.transformation(number)
        found = spans(
            self.metadata.axes, array.shape, placed, wanted, given, labels, f"{self.group.store_path}, level {number}"
        )
        data = array[tuple(span.selection for span in found)]
        return Region(data, {name: span.coords for name, span in zip(self.axes, found, strict=True)})

    # -- other forms ---------------------------------------------------------------------------------------------------

    def to(self, device: "str | Backend", **options: "Unpack[DeviceKeywords]") -> Self:
        """Return the same image with its reads on another device: see `gzarr.Array.to`."""
        group = self.group.to(device, **options)
        levels = tuple(
            Array(a.store, a.path, a.metadata, group.opened_with, read_only=a.read_only) for a in self.levels
        )
        return replace(self, group=group, levels=levels)

    # -- showing -------------------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        axes = "".join(self.axes) if all(len(name) == 1 for name in self.axes) else ",".join(self.axes)
        extents = " x ".join(map(str, self.shape))
        levels = f"{len(self)} level{'s' * (len(self) != 1)}"
        kind = " of labels" * self.is_labels
        return escaped(f"<{type(self).__name__}{kind} {self.group.store_path} {axes} {extents} {self.dtype}, {levels}>")


def read_image(group: Group, which: int | str = 0) -> tuple[Group, Multiscale, tuple[Array, ...]]:
    """Read the metadata of the image in a group, and open its levels: the fields of `ImageData`.

    Axes that are stored in another order than that of OME-Zarr are put into it, and the image is read-only then. Raises
    MetadataError for the first fault that keeps it from being opened.
    """
    notes = Notes(str(group.store_path))
    multiscale = read_multiscale(group, which, notes)
    arrays = tuple(level for level in open_levels(group, multiscale, notes) if level is not None)
    if multiscale.version in ("0.1", "0.2", "0.3"):
        multiscale = replace(multiscale, datasets=scaled_by_shape(multiscale.datasets, arrays))
    order = ordered(multiscale.axes)
    is_moved = order != tuple(range(len(order)))
    return _moved(group, multiscale, arrays, order) if is_moved else (group, multiscale, arrays)


def _moved(
    group: Group, multiscale: Multiscale, arrays: tuple[Array, ...], order: tuple[int, ...]
) -> tuple[Group, Multiscale, tuple[Array, ...]]:
    """An image whose axes are in no order of OME-Zarr, such as yxc, in that order, in place and read-only."""
    if multiscale.version == "0.6":
        raise MetadataError(
            f"{group.store_path}: the axes {names_of(multiscale.axes)} of an image of 0.6 must be in the order of "
            "OME-Zarr: time, the channel or another axis, space; open its arrays, and create an image of them"
        )
    whole, axes = multiscale.whole, tuple([multiscale.axes[at] for at in order])
    datasets = tuple([replace(one, **one.transformation.moved(order)._asdict()) for one in multiscale.datasets])
    whole = None if whole is None else whole.moved(order)
    levels = call("open_transposed", arrays, order, names_of(axes))
    group = Group(group.store, group.path, group.metadata, group.opened_with, read_only=True)
    return group, replace(multiscale, axes=axes, datasets=datasets, whole=whole), tuple(levels)
