"""Joined arrays whose parts are stored differently: chunks are made when they are read, out of decoded parts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from numcodecs.vlen import VLenUTF8

from gzarr.api.many import read_many
from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.vlen import VLenUTF8Codec
from gzarr.dtypes import DataType
from gzarr.errors import MetadataError
from gzarr.hierarchy.array import Array
from gzarr.indexing.grid import Grid, RegularAxis, chunk_shape
from gzarr.indexing.keys import Coords, KeyEncoding
from gzarr.metadata.documents import documents
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Buffer
from gzarr.virtual.agreement import Agreed
from gzarr.virtual.store import Chunks, Reader

#: Bytes of a chunk: so many that chunks of parts are seldom decoded twice.
_NBYTES = 1 << 18


def decoded(arrays: Sequence[Array], axis: int, agreed: Agreed, *, is_new: bool) -> tuple[bytes, Callable[[], Chunks]]:
    """The document of a joined array whose chunks are decoded and converted, and what reads them.

    Arguments: as of `gzarr.virtual.joins.join`. Raises: MetadataError for elements that are no numbers and no texts.
    """
    data_type = DataType(agreed.data_type.dtype.newbyteorder("="), agreed.data_type.variable)
    if data_type.variable not in ("", "string"):
        raise MetadataError(
            f"{arrays[0].store_path} and others have elements of type {data_type.name}, which are joined only where all"
            " arrays are stored alike; copy them first"
        )
    starts = [0, *accumulate(1 if is_new else one.shape[axis] for one in arrays)]
    shape, chunks = list(arrays[0].shape), list(arrays[0].chunks)
    chunks[axis : axis if is_new else axis + 1] = [1 if is_new else max(one.chunks[axis] for one in arrays)]
    shape[axis : axis if is_new else axis + 1] = [starts[-1]]
    chunks[axis] *= max(_NBYTES // max(prod(chunks) * data_type.dtype.itemsize, 1), 1)
    grid = tuple(RegularAxis(n, max(min(n, c), 1)) for n, c in zip(shape, chunks, strict=True))
    codec = VLenUTF8Codec() if data_type.variable else BytesCodec("little")
    how = agreed.fill_value, (codec,), agreed.attributes, agreed.names
    ((_, document),) = documents(ArrayMeta(tuple(shape), data_type, grid, KeyEncoding(), *how), "")
    parts = _Parts(tuple(one.to("cpu") for one in arrays), tuple(starts), axis, is_new, grid, agreed)
    return document, lambda: Reader(tuple(one.nchunks for one in grid), parts.one, parts.several)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Makes chunks out of the parts of a joined array.

    Attributes
    ----------
    arrays, starts, axis, is_new
        The parts, where each begins along the axis, which axis it is, and whether it is new.
    grid : Grid
        Of the joined array.
    agreed : Agreed
        What the parts have in common.
    """

    arrays: tuple[Array, ...]
    starts: tuple[int, ...]
    axis: int
    is_new: bool
    grid: Grid
    agreed: Agreed

    def one(self, coords: Coords) -> Buffer | None:
        """A chunk, encoded."""
        return self.several((coords,))[0]

    def several(self, chunks: Sequence[Coords]) -> list[Buffer | None]:
        """Some chunks, encoded; all that they are made of is read at once."""
        wanted = [list(self._wanted(coords)) for coords in chunks]
        found = iter(read_many([(self.arrays[part], box) for boxes in wanted for part, box in boxes]))
        return [
            self._encoded(coords, [self._converted(part, next(found)) for part, _ in boxes])
            for coords, boxes in zip(chunks, wanted, strict=True)
        ]

    def _wanted(self, coords: Coords) -> Iterator[tuple[int, tuple[slice, ...]]]:
        """The parts that a chunk is made of, and what of each."""
        bounds = [axis.bounds(at) for axis, at in zip(self.grid, coords, strict=True)]
        box = [slice(start, min(stop, axis.extent)) for axis, (start, stop) in zip(self.grid, bounds, strict=True)]
        begin, end = box[self.axis].start, box[self.axis].stop
        for part in range(bisect_right(self.starts, begin) - 1, bisect_right(self.starts, end - 1)):
            start = self.starts[part]
            here = slice(max(begin - start, 0), min(end, self.starts[part + 1]) - start)
            if here.start < here.stop:
                yield part, (*box[: self.axis], *(() if self.is_new else (here,)), *box[self.axis + 1 :])

    def _converted(self, part: int, values: Any) -> Any:
        convert = self.agreed.conversions[part]
        return np.asarray(values) if convert is None else convert(np.asarray(values))

    def _encoded(self, coords: Coords, values: Sequence[Any]) -> Buffer:
        """A chunk as its bytes, or those of its texts, filled up to its whole shape."""
        joined = np.stack(values, self.axis) if self.is_new else np.concatenate(values, self.axis)
        shape, data_type = chunk_shape(self.grid, coords), self.agreed.data_type
        is_text = bool(data_type.variable)
        whole = np.full(shape, "", object) if is_text else np.zeros(shape, data_type.dtype.newbyteorder("<"))
        whole[tuple(map(slice, joined.shape))] = joined
        encoded: Buffer = VLenUTF8().encode(whole.ravel()) if is_text else whole.reshape(-1).view(np.uint8)
        return encoded
