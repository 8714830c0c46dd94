"""A codec chain as zarr shows it to users: filters, serializer, compressors."""

from __future__ import annotations

from gzarr.codecs.spec import CodecSpec
from gzarr.metadata.model import ArrayMeta
from gzarr.metadata.v2 import split_chain


def split_codecs(meta: ArrayMeta) -> tuple[tuple[CodecSpec, ...], CodecSpec | None, tuple[CodecSpec, ...]]:
    """(filters, serializer, compressors) of the chunks: of those within a shard, if the array is sharded."""
    if meta.zarr_format == 2:
        filters, compressor = split_chain(meta.codecs)
        return filters, None, () if compressor is None else (compressor,)
    specs = meta.codecs if meta.sharding is None else meta.sharding.codecs
    at = next((i for i, s in enumerate(specs) if s.kind in ("array_bytes", "any")), len(specs) - 1)
    return specs[:at], specs[at], specs[at + 1 :]
