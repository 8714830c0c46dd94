"""Metadata of plates and wells as frozen data: OME-Zarr 0.4 (in Zarr v2) and 0.5 (in Zarr v3); older ones are read.

What a document has besides is kept in ``extra`` and written back.

Source: https://ngff.openmicroscopy.org/0.4/ and /0.5/, "plate" and "well" metadata.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from gzarr.errors import MetadataError
from gzarr.images.ome.faults import Notes, short

Json: TypeAlias = dict[str, Any]

#: Names of rows, columns and fields: they are parts of paths.
_NAME: Final = re.compile(r"[A-Za-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquisition:
    """One run of a microscope over a plate.

    Attributes
    ----------
    id : int
        Its number, which fields refer to.
    name, description : str or None
        In words.
    maximumfieldcount : int or None
        The most fields that a well has of it.
    starttime, endtime : int or None
        Seconds since 1970.
    extra : mapping
        Other fields of the metadata.
    """

    id: int
    name: str | None = None
    description: str | None = None
    maximumfieldcount: int | None = None
    starttime: int | None = None
    endtime: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> Json:
        """The item of "acquisitions"."""
        known = {name: getattr(self, name) for name in _ACQUISITION}
        return {name: value for name, value in known.items() if value is not None} | dict(self.extra)


_ACQUISITION: Final = ("id", "name", "description", "maximumfieldcount", "starttime", "endtime")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlateDocument:
    """The metadata of a plate.

    Attributes
    ----------
    rows, columns : tuple of str
        Their names.
    wells : tuple of str
        Paths of the wells that have fields, "A/1".
    acquisitions : tuple of Acquisition
        The runs of the microscope; empty if nothing is said of them.
    name : str or None
        Name of the plate.
    field_count : int or None
        The most fields that a well has.
    extra : mapping
        Other fields of the metadata.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    wells: tuple[str, ...] = ()
    acquisitions: tuple[Acquisition, ...] = ()
    name: str | None = None
    field_count: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self, version: str) -> Json:
        """The value of "plate"."""
        document: Json = {"version": version} if version == "0.4" else {}
        if self.name is not None:
            document["name"] = self.name
        document |= {"rows": [{"name": n} for n in self.rows], "columns": [{"name": n} for n in self.columns]}
        document["wells"] = []
        for path in self.wells:
            row, _, column = path.partition("/")
            place = {"rowIndex": self.rows.index(row), "columnIndex": self.columns.index(column)}
            document["wells"].append({"path": path, **place})
        if self.acquisitions:
            document["acquisitions"] = [acquisition.to_json() for acquisition in self.acquisitions]
        if self.field_count is not None:
            document["field_count"] = self.field_count
        return {**document, **self.extra}

    def with_field(self, well: str, acquisition: int | None, n_fields: int, n_of_acquisition: int) -> "PlateDocument":
        """Return the metadata after a well has got one more field.

        n_fields: of the well. n_of_acquisition: fields of the well of the same acquisition.
        """

        def place(path: str) -> tuple[int, int]:
            row, _, column = path.partition("/")
            return self.rows.index(row), self.columns.index(column)

        counted = [
            replace(run, maximumfieldcount=max(run.maximumfieldcount or 1, n_of_acquisition))
            if run.id == acquisition
            else run
            for run in self.acquisitions
        ]
        wells = tuple(sorted({*self.wells, well}, key=place))
        field_count = max(self.field_count or 1, n_fields)
        return replace(self, wells=wells, acquisitions=tuple(counted), field_count=field_count)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of view of a well.

    Attributes
    ----------
    path : str
        Path of its image in the well.
    acquisition : int or None
        Number of the run that took it.
    extra : mapping
        Other fields of the metadata.
    """

    path: str
    acquisition: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> Json:
        """The item of "images"."""
        run = {} if self.acquisition is None else {"acquisition": self.acquisition}
        return {"path": self.path, **run, **self.extra}


# -- reading -----------------------------------------------------------------------------------------------------------


def parse_plate(value: Any, notes: Notes, place: str) -> PlateDocument:
    """Return the metadata of a plate. place: where it stands in the group's attributes. Raises: MetadataError."""
    document = _object(value, notes, place)
    rows, columns = (_names(document.get(name), notes, f"{place}.{name}") for name in ("rows", "columns"))
    wells = []
    for number, item in enumerate(_list(document.get("wells"), notes, f"{place}.wells")):
        where = f"{place}.wells[{number}].path"
        path = item.get("path")
        row, _, column = str(path).partition("/")
        if row not in rows or column not in columns:
            notes.fatal(where, f"{short(path)} is no row and column of the plate", "correct it, or list the row")
            continue
        indices = item.get("rowIndex", rows.index(row)), item.get("columnIndex", columns.index(column))
        if indices != (rows.index(row), columns.index(column)):
            notes.error(where, f"{path!r} is not at the rowIndex and columnIndex {indices}", "correct the indices")
        wells.append(str(path))
    runs = _list(document.get("acquisitions", []), notes, f"{place}.acquisitions")
    known = {"rows", "columns", "wells", "acquisitions", "name", "field_count", "version"}
    return PlateDocument(
        rows=rows,
        columns=columns,
        wells=tuple(wells),
        acquisitions=tuple(_acquisition(run, notes, f"{place}.acquisitions[{n}]") for n, run in enumerate(runs)),
        name=document.get("name"),
        field_count=document.get("field_count"),
        extra={key: item for key, item in document.items() if key not in known},
    )


