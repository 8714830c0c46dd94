"""Sharding as a computing codec: encodes and decodes whole shards, where a shard cannot be addressed.

This happens only if another codec than a transpose comes before ``sharding_indexed`` (a delta over a whole shard, say).
Otherwise `gzarr.layout.sharded.Sharded` reads just the chunks that are wanted.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gzarr.backend import Chain
from gzarr.codecs.chain import prepare
from gzarr.codecs.sharding import ShardingCodec, prepare_index
from gzarr.codecs.spec import ArrayRepr, Codec, Step, fill_of
from gzarr.cpu.codecs import factory_for
from gzarr.cpu.codecs.per_chunk import per_chunk
from gzarr.errors import MetadataError
from gzarr.layout.shard import assemble, join, split_entries, write_order


def codecs_for(steps: Sequence[Step]) -> tuple[Codec, ...]:
    """The CPU functions of a prepared chain. Raises: UnknownCodecError, MissingExtraError."""
    return tuple(
        sharding_codec(step) if isinstance(step.spec, ShardingCodec) else factory_for(step.spec)(step) for step in steps
    )


def _coder(steps: Sequence[Step], chunk: ArrayRepr) -> Chain:
    return Chain(chunk, codecs_for(steps), ())


def sharding_codec(step: Step) -> Codec:
    """The factory of ``sharding_indexed``. Raises: MetadataError if the index has no fixed size."""
    spec, shard = step.spec, step.decoded
    if not isinstance(spec, ShardingCodec) or not isinstance(shard, ArrayRepr):
        raise MetadataError(f"codec 'sharding_indexed' encodes arrays, got {shard}")
    counts = tuple(n // c for n, c in zip(shard.shape, spec.chunk_shape, strict=True))
    index_repr = spec.index_repr(shard.shape)
    index_steps = prepare_index(spec, index_repr)
    index_nbytes, index_coder = index_steps[-1].encoded.nbytes or 0, _coder(index_steps, index_repr)
    inner_chunk = ArrayRepr(shard.dtype, spec.chunk_shape, shard.fill_value)
    inner = _coder(prepare(spec.codecs, inner_chunk), inner_chunk)
    order = write_order(spec.subchunk_write_order, counts)
    fill = fill_of(shard)
    # The ellipsis makes the result an array: NumPy would guess what an object from an array without axes is.
    boxes: list[tuple[Any, ...]] = [
        (..., *(slice(i * n, (i + 1) * n) for i, n in zip(coords, spec.chunk_shape, strict=True)))
        for coords in np.ndindex(*counts)
    ]

    def decode(encoded: Any) -> np.ndarray[Any, Any]:
        data = memoryview(encoded).cast("B")
        entries = split_entries(data, index_nbytes, spec.index_location, index_coder)
        out = np.empty(shard.shape, shard.dtype)
        for entry, box in zip(entries, boxes, strict=True):
            out[box] = fill if entry is None else inner.decode((entry,))[0]
        return out

    def encode(chunk: np.ndarray[Any, Any]) -> bytes:
        entries = [inner.encode((np.ascontiguousarray(chunk[box]).reshape(spec.chunk_shape),))[0] for box in boxes]
        return bytes(join(assemble(entries, counts, index_coder, spec.index_location, order)) or b"")

    return per_chunk(spec.name, decode, encode)
