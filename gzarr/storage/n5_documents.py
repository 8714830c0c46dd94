"""The documents of N5 data sets as those of Zarr v2 arrays, and the reverse.

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


def to_n5(said: Mapping[str, Any], what: str) -> dict[str, Any]:
    """The N5 document of an array. Raises: MetadataError for what N5 does not support."""
    try:
        dtype = np.dtype(said["dtype"])
    except TypeError:
        dtype = np.dtype("V1")
    if dtype.kind not in "biufc":
        raise MetadataError(f"{what}: N5 has no data type for {said['dtype']!r}; it has integers and floats")
    for name, wanted in (("fill_value", (0, None, False, 0.0)), ("order", ("C",)), ("filters", (None, []))):
        if said.get(name) not in wanted and said.get(name) != [0.0, 0.0]:
            raise MetadataError(f"{what}: N5 has no {name}={said[name]!r}; only {wanted[0]!r}")
    if said.get("dimension_separator", ".") != ".":
        raise MetadataError(f"{what}: N5 has its own chunk keys; leave dimension_separator out")
    return {
        "dimensions": list(reversed(said["shape"])),
        "blockSize": list(reversed(said["chunks"])),
        "dataType": dtype.name,
        "compression": _compressor_to_n5(said["compressor"]),
    }


def _compressor_to_n5(config: Mapping[str, Any] | None) -> dict[str, Any]:
    if config is not None and config["id"] == "n5_wrapper":
        config = config["compressor_config"]
    if config is None:
        return {"type": "raw"}
    rest = {k: v for k, v in config.items() if k != "id"}
    match config["id"]:
        case "bz2":
            return {"type": "bzip2", "blockSize": rest.get("level", 1)}
        case "gzip" | "zlib":
            return {"type": "gzip", "level": rest.get("level", 1), "useZlib": config["id"] == "zlib"}
        case "lzma" if rest.get("format", 1) == 1 and rest.get("check", -1) in (-1, 4) and not rest.get("filters"):
            return {"type": "xz", "preset": rest.get("preset") or 6}
    return {"type": config["id"], **rest}


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