def parse_well(value: Any, notes: Notes, place: str) -> tuple[Field, ...]:
    """Return the fields of a well. place: where its metadata stand in the group's attributes. Raises: MetadataError."""
    fields = []
    for number, item in enumerate(_list(_object(value, notes, place).get("images"), notes, f"{place}.images")):
        path, run = item.get("path"), item.get("acquisition")
        if not isinstance(path, str) or ".." in path.split("/"):
            what = f"must be a path below the well, got {short(path)}"
            notes.fatal(f"{place}.images[{number}].path", what, "name the field's group")
        extra = {key: found for key, found in item.items() if key not in ("path", "acquisition")}
        fields.append(Field(str(path), run if isinstance(run, int) else None, extra))
    return tuple(fields)


def _object(value: Any, notes: Notes, place: str) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    notes.fatal(place, f"must be an object, got {short(value)}", "open a group with the metadata of a plate")
    return {}


def _list(value: Any, notes: Notes, place: str) -> list[Mapping[str, Any]]:
    if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        return value
    notes.fatal(place, f"must be a list of objects, got {short(value)}", "correct it")
    return []


def _names(value: Any, notes: Notes, place: str) -> tuple[str, ...]:
    names = tuple(str(item.get("name")) for item in _list(value, notes, place))
    if len({*names}) < len(names):
        notes.error(place, f"names are repeated: {short(names)}", "give each its own")
    return names


def _acquisition(item: Mapping[str, Any], notes: Notes, place: str) -> Acquisition:
    number = item.get("id")
    if not isinstance(number, int):
        notes.fatal(f"{place}.id", f"must be a number, got {short(number)}", "number the acquisitions")
        number = 0
    known = {name: item[name] for name in _ACQUISITION if name in item} | {"id": number}
    return Acquisition(**known, extra={key: value for key, value in item.items() if key not in _ACQUISITION})


# -- of calls ----------------------------------------------------------------------------------------------------------


def new_names(given: int | Iterable[Any], keyword: str, *, letters: bool) -> tuple[str, ...]:
    """Return the names of rows or columns, as a call gives them: names, or how many. Raises: MetadataError."""
    if isinstance(given, int):
        names = [_letters(number) if letters else str(number + 1) for number in range(given)]
    else:
        names = [str(name) for name in given]
    for name in names:
        check_name(name, keyword)
    if not names or len({name.lower() for name in names}) < len(names):
        raise MetadataError(f"{keyword}: names that differ, in more than case, are needed, got {given!r}")
    return tuple(names)


def check_name(name: str, keyword: str) -> None:
    """Raise MetadataError for what cannot be a part of a path in a plate."""
    if _NAME.fullmatch(name) is None:
        raise MetadataError(f"{keyword}: names are letters and digits, got {name!r}")


def _letters(number: int) -> str:
    """``A`` to ``Z``, ``AA``, ``AB``, ..."""
    name = ""
    number += 1
    while number:
        number, letter = divmod(number - 1, 26)
        name = chr(ord("A") + letter) + name
    return name


def new_acquisitions(given: Sequence[Any] | None) -> tuple[Acquisition, ...]:
    """Return the acquisitions that a call means: names, mappings or `Acquisition` objects. Raises: MetadataError."""
    made = []
    for number, item in enumerate(given or ()):
        if isinstance(item, Acquisition):
            run = item
        elif isinstance(item, str):
            run = Acquisition(id=number, name=item)
        elif isinstance(item, Mapping):
            notes = Notes("create_plate")
            run = _acquisition({"id": number, **item}, notes, f"acquisitions[{number}]")
        else:
            raise MetadataError(f"acquisitions: expected names or mappings with id and name, got {item!r}")
        named = run.name if run.name is not None else str(run.id)
        made.append(replace(run, name=named, maximumfieldcount=run.maximumfieldcount or 1))
    if len({run.id for run in made}) < len(made):
        raise MetadataError(f"acquisitions: each needs an id of its own, got {[run.id for run in made]}")
    return tuple(made)
