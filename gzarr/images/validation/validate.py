"""Validates images: metadata, arrays, labels, collections and plates, and on request every chunk.

Why not by a package: of the 64 invalid images that the tests plant, ome-zarr-models 1.7 accepts 32: scales of 0, and
such as contradict the shapes; levels of another type, or larger than those before; wrong counts of channels; labels
that are no integers, or of another extent; whatever only a recommendation asks for. It stops at the first error, has no
look at chunks, and needs Pydantic and zarr-python, which take 2.5 s to import. Here, the functions that open images are
those that validate them, so the package would come on top of what this room needs in any case.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Unpack

from gzarr.api.groups import open_group
from gzarr.display.progress import ProgressLike
from gzarr.errors import ContainsNodeError, MetadataError
from gzarr.errors.escaping import as_lines
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import GroupKeywords
from gzarr.images.image_data import ImageData
from gzarr.images.ome.documents import Multiscale, field_of, ome_attributes, ome_of, read_multiscale
from gzarr.images.ome.faults import Fault, Notes, short
from gzarr.images.ome.image_label import SOURCE
from gzarr.images.ome.plate_documents import parse_plate, parse_well
from gzarr.images.ome.series import series_paths
from gzarr.images.pyramid.resuming import read_marks
from gzarr.images.stored_levels import check_channels, check_label_shape, check_levels, open_levels
from gzarr.images.validation.level_data import check_data
from gzarr.images.ways import parse_scene, paths_of
from gzarr.indexing.keys import join_path
from gzarr.metadata.documents import member_names, read_node
from gzarr.metadata.model import GroupMeta
from gzarr.storage import Store

#: Faults that the text of an error names; all are in the report.
_NAMED = 3


@dataclass(frozen=True, slots=True, repr=False)
class Validation:
    """What a validation has found. Prints as a report.

    Attributes
    ----------
    name : str
        Store and path of what was validated.
    faults : tuple of Fault
        What is wrong, and what could be better.
    n_images : int
        Number of images that were validated, labels included.

    Examples
    --------
    >>> import gzarr.images
    >>> image = gzarr.images.create_image(shape=(8, 8), dtype="u1", units="micrometer", name="blank")
    >>> image.validate().ok
    True
    """

    name: str
    faults: tuple[Fault, ...]
    n_images: int

    @property
    def errors(self) -> tuple[Fault, ...]:
        """What breaks the specification, or is damaged."""
        return tuple(fault for fault in self.faults if fault.severity != "warning")

    @property
    def warnings(self) -> tuple[Fault, ...]:
        """What breaks recommendations."""
        return tuple(fault for fault in self.faults if fault.severity == "warning")

    @property
    def ok(self) -> bool:
        """Whether there are no errors."""
        return not self.errors

    def raise_for_errors(self) -> None:
        """Raise an error if there are errors.

        Raises
        ------
        MetadataError
            Names the first ones.
        """
        errors = self.errors
        if errors:
            more = f"; and {len(errors) - _NAMED} more" if len(errors) > _NAMED else ""
            named = "; ".join(map(str, errors[:_NAMED]))
            raise MetadataError(f"{self.name} has {_counted(len(errors), 'error')}: {named}{more}")

    def to_json(self) -> dict[str, Any]:
        """Return the findings as JSON values."""
        faults = [asdict(fault) for fault in self.faults]
        return {"name": self.name, "ok": self.ok, "images": self.n_images, "faults": faults}

    def __str__(self) -> str:
        counts = f"{_counted(len(self.errors), 'error')}, {_counted(len(self.warnings), 'warning')}"
        lines = [f"{self.name}: {_counted(self.n_images, 'image')}, {counts}"]
        lines += [f"  {'warning' if fault.severity == 'warning' else 'error':<8}{fault}" for fault in self.faults]
        return as_lines(lines)

    __repr__ = __str__


def _unfinished(store: Store, path: str) -> str | None:
    """The function that did not finish what is at a path."""
    with suppress(ContainsNodeError):  # damaged notes: gzarr verify tells them
        marks = read_marks(store, path)
        return None if marks is None else marks["name"]
    return None


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'s' * (n != 1)}"


def validate(
    image: Any,
    *,
    data: bool = False,
    path: str | None = None,
    progress: ProgressLike = None,
    device: str = "cpu",
    **kwargs: Unpack[GroupKeywords],
) -> Validation:
    """Validate an image with its labels, a collection of images or a plate, against its version of OME-Zarr.

    Besides what the specification says of metadata, it tells scales that contradict the shapes, levels out of order or
    of different types, and labels that do not lie over their image.

    Parameters
    ----------
    image : Image, Group, path, URL or store
        What to validate. An image is read again from its store.
    data : bool
        Whether to decode every chunk, and to compare samples of each level with the one before.
    path : str, optional
        Path in the store.
    progress : bool or callable, optional
        True for a bar in the terminal, for ``data``; or a function as in `gzarr.verify`.
    device : str
        Where chunks are decoded, for ``data``. Levels are compared on the host.
    **kwargs
        See `gzarr.open_group`.

    Returns
    -------
    Validation
        All that is wrong.

    Raises
    ------
    GroupNotFoundError
        If no group is there.

    Examples
    --------
    >>> import gzarr.images
    >>> image = gzarr.images.create_image("cells.zarr", shape=(8, 8), dtype="u1", units="micrometer")
    >>> image.group.attrs["ome"] = {**image.group.attrs["ome"], "version": None}
    >>> print(gzarr.images.validate("cells.zarr"))
    file://cells.zarr: 1 image, 1 error, 0 warnings
      error   file://cells.zarr: ome.version: is missing; write '0.5'
    """
    if isinstance(image, ImageData):
        image = image.group
    group = open_group(image, "r", path=path, device=device, **kwargs)
    validator = _Validator([], data, progress)
    validator.group(group)
    return Validation(str(group.store_path), tuple(dict.fromkeys(validator.faults)), validator.n_images)


@dataclass(slots=True)
class _Validator:
    """Goes through images, and notes what is wrong.

    Attributes
    ----------
    faults : list of Fault
        What is wrong.
    data, progress
        As in `validate`.
    n_images : int
        How many images it has met.
    """

    faults: list[Fault]
    data: bool
    progress: ProgressLike
    n_images: int = 0

    def _notes(self, group: Group) -> Notes:
        return Notes(str(group.store_path), self.faults.append)

    def group(self, group: Group) -> None:
        """Validate what is in a group: an image, a collection, a plate, a well, or labels."""
        found, notes = ome_of(group), self._notes(group)
        paths = series_paths(group, self.faults.append)
        if "plate" in found:
            plate = parse_plate(found["plate"], notes, field_of(group, "plate"))
            runs = {run.id for run in plate.acquisitions} or None
            for well in self._groups(group, plate.wells, notes, field_of(group, "plate.wells")):
                self._well(well, runs)
        elif "scene" in found and "multiscales" not in found:
            for path in paths_of(parse_scene(group, notes)[1]):
                self._group_of_scene(group, path)
        elif "well" in found:
            self._well(group, None)
        elif paths and "multiscales" not in found:
            for member in self._groups(group, paths, notes, field_of(group, "bioformats2raw.layout")):
                self.group(member)
        elif "labels" in found and "multiscales" not in found:
            self._labels(group, None, None)
        else:
            self.image(group)

    def _group_of_scene(self, group: Group, path: str) -> None:
        """Validate an image of a scene. One that is not there has been noted."""
        member = _group_at(group, path)
        if member is not None:
            self.image(member)

    def _well(self, group: Group, runs: Collection[int] | None) -> None:
        """Validate a well, whose fields are of some acquisitions; None if the plate does not list them."""
        notes, place = self._notes(group), field_of(group, "well")
        fields = parse_well(ome_of(group).get("well"), notes, place)
        for number, field in enumerate(fields):
            if runs is not None and field.acquisition not in runs:
                what = f"{field.acquisition} is none of the acquisitions of the plate, {sorted(runs)}"
                notes.error(f"{place}.images[{number}].acquisition", what, "name one of them")
        for member in self._groups(group, [field.path for field in fields], notes, f"{place}.images"):
            self.group(member)

    def _groups(self, group: Group, paths: Sequence[str], notes: Notes, place: str) -> Iterator[Group]:
        """The groups at some paths; those that are not there are noted."""
        for path in paths:
            member = _group_at(group, path)
            if member is None:
                notes.error(place, f"no group is at {path!r}", "restore it, or take it off the list")
            else:
                yield member

    def image(self, group: Group, *, in_labels: bool = False) -> tuple[Multiscale, list[Array | None]] | None:
        """Validate the image in a group; returns its metadata and levels if they can be told."""
        self.n_images += 1
        notes = self._notes(group)
        unfinished = _unfinished(group.store, group.path)
        if unfinished is not None:
            notes.warning(
                "", f"an unfinished {unfinished} is here", "call it again with resume=True, or overwrite=True"
            )
        items = ome_of(group).get("multiscales")
        first = None
        for index in range(max(len(items), 1) if isinstance(items, list) else 1):
            try:
                multiscale = read_multiscale(group, index, notes)
            except MetadataError as error:
                if not self.faults:
                    notes.fatal("", str(error))
                continue
            levels = open_levels(group, multiscale, notes)
            check_levels(levels, multiscale, group, notes)
            check_channels(multiscale, levels[0], notes, field_of(group, "omero"))
            if self.data:
                check_data(levels, self.faults.append, self.progress)
            first = first or (multiscale, levels)
        self._source(group, first, in_labels=in_labels)
        labels = _group_at(group, "labels")
        if labels is not None:
            self._labels(labels, group, first)
        return first

    def _source(self, group: Group, found: tuple[Multiscale, list[Array | None]] | None, *, in_labels: bool) -> None:
        """Check that labels belong to an image."""
        label = None if found is None else found[0].image_label
        notes, field = self._notes(group), field_of(group, "image-label")
        if found is not None and label is None and in_labels:
            notes.error(field, "is missing in an image of labels", "write an object, which may be empty")
            if any(level is not None and level.dtype.kind not in "iu" for level in found[1]):
                notes.fatal(
                    field_of(group, "multiscales"), "labels are not of an integer type", "store labels as integers"
                )
        if label is not None and label.source is not None and (in_labels or label.source != SOURCE):
            path = _resolved(group.path, label.source)
            meta = None if path is None else read_node(group.store, path, group.metadata.zarr_format)
            attributes = meta.attributes if isinstance(meta, GroupMeta) else {}
            if path is not None and "multiscales" not in ome_attributes(attributes, group.metadata.zarr_format):
                what = f"no image is at {label.source!r}"
                notes.warning(f"{field}.source.image", what, "give the path of the image from here")

    def _labels(self, labels: Group, group: Group | None, found: tuple[Multiscale, list[Array | None]] | None) -> None:
        """Check the group of labels: what it lists is there, and lies over the image."""
        notes, field = self._notes(labels), field_of(labels, "labels")
        listed = ome_of(labels).get("labels")
        if listed is None:
            notes.warning(field, "is missing", "list the images of labels")
            listed = []
        elif not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            notes.error(field, f"must be a list of paths, got {short(listed)}", "list the images of labels")
            listed = []
        for name in listed:
            member = _group_at(labels, name)
            if member is None:
                notes.error(field, f"no image of labels is at {name!r}", "restore it, or take it off the list")
                continue
            parsed = self.image(member, in_labels=True)
            if parsed is not None and found is not None:
                self._over(parsed, found, self._notes(member))
        for name in member_names(labels.store, labels.path, labels.metadata.zarr_format):
            if any(f"{path}/".startswith(f"{name}/") for path in listed):
                continue
            unfinished = _unfinished(labels.store, join_path(labels.path, name))
            if unfinished is not None:
                what = f"{name!r} is what an unfinished {unfinished} left"
                notes.warning(field, what, "call it again with resume=True, or overwrite=True")
            else:
                notes.warning(field, f"{name!r} is not listed", "list it, so that viewers find it")

    def _over(
        self, labels: tuple[Multiscale, list[Array | None]], image: tuple[Multiscale, list[Array | None]], notes: Notes
    ) -> None:
        if len(labels[1]) != len(image[1]):
            what = f"has {_counted(len(labels[1]), 'level')}, its image has {len(image[1])}"
            notes.warning("", what, "build as many with gzarr.images.build_pyramid")
        one, other = labels[1][0], image[1][0]
        if one is None or other is None:
            return
        if one.ndim == len(labels[0].axes) and other.ndim == len(image[0].axes):
            check_label_shape(one, labels[0].axes, other, image[0].axes, notes)


def _group_at(group: Group, path: Any) -> Group | None:
    try:
        found = group.get(path) if isinstance(path, str) and path else None
    except MetadataError:
        return None
    return found if isinstance(found, Group) else None


def _resolved(path: str, relative: str) -> str | None:
    """A path relative to another; None if it leaves the store."""
    parts = path.split("/") if path else []
    for part in relative.split("/"):
        if part == "..":
            if not parts:
                return None
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
