"""The ``cast_value`` codec: numbers of one data type stored as numbers of another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from gzarr.codecs.fields import changed_fields, check_choice, check_fields, scalar_from_json
from gzarr.codecs.rounding import OUT_OF_RANGE, ROUNDINGS, cast_values
from gzarr.codecs.spec import ArrayRepr, CodecSpec, Kind, Repr, need_array
from gzarr.errors import MetadataError

#: Data types that can be cast: those that cast-value-rs, the backend of zarr-python's codec, knows.
DATA_TYPES = (
    *("int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)

#: For each direction, pairs of JSON scalars.
ScalarMap = tuple[tuple[str, tuple[tuple[Any, Any], ...]], ...]


def _data_type(value: Any) -> str:
    if isinstance(value, Mapping):
        check_fields("cast_value", value, ("name", "configuration"), ("name",))
        if value.get("configuration"):
            raise MetadataError(f"codec 'cast_value': data_type {dict(value)!r} is not one of {', '.join(DATA_TYPES)}")
        value = value["name"]
    if not isinstance(value, str):
        try:
            value = np.dtype(value).name
        except TypeError as error:
            raise MetadataError(f"codec 'cast_value': data_type must name a data type, got {value!r}") from error
    return check_choice("cast_value", "data_type", value, DATA_TYPES)


def _scalar_map(value: Any) -> ScalarMap | None:
    """Freeze ``{"encode": [[from, to], ...], "decode": ...}``; each direction may also be an object."""
    if value is None:
        return None
    if isinstance(value, tuple):
        value = dict(value)
    check_fields("cast_value", value, ("encode", "decode"))
    frozen = []
    for direction, entries in value.items():
        pairs = list(entries.items()) if isinstance(entries, Mapping) else entries
        if not isinstance(pairs, Sequence) or isinstance(pairs, str):
            raise MetadataError(f"codec 'cast_value': scalar_map {direction} must be a list of pairs, got {entries!r}")
        for pair in pairs:
            if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
                raise MetadataError(f"codec 'cast_value': scalar_map {direction} must hold pairs, got {pair!r}")
        frozen.append((direction, tuple((pair[0], pair[1]) for pair in pairs)))
    return tuple(frozen)


@dataclass(frozen=True, slots=True)
class CastValueCodec(CodecSpec):
    """Cast numbers to another data type by value when encoding, and back when decoding.

    Parameters
    ----------
    data_type : str or dtype
        Data type of what is stored: an integer or a float of up to 64 bits.
    rounding : {"nearest-even", "towards-zero", "towards-positive", "towards-negative", "nearest-away"}
        How values between two stored ones are rounded.
    out_of_range : {"error", "clamp", "wrap"}, optional
        What happens to values beyond the stored type: an error (the default), the nearest limit, or the low bits.
        "wrap" is for stored integers only.
    scalar_map : mapping, optional
        ``{"encode": [[from, to], ...], "decode": [[from, to], ...]}`` of JSON scalars. They take precedence over all
        other rules, and are the only way to store NaN and infinities as integers.

    Raises
    ------
    MetadataError
        If a field has a bad value.

    Notes
    -----
    The name is ``cast_value`` in Zarr v3; Zarr v2 has no such codec. Runs on the CPU, and on a GPU if casts are exact.

    Source: Zarr v3 extensions, "cast_value codec", with the scalar map of zarr-python 3.4.

    Examples
    --------
    >>> import gzarr
    >>> cast = gzarr.codecs.CastValueCodec("int16", rounding="towards-zero", out_of_range="clamp")
    >>> array = gzarr.create_array(shape=3, dtype="f8", filters=cast, fill_value=0)
    >>> array[:] = [1.9, -1.9, 1e6]
    >>> array[:].tolist()
    [1.0, -1.0, 32767.0]
    """

    data_type: str
    rounding: str = "nearest-even"
    out_of_range: str | None = None
    scalar_map: ScalarMap | None = None

    name = "cast_value"
    kind: ClassVar[Kind] = "array_array"

    def __post_init__(self) -> None:
        object.__setattr__(self, "data_type", _data_type(self.data_type))
        check_choice(self.name, "rounding", self.rounding, ROUNDINGS)
        if self.out_of_range is not None:
            check_choice(self.name, "out_of_range", self.out_of_range, OUT_OF_RANGE)
        if self.out_of_range == "wrap" and self.data_type.startswith("float"):
            raise MetadataError(f"codec {self.name!r}: out_of_range 'wrap' is for integers, not {self.data_type!r}")
        object.__setattr__(self, "scalar_map", _scalar_map(self.scalar_map))

    def configuration(self) -> dict[str, Any]:
        """Give the fields that are not the defaults. See `CodecSpec.configuration`."""
        fields = changed_fields(self)
        if self.scalar_map is not None:
            fields["scalar_map"] = {direction: [list(pair) for pair in pairs] for direction, pairs in self.scalar_map}
        return fields

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Change the dtype, and cast the fill value with the same rules. See `CodecSpec.resolve`."""
        array = need_array(self.name, decoded)
        target = np.dtype(self.data_type)
        native = array.dtype.newbyteorder("=")
        if native.name not in DATA_TYPES:
            raise MetadataError(
                f"codec {self.name!r} cannot cast from {array.dtype}, only from {', '.join(DATA_TYPES)}"
            )
        self.mapping("decode", target, native)
        fill = array.fill_value
        if fill is not None:
            try:
                fill = self.cast("encode", np.asarray(fill, dtype=native), target)[()]
            except ValueError as error:
                raise MetadataError(f"codec {self.name!r}: the fill value cannot be encoded: {error}") from error
        return self, ArrayRepr(target, array.shape, fill)

    def mapping(self, direction: str, source: np.dtype[Any], target: np.dtype[Any]) -> tuple[tuple[Any, Any], ...]:
        """Give the scalar map of one direction as scalars.

        Parameters
        ----------
        direction : {"encode", "decode"}
            Which map.
        source, target : numpy.dtype
            Native dtypes of the values before and after the cast.

        Returns
        -------
        tuple of pairs
            (scalar of ``source``, scalar of ``target``).

        Raises
        ------
        MetadataError
            If a dtype cannot represent a scalar.
        """
        field = f"scalar_map {direction}"
        return tuple(
            (scalar_from_json(self.name, field, key, source), scalar_from_json(self.name, field, value, target))
            for key, value in dict(self.scalar_map or ()).get(direction, ())
        )

    def cast(
        self, direction: str, values: np.ndarray[Any, np.dtype[Any]], target: np.dtype[Any]
    ) -> np.ndarray[Any, np.dtype[Any]]:
        """Cast values in one direction.

        Parameters
        ----------
        direction : {"encode", "decode"}
            Which scalar map applies.
        values : numpy.ndarray
            Numbers of any shape and byte order, on the host.
        target : numpy.dtype
            Native dtype of the result.

        Returns
        -------
        numpy.ndarray
            New values of the same shape.

        Raises
        ------
        ValueError
            If a value cannot be cast; the message names it.
        """
        return cast_values(
            values,
            target,
            rounding=self.rounding,
            out_of_range=self.out_of_range or "error",
            mapping=self.mapping(direction, values.dtype.newbyteorder("="), target),
        )
