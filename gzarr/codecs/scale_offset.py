"""The ``scale_offset`` codec: ``(x - offset) * scale`` in the data type of the array."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from gzarr.codecs.fields import changed_fields, scalar_from_json
from gzarr.codecs.spec import ArrayRepr, CodecSpec, Kind, Repr, need_array
from gzarr.errors import MetadataError

Array = np.ndarray[Any, np.dtype[Any]]


def _check_range(low: int, high: int, dtype: np.dtype[Any]) -> None:
    info = np.iinfo(dtype)
    if low < info.min or high > info.max:
        worst = low if low < info.min else high
        raise ValueError(f"scaling gives {worst}, out of range of data type {dtype} [{info.min}, {info.max}]")


def scale(values: Array, offset: Any, factor: Any) -> Array:
    """``(values - offset) * factor`` in their common native dtype.

    Raises ValueError if an integer result is out of range, where NumPy would overflow silently.
    """
    if values.dtype.kind != "f" and values.size:
        # the function is monotonic, and wrapping arithmetic is right wherever the true result is in range
        ends = sorted((int(end) - int(offset)) * int(factor) for end in (values.min(), values.max()))
        _check_range(ends[0], ends[1], values.dtype)
    with np.errstate(all="ignore"):
        return np.asarray((values - offset) * factor, dtype=values.dtype)


def unscale(values: Array, offset: Any, factor: Any) -> Array:
    """``values / factor + offset`` in their common native dtype, exact for integers.

    Raises ValueError if an integer is not a multiple of ``factor``, or a result is out of range.
    """
    with np.errstate(all="ignore"):
        if values.dtype.kind == "f":
            return np.asarray(values / factor + offset, dtype=values.dtype)
        if values.size:
            inexact = values % factor != 0
            if inexact.any():
                value = np.atleast_1d(values)[np.atleast_1d(inexact)][0]
                raise ValueError(f"stored value {value} is not a multiple of scale {factor}")
            ends = sorted(int(end) // int(factor) + int(offset) for end in (values.min(), values.max()))
            _check_range(ends[0], ends[1], values.dtype)
        return np.asarray(values // factor + offset, dtype=values.dtype)


@dataclass(frozen=True, slots=True)
class ScaleOffsetCodec(CodecSpec):
    """Subtract an offset, then multiply by a scale, in the data type of the array.

    Parameters
    ----------
    offset : int, float or str, default 0
        JSON scalar of the array's data type.
    scale : int, float or str, default 1
        JSON scalar of the array's data type, not zero.

    Raises
    ------
    MetadataError
        If a field is not a scalar, or the scale is zero.

    Notes
    -----
    The name is ``scale_offset`` in Zarr v3; Zarr v2 has numcodecs' ``fixedscaleoffset`` instead. Runs on the CPU, and
    on a GPU for floats of 4 and 8 bytes.

    Source: Zarr v3 extensions, "scale_offset codec".

    Examples
    --------
    >>> import gzarr
    >>> scaled = gzarr.codecs.ScaleOffsetCodec(offset=10, scale=100)
    >>> array = gzarr.create_array(shape=3, dtype="f8", filters=scaled)
    >>> array.filters
    (ScaleOffsetCodec(offset=10, scale=100),)
    """

    offset: float | str = 0
    scale: float | str = 1

    name = "scale_offset"
    kind: ClassVar[Kind] = "array_array"

    def __post_init__(self) -> None:
        for field in ("offset", "scale"):
            value: Any = getattr(self, field)
            if isinstance(value, np.integer | np.floating):
                value = value.item()
                object.__setattr__(self, field, value)
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise MetadataError(f"codec {self.name!r}: {field} must be a number or a string, got {value!r}")
        if self.scale == 0:
            raise MetadataError(f"codec {self.name!r}: scale must not be zero")

    def configuration(self) -> dict[str, Any]:
        """Give the fields that are not the defaults. See `CodecSpec.configuration`."""
        return changed_fields(self)

    def resolve(self, decoded: Repr) -> tuple[Self, Repr]:
        """Keep the dtype, and scale the fill value. See `CodecSpec.resolve`."""
        array = need_array(self.name, decoded)
        fill = array.fill_value
        offset, factor = self.scalars(array.dtype)
        if fill is not None:
            native = array.dtype.newbyteorder("=")
            try:
                fill = scale(np.asarray(fill, dtype=native), offset, factor)[()]
            except ValueError as error:
                raise MetadataError(f"codec {self.name!r}: the fill value cannot be encoded: {error}") from error
        return self, ArrayRepr(array.dtype, array.shape, fill)

    def scalars(self, dtype: np.dtype[Any]) -> tuple[Any, Any]:
        """Give the offset and the scale as scalars.

        Parameters
        ----------
        dtype : numpy.dtype
            Dtype of the array.

        Returns
        -------
        offset, scale : numpy scalar
            Scalars of the dtype in native byte order.

        Raises
        ------
        MetadataError
            If the dtype is not an integer or a float, or cannot represent them.
        """
        if dtype.kind not in "iuf" or dtype.itemsize > 8:
            raise MetadataError(f"codec {self.name!r} encodes integers and floats, not data type {dtype}")
        native = dtype.newbyteorder("=")
        factor = scalar_from_json(self.name, "scale", self.scale, native)
        if not factor:
            raise MetadataError(f"codec {self.name!r}: scale {self.scale!r} is zero in data type {dtype}")
        return scalar_from_json(self.name, "offset", self.offset, native), factor
