"""What a new level of an image is made with: data type, chunks, numbers by axis, keywords of its array."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import numpy as np

from gzarr.dtypes import parse_dtype
from gzarr.errors import MetadataError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.missing import as_element
from gzarr.images.ome.axes import ImageAxis, by_axis, names_of, spatial
from gzarr.images.ome.documents import FORMAT_OF, Multiscale
from gzarr.images.ome.transformations import Numbers
from gzarr.metadata.conventions import nodata_attributes, nodata_of

#: Decoded bytes of a chunk of a new image, at most: a viewer fetches few, and shows them soon.
CHUNK_NBYTES = 1 << 20


class EncodingKeywords(TypedDict, total=False):
    """How chunks are encoded: see `gzarr.create_array`."""

    compressor: Any
    compressors: Any
    filters: Any
    serializer: Any
    codecs: Any
    fill_value: Any


def new_dtype(dtype: Any) -> np.dtype[Any]:
    """The data type of a new image. Raises MetadataError if it is missing, or not one of numbers."""
    if dtype is None:
        raise MetadataError("dtype is missing: pass dtype=..., or data=...")
    kind = parse_dtype(dtype).dtype
    if is_no_number(kind):
        raise MetadataError(f"dtype: images hold numbers, got {kind}")
    return kind


def is_no_number(dtype: np.dtype[Any]) -> bool:
    """Whether elements are texts, objects, times or records. Types of ml_dtypes are numbers of kind V."""
    return dtype.kind in "OSUMm" or dtype.names is not None


def level_keywords(multiscale: Multiscale, given: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords of `Group.create_array` for a level, with what OME-Zarr wants of its arrays."""
    names = names_of(multiscale.axes)
    keywords = dict(given)
    if keywords.get("chunks") is None and keywords.get("layout") is None:
        keywords["chunks"] = new_chunks(multiscale.axes, keywords["shape"], keywords["dtype"].itemsize)
    if FORMAT_OF.get(multiscale.version) == 3:
        return {**keywords, "dimension_names": names}
    attributes = {**keywords.get("attributes", {}), "_ARRAY_DIMENSIONS": list(names)}
    return {**keywords, "dimension_separator": "/", "attributes": attributes}


def nodata_keywords(skip: Any, source: Any, dtype: np.dtype[Any], zarr_format: int) -> dict[str, Any]:
    """The keywords of a level 0 that records what stands for missing data; none for a mask, or if nothing does.

    skip: as in `gzarr.images.build_pyramid`. source: the array that level 0 is made of. Raises: ValueError if no
    element is that number.
    """
    kind = parse_dtype(dtype)
    value = None
    if skip is not None and not np.ndim(skip):
        value = as_element(skip, kind)
    elif skip is None and isinstance(source, Array):
        value = _cast(nodata_of(source.metadata), dtype)
    if value is None:
        return {}
    return {"fill_value": value, "attributes": nodata_attributes(value, kind, zarr_format)}


def _cast(nodata: Any, dtype: np.dtype[Any]) -> Any:
    """What missing elements become in another data type; None if integers become another number."""
    if nodata is None or nodata.dtype == dtype:
        return nodata
    with np.errstate(invalid="ignore", over="ignore"):
        value = nodata.astype(dtype)
    return value if value == nodata or dtype.kind in "fc" else None


def new_chunks(axes: Sequence[ImageAxis], shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Chunks for an image: squares or cubes with a side that is a power of two, of one time and channel."""
    inner = spatial(axes)
    side = 1 << max(int(math.log2(max(CHUNK_NBYTES // itemsize, 1)) / len(inner)), 0)
    return tuple(max(min(side, n), 1) if axis in inner else 1 for axis, n in enumerate(shape))


def numbers(value: Any, axes: Sequence[ImageAxis], keyword: str, default: float) -> Numbers:
    """A number for every axis, as a call gives them. Raises MetadataError naming the keyword."""
    inner, names = spatial(axes), names_of(axes)
    if value is None:
        found = [default] * len(axes)
    elif isinstance(value, Mapping):
        chosen = by_axis(axes, value, keyword)
        found = [chosen.get(name, default) for name in names]
    elif np.ndim(value) == 0:
        found = [value if axis in inner else default for axis in range(len(axes))]
    else:
        found = list(value)
    try:
        made = tuple(map(float, found))
    except (TypeError, ValueError) as error:
        raise MetadataError(f"{keyword}: numbers are needed, got {value!r}") from error
    if len(made) != len(axes):
        raise MetadataError(f"{keyword}: {len(axes)} numbers are needed, one for each of {names}, got {value!r}")
    if not all(math.isfinite(n) and (n > 0 or keyword != "scale") for n in made):
        raise MetadataError(f"{keyword}: {'numbers > 0' if keyword == 'scale' else 'finite numbers'}, got {value!r}")
    return made
