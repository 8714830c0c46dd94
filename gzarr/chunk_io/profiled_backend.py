"""A backend around the backend, while somebody looks: its calls are stages, and what goes through them is counted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from gzarr.backend import Array, Backend, Chain, Fields
from gzarr.codecs.spec import Codec
from gzarr.cpu.window import Window
from gzarr.indexing.plan import Part
from gzarr.layout.chunk_layout import Located
from gzarr.profiling.recorder import Recorder, stage, staged, sum_nbytes
from gzarr.storage.base import Buffer, Store


def watched(backend: Backend, recorder: Recorder) -> Backend:
    """The backend, with a recorder looking at it."""
    return cast(Backend, StagedBackend(backend, recorder))


class StagedBackend:
    """A backend whose calls are stages; all else is that of the backend inside.

    Attributes:
        inner: the backend inside.
    """

    def __init__(self, inner: Backend, recorder: Recorder) -> None:
        self.inner = inner
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def load(
        self, store: Store, wanted: Sequence[Located], chain: Chain | None = None, parts: Sequence[Part] = ()
    ) -> list[Any]:
        """`Backend.load`, which is "read"."""
        with stage("read") as noted:
            found = self.inner.load(store, wanted, chain, parts)
            nbytes = _encoded(found)
            noted.count(sum(item is not None for item in found), nbytes, nbytes)
            return found

    def place(
        self, chain: Chain, buffers: Sequence[Buffer | None], parts: Sequence[Part], out: Array, fields: Fields
    ) -> None:
        """`Backend.place`, which is "place", with the "decode" of codecs within it."""
        with stage("place") as noted:
            self.inner.place(_timed(chain), buffers, parts, out, fields)
            decoded = self._count_decoded(chain, buffers)
            noted.count(len(parts), decoded, sum(_n_elements(part, out) for part in parts) * out.dtype.itemsize)

    def decode(self, chain: Chain, buffers: Sequence[Buffer | None]) -> list[Array]:
        """`Backend.decode`, which is "decode"."""
        with stage("decode"):
            found = self.inner.decode(chain, buffers)
            self._count_decoded(chain, buffers)
            return found

    def renew(
        self,
        chain: Chain,
        before: Sequence[Buffer | None],
        value: Array,
        parts: Sequence[Part],
        fields: Fields,
        *,
        keep_empty: bool,
    ) -> list[Buffer | None]:
        """`Backend.renew`, which is "encode"."""
        with stage("encode") as noted:
            renewed = self.inner.renew(chain, before, value, parts, fields, keep_empty=keep_empty)
            noted.count(len(renewed), len(renewed) * (chain.chunk.nbytes or 0), sum_nbytes(renewed))
            return renewed

    def _count_decoded(self, chain: Chain, buffers: Sequence[Any]) -> int:
        """Count chunks that were decoded. Returns: their decoded bytes."""
        n = sum(buffer is not None for buffer in buffers)
        nbytes = n * (chain.chunk.nbytes or 0)
        self._recorder.count("decode", n, _encoded(buffers), nbytes)
        return nbytes


def _timed(chain: Chain) -> Chain:
    """A chain whose codecs on the host are stages, chunk by chunk."""
    direct = chain.direct
    if direct is not None:
        function = None if direct.function is None else staged("decode", direct.function)
        direct = direct._replace(function=function, outer=tuple(map(_timed_codec, direct.outer)))
    return chain._replace(codecs=tuple(map(_timed_codec, chain.codecs)), direct=direct)


def _timed_codec(codec: Codec) -> Codec:
    decode: Callable[..., Any] = staged("decode", codec.decode)
    return codec._replace(decode=decode)


def _encoded(buffers: Sequence[Any]) -> int:
    """Bytes that were read; of windows those that are to be decoded."""
    return sum_nbytes([buffer.data if isinstance(buffer, Window) else buffer for buffer in buffers])


def _n_elements(part: Part, out: Array) -> int:
    """How many elements of a result a part is."""
    index = part.out if isinstance(part.out, tuple) else (part.out,)
    shape = getattr(out, "shape", ())
    sizes = [_n_along(item, shape[axis] if axis < len(shape) else 1) for axis, item in enumerate(index)]
    return math.prod(sizes)


def _n_along(item: Any, n: int) -> int:
    if isinstance(item, slice):
        return len(range(*item.indices(n)))
    return 1 if isinstance(item, (int, np.integer)) or item is None or item is Ellipsis else int(np.size(item))
