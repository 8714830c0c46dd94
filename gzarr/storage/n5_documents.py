"""The documents of N5 data sets as those of Zarr v2 arrays.

Source: https://github.com/saalfeldlab/n5#file-system-specification
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gzarr.errors import MetadataError


def is_array(document: Mapping[str, Any] | None) -> bool:
    """Whether a document is that of a data set."""
    return document is not None and "dimensions" in document


def to_zarr(document: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """The ``.zarray`` of a data set. Raises: MetadataError naming the field."""
    said = document or {}
    try:
        dtype = np.dtype(said["dataType"])
        chunks = list(reversed(said["blockSize"]))
        compression = said.get("compression", said.get("compressionType", {"type": "raw"}))
        if isinstance(compression, str):  # before version 1.1 of N5
            compression = {"type": compression}
        compressor = _compressor_to_zarr(compression)
        shape = list(reversed(said["dimensions"]))
    except (KeyError, TypeError) as error:
        raise MetadataError(f"{what}: the data set is malformed: {error}") from error
    codec = {"id": "n5_wrapper", "compressor_config": compressor, "dtype": dtype.str, "chunk_shape": chunks}
    fixed = {"fill_value": 0, "order": "C", "filters": [], "dimension_separator": ".", "zarr_format": 2}
    return {"shape": shape, "chunks": chunks, "dtype": dtype.str, "compressor": codec, **fixed}


def _compressor_to_zarr(said: Mapping[str, Any]) -> dict[str, Any] | None:
    rest = {k: v for k, v in said.items() if k != "type"}
    match said["type"]:
        case "raw":
            return None
        case "bzip2":
            return {"id": "bz2", "level": rest.get("blockSize", 9)}
        case "gzip":
            level = rest.get("level", -1)
            return {"id": "zlib" if rest.get("useZlib") else "gzip", "level": level if level >= 0 else 6}
        case "xz":
            return {"id": "lzma", "format": 1, "check": -1, "preset": rest.get("preset", 6), "filters": None}
        case "blosc":
            return {"id": "blosc", **{k: v for k, v in rest.items() if k != "nthreads"}}
        case "lz4" if "blockSize" in rest:  # frames of lz4-java, which are told apart by their magic
            return {"id": "lz4"}
    return {"id": said["type"], **rest}
