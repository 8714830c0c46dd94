"""The keywords of the array that holds a new variable: its encoded data, attributes, chunks and codecs."""

from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import Any, Literal

import numpy as np
import xarray as xr
from xarray.backends.zarr import encode_zarr_attr_value

from gzarr.dtypes import cast_fill, parse_dtype
from gzarr.errors import MetadataError
from gzarr.interop.xarray.variables import HAS_STRINGS, OBJECTS, encoded_variable
from gzarr.metadata.conventions import ATTRIBUTE, MASK, marking

#: What an encoding may say besides the CF conventions, which Xarray takes out of it.
_CODECS = ("compressor", "compressors", "filters", "serializer", "codecs", "object_codec")
_KNOWN = frozenset(
    {*_CODECS, "chunks", "shards", "fill_value", "order", "chunk_key_encoding", "write_empty_chunks", "layout"}
)
#: What other formats leave there.
_DROPPED = frozenset({"source", "original_shape", "preferred_chunks", "cache_metadata"})


def array_options(
    name: str, variable: xr.Variable, encoding: Mapping[str, Any] | None, zarr_format: Literal[2, 3], empty: bool | None
) -> dict[str, Any]:
    """Return the keywords of `gzarr.create_array` for a variable, with its encoded values as ``data``.

    Parameters
    ----------
    name : str
        Name of the variable.
    variable : xarray.Variable
        The variable, decoded.
    encoding : mapping, optional
        What the caller asks for: unknown keywords are refused. By default the variable's own encoding, of which
        everything that this array cannot have is left out.
    zarr_format : {2, 3}
        Format of the array.
    empty : bool, optional
        Whether chunks equal to the fill value are stored.

    Raises
    ------
    ValueError
        If ``encoding`` has an unknown keyword.
    """
    given = variable.copy(deep=False)
    if encoding is not None:
        try:
            given.encoding = dict(encoding)
        except (TypeError, ValueError) as error:
            raise ValueError(f"encoding of variable {name!r} must be castable to a dict; got {encoding!r}") from error
    if given.dtype.kind == "T" and not (HAS_STRINGS and given.dtype == np.dtypes.StringDType()):
        given = given.astype(object if given.chunks is None else OBJECTS)  # Xarray replaces missing text
    encoded = encoded_variable(given, name, **({"zarr_format": 3} if HAS_STRINGS else {}))  # keeps strings
    dtype = str if _is_text(encoded.dtype) else encoded.dtype
    options = {key: value for key, value in encoded.encoding.items() if key not in _DROPPED}
    if options.get(MASK, MASK) is None:  # how Xarray is told to mark nothing
        del options[MASK]
    if encoding is not None:
        _check_known(name, options, zarr_format)
    else:
        options = _inherited({key: options[key] for key in options if key in _KNOWN}, dtype, encoded.ndim, zarr_format)
    options["chunks"] = _chunks(options.get("chunks"), encoded)
    attributes = dict(encoded.attrs)
    mask = attributes.pop(MASK, None)
    if zarr_format == 2:
        options["fill_value"] = mask
        attributes[ATTRIBUTE] = list(encoded.dims)
    else:
        if options.get("fill_value") is None:  # zeros would not be told from missing chunks of floats
            options["fill_value"] = np.nan if encoded.dtype.kind == "f" else None
        attributes |= marking(mask, parse_dtype(dtype), attributes)
        options["dimension_names"] = encoded.dims
    if empty is not None:
        options["write_empty_chunks"] = empty
    stored = {str(key): encode_zarr_attr_value(value) for key, value in attributes.items()}
    options |= {"shape": encoded.shape, "dtype": dtype, "zarr_format": zarr_format, "attributes": stored}
    return {"data": encoded.data, **options}


def _is_text(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "T" or (dtype.metadata is not None and dtype.metadata.get("element_type") is str)


def _check_known(name: str, options: Mapping[str, Any], zarr_format: int) -> None:
    if zarr_format == 2 and "fill_value" in options:
        raise ValueError(
            f"encoding of variable {name!r}: in Zarr v2, '_FillValue' is the fill value; give that instead"
        )
    for key in options:
        if key not in _KNOWN:
            near = get_close_matches(key, _KNOWN, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"known besides Xarray's own: {', '.join(sorted(_KNOWN))}"
            raise ValueError(f"unexpected encoding of variable {name!r}: {key!r}; {hint}")


def _inherited(options: dict[str, Any], dtype: Any, ndim: int, zarr_format: Literal[2, 3]) -> dict[str, Any]:
    """Return what a variable was read with, as far as the new array can have it."""
    from_v3 = "serializer" in options
    if from_v3 != (zarr_format == 3) and not options.keys().isdisjoint(_CODECS):
        # Filters of one format are not those of the other; one compressor of bytes is.
        compressors = options.get("compressors") or ()
        options = {key: value for key, value in options.items() if key not in _CODECS}
        if len(compressors) == 1:
            options["compressors"] = compressors
    serializer = options.get("serializer")
    if serializer is not None and _is_vlen(serializer) != (dtype is str):
        del options["serializer"]
    chunks = options.get("chunks")
    if isinstance(chunks, (tuple, list)) and len(chunks) != ndim:
        options = {key: value for key, value in options.items() if key not in ("chunks", "shards")}
    if options.get("fill_value") is not None:
        kept = None
        with suppress(MetadataError):
            kept = cast_fill(options["fill_value"], parse_dtype(dtype))
        options["fill_value"] = kept
    return {key: value for key, value in options.items() if value is not None or key == "compressors"}


def _is_vlen(serializer: Any) -> bool:
    form = serializer if isinstance(serializer, Mapping) else serializer.to_dict()
    return str(form["name"]).startswith("vlen-")


def _chunks(chunks: Any, variable: xr.Variable) -> Any:
    """Return lengths of chunks: those of the encoding, else of Dask's blocks; None for gzarr's own choice."""
    if isinstance(chunks, (int, np.integer)):
        return (int(chunks),) * variable.ndim
    if isinstance(chunks, (tuple, list)) and any(isinstance(length, float) for length in chunks):
        raise TypeError(f"encoding: lengths of chunks are integers, got chunks={chunks!r}")
    if chunks is not None:
        return chunks
    return None if variable.chunks is None else tuple(max(1, *lengths) for lengths in variable.chunks)
