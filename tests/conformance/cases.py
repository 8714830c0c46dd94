"""Arrays to exchange with other implementations: a data type, codecs, a layout and values that suit them.

A case is described by the keywords of ``create_array``, which gzarr and zarr-python share; codecs are Zarr v3 JSON or
numcodecs objects. Nothing here imports gzarr or a peer.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numcodecs
import numpy as np

from tests.conformance.codec_chains import Codecs, codecs_of
from tests.conformance.layouts import LAYOUTS_V2, LAYOUTS_V3, Layout, v3
from tests.conformance.samples import DTYPES_V2, DTYPES_V3, ML, NUMBERS, VARIABLE, Dtype, as_dtype, fill_of, values_of


@dataclass(frozen=True)
class Case:
    """One array to exchange.

    Attributes:
        dtype: see `Dtype`.
        codecs: its codecs.
        layout: its layout.
        zarr_format: 2 or 3.
        seed: of its values; odd seeds have a fill value of their own.
        extra: further keywords of ``create_array``.
    """

    dtype: Dtype
    codecs: Codecs
    layout: Layout
    zarr_format: int
    seed: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"v{self.zarr_format} {self.dtype} / {self.codecs.name} / {self.layout.name} (seed {self.seed})"

    @property
    def options(self) -> dict[str, Any]:
        """Keywords of ``create_array``, but for the dtype."""
        found: dict[str, Any] = {"shape": self.layout.shape, "zarr_format": self.zarr_format}
        dtype = as_dtype(self.dtype)
        for name, value in [*self.layout.options.items(), *self.codecs.options.items()]:
            made = value(dtype) if callable(value) else value
            found[name] = [*found[name], *made] if name in found else made
        if self.zarr_format == 2 and self.dtype in VARIABLE and "filters" in found:
            vlen = numcodecs.VLenUTF8() if self.dtype == "string" else numcodecs.VLenBytes()
            found["filters"] = [vlen, *found["filters"]]
        if self.zarr_format == 3 and dtype.byteorder == ">" and "serializer" not in found:
            found["serializer"] = v3("bytes", endian="big")  # zarr-python 3.1 takes little whatever the dtype
        if self.seed % 2:
            found["fill_value"] = fill_of(self.dtype)
        return found | dict(self.extra)

    @property
    def values(self) -> np.ndarray[Any, Any]:
        """What the array holds; its first chunks equal the fill value, so that they are not stored."""
        made = values_of(self.dtype, self.layout.shape, self.seed, smooth=bool(self.codecs.kinds))
        if self.seed % 2 and made.size:
            made[(slice(0, 4),) * made.ndim] = fill_of(self.dtype)
        return made


def _all(zarr_format: int, peer: str) -> tuple[tuple[Dtype, ...], tuple[Codecs, ...], tuple[Layout, ...]]:
    three = zarr_format == 3
    dtypes: tuple[Dtype, ...] = DTYPES_V3 if three else DTYPES_V2
    if peer == "tensorstore":
        dtypes = (*NUMBERS, *ML)
    return dtypes, codecs_of(zarr_format, peer), LAYOUTS_V3 if three else LAYOUTS_V2


def product(zarr_format: int, peer: str) -> list[Case]:
    """Every combination of data type, codecs and layout that makes sense, for a peer."""
    combined = itertools.product(*_all(zarr_format, peer))
    return [Case(d, c, y, zarr_format, n) for n, (d, c, y) in enumerate(combined) if c.fits(d, y)]


def sample(zarr_format: int, peer: str, every: int) -> list[Case]:
    """Some of the product: one in ``every`` of the data types that each codec fits, each in another layout."""
    dtypes, codecs, layouts = _all(zarr_format, peer)
    chosen = []
    for j, codec in enumerate(codecs):
        fitting = [d for d in dtypes if any(codec.fits(d, y) for y in layouts)]
        for i, dtype in enumerate(fitting):
            if (i + j) % min(every, len(fitting)) == 0:
                suited = [y for y in layouts if codec.fits(dtype, y)]
                seed = len(chosen)
                chosen.append(Case(dtype, codec, suited[(5 * i + 7 * j) % len(suited)], zarr_format, seed))
    return chosen
