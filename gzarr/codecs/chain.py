"""Completes a chain of codecs and prepares it for one kind of chunk.

Chains run in encoding order: codecs from array to array, one from array to bytes, codecs from bytes to bytes. Zarr v2
does not name the one in the middle, and its filters come in any order. So numcodecs codecs may stand anywhere, and a
missing serializer is inserted where the chain first needs bytes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gzarr.codecs.bytes import BytesCodec
from gzarr.codecs.numcodecs import BYTES_BYTES, PREFIX
from gzarr.codecs.spec import ArrayRepr, BytesRepr, CodecSpec, Repr, Step
from gzarr.codecs.vlen import VLenUTF8Codec
from gzarr.errors import MetadataError

#: Codecs whose output is bounded by their input: compressors and checksums. Texts of numbers have no such bound.
_BOUNDED = frozenset({"blosc", "gzip", "zstd", "crc32c", *(PREFIX + name for name in (*BYTES_BYTES, "zfpy", "pcodec"))})
#: No encoder makes bytes this much longer: Base64 makes four of three, and the headers of streams and blocks are short.
_GROWTH, _GROWTH_NBYTES = 4, 1 << 20


def prepare(specs: Iterable[CodecSpec], chunk: Repr) -> tuple[Step, ...]:
    """Resolve every codec for the chunks that it will see: ``chunk`` for the first one.

    Codecs and steps are in encoding order; the last step encodes to bytes. Raises MetadataError if the order is wrong
    or a codec cannot encode such chunks.
    """
    steps = _walk(specs, chunk, None)
    if not steps or isinstance(steps[-1].encoded, ArrayRepr):
        names = [step.spec.name for step in steps]
        raise MetadataError(f"codecs {names} make an array; add a codec that makes bytes of it, such as 'bytes'")
    return steps


def complete(
    specs: Sequence[CodecSpec], chunk: ArrayRepr, *, default_serializer: CodecSpec | None = None
) -> tuple[CodecSpec, ...]:
    """Resolve every codec, and insert the serializer if it is missing.

    ``default_serializer`` is inserted before the first codec that takes bytes, or at the end, if the chunk is still an
    array there. By default it is ``VLenUTF8Codec()`` for NumPy's variable-width strings, else ``BytesCodec("little")``;
    Zarr v2 needs ``BytesCodec(None)``. Raises MetadataError as `prepare` does.
    """
    if default_serializer is None:
        default_serializer = VLenUTF8Codec() if chunk.dtype.kind == "T" else BytesCodec()
    return tuple(step.spec for step in _walk(specs, chunk, default_serializer))


def _walk(specs: Iterable[CodecSpec], chunk: Repr, serializer: CodecSpec | None) -> tuple[Step, ...]:
    steps: list[Step] = []
    current: Repr = chunk
    known = chunk.nbytes

    def add(spec: CodecSpec) -> None:
        nonlocal current, known
        resolved, encoded = spec.resolve(current)
        if encoded.nbytes is not None or resolved.name not in _BOUNDED:
            known = encoded.nbytes
        elif known is not None and isinstance(encoded, BytesRepr):
            encoded = replace(encoded, max_nbytes=_GROWTH * known + _GROWTH_NBYTES)
        steps.append(Step(resolved, current, encoded))
        current = encoded

    for spec in specs:
        if serializer is not None and spec.kind == "bytes_bytes" and isinstance(current, ArrayRepr):
            add(serializer)
        add(spec)
    if serializer is not None and isinstance(current, ArrayRepr):
        add(serializer)
    return tuple(steps)
