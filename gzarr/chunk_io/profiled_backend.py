"""A backend around the backend while profiling: its calls are stages, and what goes through them is counted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from gzarr.backend import Array, Backend, Chain, Fields
from gzarr.indexing.copies import Slots
from gzarr.indexing.plan import Part
from gzarr.profiling.recorder import Recorder, profiled, stage, sum_nbytes
from gzarr.storage.base import Buffer


class ProfiledBackend:
    """A backend whose calls are stages; all else is that of the backend inside.

    Attributes
    ----------
    inner : Backend
        The backend inside.
    """

    def __init__(self, inner: Backend, recorder: Recorder) -> None:
        self.inner = inner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def load(self, *args: Any) -> list[Any]:
        """`Backend.load`, which is "read"."""
        with stage("read") as noted:
            loaded = self.inner.load(*args)
            nbytes = sum_nbytes(loaded)
            noted.count(sum(item is not None for item in loaded), nbytes, nbytes)
            return loaded

    def place(
        self, chain: Chain, buffers: Sequence[Buffer | None], parts: Sequence[Part], out: Array, fields: Fields
    ) -> None:
        """`Backend.place`, which is "place", with the "decode" of codecs within it."""
        with stage("place") as noted:
            self.inner.place(self.inner.timed(chain, partial(profiled, "decode")), buffers, parts, out, fields)
            decoded = self._count_decoded(chain, buffers)
            noted.count(len(parts), decoded, _placed(parts, out) * out.dtype.itemsize)

    def decode(self, chain: Chain, buffers: Sequence[Buffer | None]) -> list[Array]:
        """`Backend.decode`, which is "decode"."""
        with stage("decode"):
            chunks = self.inner.decode(chain, buffers)
            self._count_decoded(chain, buffers)
            return chunks

    def merge_and_encode(self, chain: Chain, *args: Any, **options: Any) -> list[Buffer | None]:
        """`Backend.merge_and_encode`, which is "encode"."""
        with stage("encode") as noted:
            encoded = self.inner.merge_and_encode(chain, *args, **options)
            noted.count(len(encoded), len(encoded) * (chain.chunk.nbytes or 0), sum_nbytes(encoded))
            return encoded

    def _count_decoded(self, chain: Chain, buffers: Sequence[Any]) -> int:
        """Count chunks that were decoded. Returns: their decoded bytes."""
        n = sum(buffer is not None for buffer in buffers)
        nbytes = n * (chain.chunk.nbytes or 0)
        self._recorder.count("decode", n, sum_nbytes(buffers), nbytes)
        return nbytes


def _placed(parts: Sequence[Part], out: Array) -> int:
    """Number of elements that are placed."""
    indices, shape = [part.out for part in parts], getattr(out, "shape", ())
    if isinstance(out, Slots):
        indices, shape = [copy.out[1:] for copies in indices for copy in copies], out.blocks[0].shape
    elements = np.broadcast_to(np.False_, shape)  # takes no memory
    return sum(elements[index].size for index in indices)
