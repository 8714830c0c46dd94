"""Plates of high-content screening: wells in rows and columns, each with images of some fields of view."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Unpack, overload

from gzarr.api.groups import create_group, open_group
from gzarr.errors import MetadataError
from gzarr.errors.escaping import escaped
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import GroupKeywords, OpenMode
from gzarr.images.create import create_image
from gzarr.images.image import Image, open_image
from gzarr.images.ome import plate_documents
from gzarr.images.ome.documents import Version, change_ome, field_of, ome_of, place_name, version_of, zarr_format_of
from gzarr.images.ome.faults import Notes
from gzarr.images.ome.plate_documents import Acquisition, Field, PlateDocument


class Well(Sequence[Image]):
    """A well of a plate: the images of its fields, by number or path.

    Parameters
    ----------
    group : Group
        The group.
    path : str
        Its path in the plate, "A/1".

    Attributes
    ----------
    group, path
        The same.
    """

    def __init__(self, group: Group, path: str) -> None:
        self.group, self.path = group, path

    @property
    def row(self) -> str:
        """Name of its row."""
        return self.path.partition("/")[0]

    @property
    def column(self) -> str:
        """Name of its column."""
        return self.path.partition("/")[2]

    @property
    def fields(self) -> tuple[Field, ...]:
        """Paths of the images, and which acquisition each is of."""
        notes = Notes(str(self.group.store_path))
        return plate_documents.parse_well(ome_of(self.group).get("well"), notes, field_of(self.group, "well"))

    def __len__(self) -> int:
        return len(self.fields)

    @overload
    def __getitem__(self, field: int | str) -> Image: ...
    @overload
    def __getitem__(self, field: slice) -> list[Image]: ...
    def __getitem__(self, field: int | str | slice) -> Image | list[Image]:
        if isinstance(field, slice):
            return [self[one.path] for one in self.fields[field]]
        path = field if isinstance(field, str) else self.fields[field].path
        if path not in [one.path for one in self.fields]:
            raise KeyError(f"{path!r} is no field of {self.group.store_path}: {[one.path for one in self.fields]}")
        group = self.group[path]
        if not isinstance(group, Group):
            raise MetadataError(f"{group.store_path} is listed as a field, but is an array")
        return open_image(group)

    def __repr__(self) -> str:
        return escaped(f"<Well {self.path} of {len(self)} field{'s' * (len(self) != 1)}>")


class Plate(Mapping[str, Well]):
    """A plate: its wells by path, ``plate["A/1"]``. A plate is made by `open_plate` and `create_plate`.

    Parameters
    ----------
    group : Group
        The group.

    Attributes
    ----------
    group
        The same.
    """

    def __init__(self, group: Group) -> None:
        self.group = group

    @property
    def metadata(self) -> PlateDocument:
        """What the group's attributes say. Raises: MetadataError."""
        found = ome_of(self.group)
        where = str(self.group.store_path)
        if "plate" not in found:
            kind = "an image: use open_image" if "multiscales" in found else "no plate: its attributes have none"
            raise MetadataError(f"{where} is {kind}")
        return plate_documents.parse_plate(found["plate"], Notes(where), field_of(self.group, "plate"))

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the rows."""
        return self.metadata.rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.metadata.columns

    @property
    def acquisitions(self) -> tuple[Acquisition, ...]:
        """Runs of the microscope."""
        return self.metadata.acquisitions

    @property
    def name(self) -> str | None:
        """Name of the plate."""
        return self.metadata.name

    @property
    def version(self) -> Version:
        """Version of OME-Zarr in which fields are written."""
        return version_of(self.group)

    def __getitem__(self, path: str) -> Well:
        if path not in self.metadata.wells:
            raise KeyError(f"{path!r} is no well of {self.group.store_path} that has fields: {list(self)}")
        group = self.group[path]
        if not isinstance(group, Group):
            raise MetadataError(f"{group.store_path} is listed as a well, but is an array")
        return Well(group, path)

    def __iter__(self) -> Iterator[str]:
        return iter(self.metadata.wells)

    def __len__(self) -> int:
        return len(self.metadata.wells)

    def create_field(
        self,
        row: str,
        column: str | int,
        data: Any = None,
        *,
        field: str | None = None,
        acquisition: int | None = None,
        **options: Any,
    ) -> Image:
        """Create the image of a field. The well and the plate name it when it is complete.

        Parameters
        ----------
        row, column : str or int
            Names of the well's row and column.
        data : array-like, optional
            The picture, as in `create_image`.
        field : str, optional
            Path of the image in the well. By default the next number.
        acquisition : int, optional
            Number of the run that took it. Needed if the plate has several.
        **options
            Keywords of `create_image`.

        Returns
        -------
        Image
            The image.

        Raises
        ------
        MetadataError
            If the plate has no such row, column or acquisition, or for what `create_image` raises it.
        ContainsGroupError
            If the field exists.

        Examples
        --------
        >>> import gzarr.images
        >>> plate = gzarr.images.create_plate(rows=2, columns=3)
        >>> plate.create_field("B", 2, shape=(64, 64), dtype="u2").shape
        (64, 64)
        >>> plate["B/2"]
        <Well B/2 of 1 field>
        """
        document, column = self.metadata, str(column)
        for name, known, keyword in ((row, document.rows, "row"), (column, document.columns, "column")):
            if name not in known:
                raise MetadataError(f"{self.group.store_path} has no {keyword} {name!r}: it has {', '.join(known)}")
        runs = [run.id for run in document.acquisitions]
        if acquisition is None and len(runs) == 1:
            acquisition = runs[0]
        if (acquisition is None and runs) or (acquisition is not None and acquisition not in runs):
            raise MetadataError(f"{self.group.store_path}: acquisition must be one of {runs}, got {acquisition!r}")
        well = f"{row}/{column}"
        taken = {one.path for one in self[well].fields} if well in document.wells else set()
        name = next(str(n) for n in range(len(taken) + 1) if str(n) not in taken) if field is None else field
        plate_documents.check_name(name, "field")
        image = create_image(self.group, data, path=f"{well}/{name}", version=self.version, **options)
        self._list(well, Field(name, acquisition))
        return image

    def _list(self, well: str, field: Field) -> None:
        """Note a field that is complete: first in its well, then in the plate."""
        version, notes = self.version, Notes(str(self.group.store_path))
        group: Any = self.group[well]
        fields: list[Field] = []

        def in_well(found: dict[str, Any]) -> dict[str, Any]:
            document = found.get("well", {"images": []})
            listed = plate_documents.parse_well(document, notes, "well")
            fields[:] = [*(one for one in listed if one.path != field.path), field]
            own = {"version": "0.4"} if version == "0.4" else {}
            return {**found, "well": {**document, "images": [one.to_json() for one in fields], **own}}

        def in_plate(found: dict[str, Any]) -> dict[str, Any]:
            same = sum(one.acquisition == field.acquisition for one in fields)
            document = plate_documents.parse_plate(found.get("plate"), notes, "plate")
            document = document.with_field(well, field.acquisition, len(fields), same)
            return {**found, "plate": document.to_json(version)}

        change_ome(group, in_well, version)
        change_ome(self.group, in_plate)

    def __repr__(self) -> str:
        document = self.metadata
        size = f"{len(document.rows)} x {len(document.columns)}"
        return escaped(f"<Plate {self.group.store_path} {size}, {len(document.wells)} wells with fields>")


def create_plate(
    store: Any = None,
    rows: int | Iterable[str] = 8,
    columns: int | Iterable[str | int] = 12,
    *,
    acquisitions: Sequence[Any] | None = None,
    name: str | None = None,
    version: Version = "0.5",
    overwrite: bool = False,
    path: str | None = None,
    device: str | None = None,
    **kwargs: Unpack[GroupKeywords],
) -> Plate:
    """Create a plate without fields; `Plate.create_field` adds them.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping, optional
        Where to create the plate. By default in memory.
    rows, columns : int or iterable of str
        Their names, or how many there are: rows are then called A, B, ..., columns 1, 2, ...
    acquisitions : sequence, optional
        Runs of the microscope: a name, or a mapping with id, name, description, starttime and endtime, for each.
    name : str, optional
        Name of the plate; by default the last part of its path.
    version : {"0.5", "0.4", "0.6"}
        Version of OME-Zarr: 0.5 is stored in Zarr v3, 0.4 in v2.
    overwrite : bool
        Whether to replace what is stored there.
    path : str, optional
        Path of the plate in the store.
    device : str, optional
        Where reads put their results: "auto", "cpu", "cuda" or "cuda:N". By default the setting ``device``.
    **kwargs
        See `gzarr.open_group`.

    Returns
    -------
    Plate
        The plate. The specification wants at least one well, so that it is valid once it has a field.

    Raises
    ------
    MetadataError
        If a keyword is malformed. Nothing is written or deleted.
    ContainsArrayError, ContainsGroupError
        If something is stored there and ``overwrite`` is false.

    Examples
    --------
    >>> import numpy as np
    >>> import gzarr.images
    >>> plate = gzarr.images.create_plate("screen.zarr", rows=8, columns=12, acquisitions=["first day"])
    >>> image = plate.create_field("A", 1, np.zeros((64, 64), "u2"), scale=0.5, units="micrometer")
    >>> plate
    <Plate file://screen.zarr 8 x 12, 1 wells with fields>
    >>> [image.shape for image in plate["A/1"]]
    [(64, 64)]
    """
    zarr_format = zarr_format_of(version)
    document = PlateDocument(
        rows=plate_documents.new_names(rows, "rows", letters=True),
        columns=plate_documents.new_names(columns, "columns", letters=False),
        acquisitions=plate_documents.new_acquisitions(acquisitions),
        name=name,
    )
    group = create_group(store, overwrite=overwrite, path=path, zarr_format=zarr_format, device=device, **kwargs)
    named = {"name": name or place_name(group).removesuffix(".zarr").removesuffix(".ome") or "plate"}
    described = {**named, **document.to_json(version)}
    change_ome(group, lambda found: {**found, "plate": described}, version)
    return Plate(group)


def open_plate(
    store: Any,
    mode: OpenMode | None = None,
    *,
    path: str | None = None,
    device: str | None = None,
    **kwargs: Unpack[GroupKeywords],
) -> Plate:
    """Open a plate of OME-Zarr.

    Parameters
    ----------
    store : Store, Group, path, URL or mapping
        Where the plate is stored.
    mode : {"r", "r+"}, optional
        "r" reads; "r+" also lets fields be added. By default "r+", or "r" for a store that can only be read.
    path : str, optional
        Path of the plate in the store.
    device : str, optional
        Where reads put their results: "auto", "cpu", "cuda" or "cuda:N". By default the setting ``device``.
    **kwargs
        See `gzarr.open_group`.

    Returns
    -------
    Plate
        The plate.

    Raises
    ------
    GroupNotFoundError
        If no group is stored there.
    MetadataError
        If the group is no plate, or its metadata are malformed. The message names the group, the field and the remedy.

    Examples
    --------
    >>> import gzarr.images
    >>> made = gzarr.images.create_plate("small.zarr", rows=["A", "B"], columns=[5, 6])
    >>> gzarr.images.open_plate("small.zarr", "r").columns
    ('5', '6')
    """
    if mode not in (None, "r", "r+"):
        raise ValueError(f"mode must be 'r' or 'r+', got {mode!r}; create_plate makes new plates")
    if isinstance(store, Group) and path is None and device is None and not kwargs and mode in (None, "r+"):
        plate = Plate(store)
    else:
        plate = Plate(open_group(store, mode or "r+", path=path, device=device, **kwargs))
    _ = plate.metadata  # what is malformed raises here
    return plate
