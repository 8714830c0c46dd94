"""Metadata of images as frozen data: OME-Zarr 0.4 (in Zarr v2), 0.5 and 0.6 (in Zarr v3); 0.1 to 0.3 are read.

What a document has besides is kept in ``extra`` and written back. Levels have a scale and a translation, to the axes'
units; those of the whole image, which the specification applies after them, are kept apart.

Source: https://ngff.openmicroscopy.org/0.4/, /0.5/ and /0.6/, "multiscales", "omero" and "coordinateTransformations".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from gzarr.errors import MetadataError
from gzarr.hierarchy.group import Group
from gzarr.images.ome.axes import ImageAxis, parse_axes
from gzarr.images.ome.channels import Channel, parse_channels
from gzarr.images.ome.coordinate_systems import INTRINSIC, CoordinateSystems, described_system, spread_item
from gzarr.images.ome.faults import Notes, raise_fatal, short
from gzarr.images.ome.image_label import ImageLabel, parse_image_label
from gzarr.images.ome.recognizing import check_place, choose, told_version
from gzarr.images.ome.transformations import Numbers, Transformation, parse_transformations
from gzarr.metadata.documents import change_attributes
from gzarr.metadata.model import ZarrFormat

#: A version that is written.
Version: TypeAlias = Literal["0.4", "0.5", "0.6"]
#: What is written by default, by Zarr format.
VERSION_OF: Final[Mapping[ZarrFormat, Version]] = {2: "0.4", 3: "0.5"}
#: Zarr format of a version.
FORMAT_OF: Final[Mapping[str, ZarrFormat]] = {"0.4": 2, "0.5": 3, "0.6": 3}
#: The axes of images before 0.3, which name none.
_FIVE = [{"name": name, "type": kind} for name, kind in zip("tczyx", ("time", "channel", *["space"] * 3), strict=True)]


@dataclass(frozen=True, slots=True)
class Dataset:
    """A level of an image.

    Attributes
    ----------
    path : str
        Path of its array, from the image's group.
    scale, translation : tuple of float
        Size of a voxel and coordinates of the first voxel's centre on each axis, before the transformation of the
        whole image.
    extra : mapping
        Other fields of the metadata.
    """

    path: str
    scale: Numbers
    translation: Numbers
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def transformation(self) -> Transformation:
        """Its scale and translation together."""
        return Transformation(self.scale, self.translation)

    def to_json(self, system: str | None = None) -> dict[str, Any]:
        """As OME-Zarr 0.4 and 0.5 have it; or 0.6, given the coordinate system that the level is placed in."""
        steps = self.transformation.to_json()
        if system is not None:
            one = steps[0] if len(steps) == 1 else {"type": "sequence", "transformations": steps}
            steps = [{**one, "input": {"path": self.path}, "output": {"name": system}}]
        return {"path": self.path, "coordinateTransformations": steps, **self.extra}


@dataclass(frozen=True, slots=True, kw_only=True)
class Multiscale:
    """The metadata of an image.

    Attributes
    ----------
    axes : tuple of Axis
        Its axes, in the order of those of the arrays.
    datasets : tuple of Dataset
        Its levels, the largest first. Of images before 0.4, scales are those of the shapes.
    version : str
        Version of OME-Zarr that it was read from.
    name : str or None
        Its name.
    type : str or None
        The method that made the levels.
    metadata : mapping or None
        More about the method.
    whole : Transformation or None
        What the image applies after the transformation of each level.
    coordinate_systems : CoordinateSystems or None
        Those of an image of 0.6.
    channels : tuple of Channel
        How the channels are shown; empty if the document does not say.
    omero : mapping
        Other fields of the document's "omero".
    image_label : ImageLabel or None
        What is said of labels; None for images of intensities.
    extra : mapping
        Other fields of the metadata.
    index : int
        Which of the group's multiscale images this is; nearly always 0.
    """

    axes: tuple[ImageAxis, ...]
    datasets: tuple[Dataset, ...]
    version: str = "0.5"
    name: str | None = None
    type: str | None = None
    metadata: Mapping[str, Any] | None = None
    whole: Transformation | None = None
    coordinate_systems: CoordinateSystems | None = None
    channels: tuple[Channel, ...] = ()
    omero: Mapping[str, Any] = field(default_factory=dict)
    image_label: ImageLabel | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    index: int = 0

    @property
    def placed(self) -> CoordinateSystems | None:
        """Its coordinate systems; None before 0.6, which has no names for them."""
        if self.coordinate_systems is None and self.version == "0.6":
            return CoordinateSystems(INTRINSIC, ({"name": INTRINSIC, "axes": [axis.to_json() for axis in self.axes]},))
        return self.coordinate_systems

    def transformation(self, level: int) -> Transformation:
        """What takes indices of a level to coordinates."""
        own = self.datasets[level].transformation
        return own if self.whole is None else own.then(self.whole)

    def to_json(self, version: str) -> dict[str, Any]:
        """The item of "multiscales" in a version of OME-Zarr. Raises MetadataError if it cannot say all."""
        document: dict[str, Any] = {"version": version} if version == "0.4" else {}
        optional = {"name": self.name, "type": self.type, "metadata": self.metadata}
        document |= {key: value for key, value in optional.items() if value is not None}
        axes = [axis.to_json() for axis in self.axes]
        if version == "0.6":
            return {**document, **self._levels_placed(axes), **self.extra}
        found = self.coordinate_systems
        if found is not None and len(found.systems) > 1 + (self.whole is not None):
            raise MetadataError(
                f"image {self.name!r} has the coordinate systems {list(found.names)}, of which OME-Zarr {version} has "
                f"{found.intrinsic!r} alone: write version 0.6"
            )
        document |= {"axes": axes, "datasets": [dataset.to_json() for dataset in self.datasets]}
        if self.whole is not None:
            document["coordinateTransformations"] = self.whole.to_json()
        return {**document, **self.extra}

    def _levels_placed(self, axes: list[dict[str, Any]]) -> dict[str, Any]:
        """The levels and the coordinate systems of 0.6. What follows the levels in 0.5 becomes a part of them."""
        found = self.coordinate_systems
        if found is None or any(len(system.get("axes", ())) != len(axes) for system in found.systems):
            moved = [replace(dataset, **self.transformation(n)._asdict()) for n, dataset in enumerate(self.datasets)]
            systems = [{"name": INTRINSIC, "axes": axes}]
            return {"coordinateSystems": systems, "datasets": [dataset.to_json(INTRINSIC) for dataset in moved]}
        described = found.intrinsic if self.whole is None else described_system(found)
        systems = [{**one, "axes": axes} if one.get("name") == described else dict(one) for one in found.systems]
        placed = {"coordinateSystems": systems, "datasets": [one.to_json(found.intrinsic) for one in self.datasets]}
        return placed | ({"coordinateTransformations": list(found.transformations)} if found.transformations else {})


# -- reading -----------------------------------------------------------------------------------------------------------


def new_multiscale(
    axes: tuple[ImageAxis, ...], version: str, scale: Numbers, translation: Numbers, **more: Any
) -> Multiscale:
    """The metadata of an image of level 0 alone."""
    level = Dataset("0", scale, translation)
    return Multiscale(axes=axes, datasets=(level,), version=version, type="none", metadata={}, **more)


def ome_attributes(attributes: Mapping[str, Any], zarr_format: int) -> Mapping[str, Any]:
    """The attributes of OME-Zarr: all of a v2 group, those under "ome" of a v3 group. Empty if there are none."""
    found = attributes.get("ome", {}) if zarr_format == 3 else attributes
    return found if isinstance(found, Mapping) else {}


def ome_of(group: Group) -> Mapping[str, Any]:
    """The attributes of OME-Zarr of a group, as `ome_attributes`."""
    return ome_attributes(group.attrs.asdict(), group.metadata.zarr_format)


def as_attributes(fields: Mapping[str, Any], zarr_format: int, version: str | None = None) -> dict[str, Any]:
    """The attributes of a group that has these of OME-Zarr. version: by default that of the fields, or 0.5."""
    if zarr_format == 2:
        return dict(fields)
    return {"ome": {"version": "0.5", **fields} if version is None else {**fields, "version": version}}


def version_in(version: str, zarr_format: ZarrFormat) -> Version:
    """The version of what belongs to an image of a version, in a format of Zarr."""
    written: Mapping[str, Version] = {"0.5": "0.5", "0.6": "0.6"} if zarr_format == 3 else {}
    return written.get(version, VERSION_OF[zarr_format])


def zarr_format_of(version: str) -> ZarrFormat:
    """The format of Zarr that a version of OME-Zarr is written in. Raises MetadataError for versions that are not."""
    if version not in FORMAT_OF:
        raise MetadataError(f"version: {version!r} is not written; choose '0.6', '0.5' or '0.4'")
    return FORMAT_OF[version]


def place_name(group: Group) -> str:
    """The last part of a group's path, or of its store's."""
    return group.basename or str(group.store).rstrip("/").rsplit("/", 1)[-1]


def field_of(group: Group, name: str) -> str:
    """Where a member of these attributes stands in those of the group: "ome.plate" of v3."""
    return f"ome.{name}" if group.metadata.zarr_format == 3 else name


def version_of(group: Group) -> Version:
    """The version in which what belongs to a group, an image or a plate, is written."""
    return version_in(str(ome_of(group).get("version")), group.metadata.zarr_format)


def change_ome(group: Group, change: Callable[[dict[str, Any]], Mapping[str, Any]], version: str | None = None) -> None:
    """Change the attributes of OME-Zarr of a group in one atomic step; others stay. The group takes the new ones.

    change: given a copy of those that are stored, returns new ones. version: by default the one that is stored. Raises:
    ReadOnlyError.
    """
    zarr_format = group.metadata.zarr_format

    def changed(stored: Mapping[str, Any]) -> dict[str, Any]:
        made = change(dict(ome_attributes(stored, zarr_format)))
        return {**stored, **as_attributes(made, zarr_format, version)}

    change_attributes(group.store, group.path, zarr_format, changed)
    group.attrs.refresh()


def read_multiscale(group: Group, which: int | str = 0, notes: Notes | None = None) -> Multiscale:
    """Read the metadata of the image in a group.

    Parameters
    ----------
    group : Group
        The group.
    which : int or str
        Number or name of the image, of several in one group.
    notes : Notes, optional
        Takes what is wrong. By default the first fault is raised.

    Returns
    -------
    Multiscale
        The metadata.

    Raises
    ------
    MetadataError
        If the group has no image, or its metadata are malformed.
    """
    notes = Notes(str(group.store_path), raise_fatal) if notes is None else notes
    check_place(group.attrs.asdict(), group.zarr_format, notes)
    found, field = ome_of(group), field_of(group, "multiscales")
    items = found.get("multiscales")
    if not isinstance(items, list) or not items or not all(isinstance(item, Mapping) for item in items):
        what = "is missing" if items is None else f"must be a list of objects, got {short(items)}"
        notes.fatal(field, what, "open a group with the metadata of an OME-Zarr image")
        raise MetadataError(f"{group.store_path} is no image: {field} {what}")
    index = choose(items, which, str(group.store_path))
    place = f"{field}[{index}]"
    version = told_version(found, items[index], group.zarr_format, notes, place)
    multiscale = _parse(items[index], version, notes, place, index)
    channels, omero = parse_channels(found.get("omero"), notes, field_of(group, "omero"))
    label = parse_image_label(found.get("image-label"), notes, field_of(group, "image-label"))
    return replace(multiscale, channels=channels, omero=omero, image_label=label)


def _parse(item: Mapping[str, Any], version: str, notes: Notes, place: str, index: int) -> Multiscale:
    old = version in ("0.1", "0.2", "0.3")
    systems = None
    if version == "0.6":
        systems, item = spread_item(item, notes, place)
    listed = item.get("axes", _FIVE if version in ("0.1", "0.2") else None)
    axes = parse_axes(listed, notes if not old else Notes(notes.path), f"{place}.axes")
    if axes is None:
        raise MetadataError(f"{notes.path}: {place}.axes cannot be told")
    known = {"name", "type", "metadata", "axes", "datasets", "coordinateTransformations"}
    known |= {"version"} if FORMAT_OF.get(version) != 3 else set()  # which has it beside the list
    for name in ("name", "type", "metadata"):
        if name not in item:
            notes.warning(
                f"{place}.{name}", "is missing", "name the image" if name == "name" else "say how levels were made"
            )
    for name, expected in (("name", str), ("type", str), ("metadata", Mapping)):
        if item.get(name) is not None and not isinstance(item[name], expected):
            what = f"must be {'an object' if name == 'metadata' else 'a text'}, got {short(item[name])}"
            notes.error(f"{place}.{name}", what, "correct it")
    return Multiscale(
        axes=axes,
        datasets=_parse_datasets(item.get("datasets"), axes, old, notes, f"{place}.datasets"),
        version=version,
        name=item.get("name"),
        type=item.get("type"),
        metadata=item.get("metadata"),
        whole=_parse_whole(item, axes, notes, place),
        coordinate_systems=systems,
        extra={key: value for key, value in item.items() if key not in known},
        index=index,
    )


def _parse_whole(
    item: Mapping[str, Any], axes: tuple[ImageAxis, ...], notes: Notes, place: str
) -> Transformation | None:
    if item.get("coordinateTransformations") is None:
        return None
    return parse_transformations(item["coordinateTransformations"], axes, notes, f"{place}.coordinateTransformations")


def _parse_datasets(
    value: Any, axes: tuple[ImageAxis, ...], old: bool, notes: Notes, place: str
) -> tuple[Dataset, ...]:
    if not isinstance(value, list) or not value:
        notes.fatal(place, f"must be a list of levels, got {short(value)}", "list the paths of the levels' arrays")
        raise MetadataError(f"{notes.path}: {place} lists no levels")
    datasets: list[Dataset] = []
    for number, item in enumerate(value):
        if not isinstance(item, Mapping) or not isinstance(item.get("path"), str):
            notes.fatal(
                f"{place}[{number}].path", f"must be a text, got {short(item)}", "give the path of the level's array"
            )
            continue
        if item["path"] in [dataset.path for dataset in datasets]:
            notes.fatal(f"{place}[{number}].path", f"level {item['path']!r} is there twice", "list every level once")
        one = Transformation((1.0,) * len(axes), (0.0,) * len(axes))
        found = f"{place}[{number}].coordinateTransformations"
        if not old:
            one = parse_transformations(item.get("coordinateTransformations"), axes, notes, found)
        extra = {key: value for key, value in item.items() if key not in ("path", "coordinateTransformations")}
        datasets.append(Dataset(item["path"], *one, extra))
    if not datasets:
        raise MetadataError(f"{notes.path}: {place} lists no levels")
    return tuple(datasets)


# -- writing -----------------------------------------------------------------------------------------------------------


def write_multiscale(group: Group, multiscale: Multiscale) -> None:
    """Write the metadata of an image in one atomic step; whatever else the group's attributes say stays.

    Versions before 0.4 become 0.4.

    Parameters
    ----------
    group : Group
        The group, of Zarr v2 for OME-Zarr 0.4, or of v3 for 0.5 and 0.6. It takes the new attributes.
    multiscale : Multiscale
        The metadata.

    Raises
    ------
    ReadOnlyError
        If the group was opened for reading.
    """
    group.check_metadata_writable()
    version = version_in(multiscale.version, group.metadata.zarr_format)
    change_ome(group, lambda found: _with_image(multiscale, found, version))


def to_attributes(multiscale: Multiscale, stored: Mapping[str, Any], zarr_format: ZarrFormat) -> dict[str, Any]:
    """The attributes of an image's group, given those that are stored."""
    version = version_in(multiscale.version, zarr_format)
    found = _with_image(multiscale, dict(ome_attributes(stored, zarr_format)), version)
    return {**stored, **as_attributes(found, zarr_format)}


def _with_image(multiscale: Multiscale, found: dict[str, Any], version: str) -> dict[str, Any]:
    """The attributes of OME-Zarr with those of an image among them."""
    if FORMAT_OF[version] == 3:
        found["version"] = version
    items = list(found.get("multiscales", ()))
    items[multiscale.index : multiscale.index + 1] = [multiscale.to_json(version)]
    found["multiscales"] = items
    if multiscale.channels or multiscale.omero:
        found["omero"] = {**multiscale.omero, "channels": [channel.to_json() for channel in multiscale.channels]}
    if multiscale.image_label is not None:
        found["image-label"] = multiscale.image_label.to_json()
    return found
