"""A chain of codecs, made complete and prepared for one kind of chunk.

Chains run in encoding order: codecs from array to array, one from array to bytes, codecs from bytes to bytes. Zarr v2
says nothing of the one in the middle, and lists of filters come in any order, so numcodecs codecs may stand anywhere
and a missing serializer is inserted where the chain first needs bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.spec import ArrayRepr, CodecSpec, Repr, Step
from gzarr.codecs.vlen import VLenUTF8Codec
from gzarr.errors import MetadataError


def prepare(specs: Iterable[CodecSpec], chunk: ArrayRepr) -> tuple[Step, ...]:
    """Resolve every codec for the chunks it will see.

    Args:
        specs: codecs in encoding order.
        chunk: a chunk as the first codec gets it.

    Returns: steps in encoding order; the first decodes to ``chunk``, the last encodes to bytes.
    Raises: MetadataError if the order is wrong or a codec cannot encode such chunks.
    """
    steps = _walk(specs, chunk, None)
    if not steps or isinstance(steps[-1].encoded, ArrayRepr):
        names = [step.spec.name for step in steps]
        raise MetadataError(f"codecs {names} leave an array; add a codec that makes bytes of it, such as 'bytes'")
    return steps


def complete(
    specs: Sequence[CodecSpec], chunk: ArrayRepr, *, default_serializer: CodecSpec | None = None
) -> tuple[CodecSpec, ...]:
    """Resolve every codec and insert the serializer if it is missing.

    Args:
        specs: codecs in encoding order.
        chunk: a chunk as the first codec gets it.
        default_serializer: codec to insert before the first one that takes bytes, or at the end, if the chunk is
            still an array there. None: ``VLenUTF8Codec()`` for NumPy's variable-width strings, else
            ``BytesCodec("little")``. For Zarr v2 pass ``BytesCodec(None)``.

    Returns: codecs with nothing left open, ready to be written as metadata.
    Raises: MetadataError if the order is wrong or a codec cannot encode such chunks.
    """
    if default_serializer is None:
        default_serializer = VLenUTF8Codec() if chunk.dtype.kind == "T" else BytesCodec()
    return tuple(step.spec for step in _walk(specs, chunk, default_serializer))


def _walk(specs: Iterable[CodecSpec], chunk: ArrayRepr, serializer: CodecSpec | None) -> tuple[Step, ...]:
    steps: list[Step] = []
    current: Repr = chunk

    def add(spec: CodecSpec) -> None:
        nonlocal current
        resolved, encoded = spec.resolve(current)
        steps.append(Step(resolved, current, encoded))
        current = encoded

    for spec in specs:
        if serializer is not None and spec.kind == "bytes_bytes" and isinstance(current, ArrayRepr):
            add(serializer)
        add(spec)
    if serializer is not None and isinstance(current, ArrayRepr):
        add(serializer)
    return tuple(steps)
