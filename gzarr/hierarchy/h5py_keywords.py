"""h5py's keywords of new datasets, which zarr 2 takes too, in gzarr's words."""

from __future__ import annotations

import warnings
from typing import Any

import numcodecs

from gzarr.codecs.registry import parse_codec
from gzarr.errors import MetadataError
from gzarr.hierarchy.options import is_default

#: Keywords that say how HDF5 stores a dataset, and mean nothing for Zarr.
_IGNORED = ("shuffle", "fletcher32", "scaleoffset", "track_times", "track_order")
NAMES = frozenset({"compression", "compression_opts", "fillvalue", *_IGNORED})


def without_h5py(keywords: dict[str, Any]) -> dict[str, Any]:
    """Return keywords of a new array, those of h5py replaced by those of gzarr.

    Warns of what is ignored, as zarr 2 does. Raises MetadataError for a compressor that is not known.
    """
    if NAMES.isdisjoint(keywords):
        return keywords
    known = {name: value for name, value in keywords.items() if name not in NAMES}
    if "fillvalue" in keywords:
        known["fill_value"] = keywords["fillvalue"]
    ignored = [name for name in _IGNORED if keywords.get(name)]
    if all(is_default(known.get(name, "default")) for name in ("compressor", "compressors", "codecs")):
        if "compression" in keywords:
            known["compressor"] = _compressor(keywords["compression"], keywords.get("compression_opts"))
        elif keywords.get("compression_opts") is not None:
            raise MetadataError("compression_opts goes with compression=, which was not given")
    else:
        ignored += [name for name in ("compression", "compression_opts") if name in keywords]
    for name in ignored:
        warnings.warn(f"ignoring keyword argument {name!r}", UserWarning, stacklevel=2)
    return known


def _compressor(compression: Any, opts: Any) -> Any:
    """Return the codec that h5py's ``compression`` and ``compression_opts`` mean."""
    if compression is None or compression in ("none", "default"):
        return None if compression != "default" else compression
    if isinstance(compression, int):
        compression, opts = "gzip", int(compression)  # h5py: the level of gzip
    if not isinstance(compression, str):
        return compression
    if isinstance(opts, dict):
        return parse_codec({"id": compression, **opts})
    if isinstance(opts, tuple):  # the arguments of the codec's class
        return type(numcodecs.get_codec({"id": compression}))(*opts)
    return parse_codec(compression if opts is None else f"{compression}:{opts}")
