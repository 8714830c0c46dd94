"""CPU functions of the codecs of the numcodecs registry."""

import math
import pickle
from importlib import import_module
from typing import Any, NoReturn

import numpy as np

from gzarr.codecs.numcodecs import NumcodecsCodec, TrustedPickleCodec
from gzarr.codecs.registry import to_numcodecs
from gzarr.codecs.spec import ArrayRepr, BytesRepr, Codec, Step
from gzarr.cpu.codecs import compressors
from gzarr.cpu.codecs.objects import as_objects, json_decoder, msgpack_decoder, vlen_decoder
from gzarr.cpu.codecs.per_chunk import Bytes, Function, as_bytes, per_chunk, reinterpret, wrong_size
from gzarr.errors import CodecError

Array = np.ndarray[Any, np.dtype[Any]]

#: Codecs that compute on values, in the byte order of the machine only.
_NATIVE = frozenset(("bitround", "zfpy", "pcodec"))


def numcodecs_codec(step: Step) -> Codec:
    """Any codec of the numcodecs registry, whose object is made here, once. Raises as `to_numcodecs` does."""
    spec = step.spec
    if not isinstance(spec, NumcodecsCodec):
        raise TypeError(f"codec {spec.name!r} is not a numcodecs codec")
    if spec.id == "pickle" and not isinstance(spec, TrustedPickleCodec):
        return per_chunk(spec.name, _refuse_pickle, _refuse_pickle)
    codec = to_numcodecs(spec)
    decode, encode = _functions(spec, codec, step)
    return per_chunk(spec.name, decode, encode)


def _refuse_pickle(_: Any) -> NoReturn:
    raise CodecError(
        "pickle is neither decoded nor encoded, because loading a pickle can run any code; if you trust the data, open "
        "the array with allow_pickle=True, and store it with another object codec, such as VLenUTF8, JSON or MsgPack"
    )


def _functions(spec: NumcodecsCodec, codec: Any, step: Step) -> tuple[Function, Function]:
    decoded, encoded = step.decoded, step.encoded
    if spec.kind == "bytes_bytes":
        decode = _bytes_decoder(spec, codec, decoded.nbytes, compressors.most_decoded(step))
        return decode, _bytes_encoder(spec, codec, decoded)
    if isinstance(decoded, BytesRepr):
        return _generic_decoder(spec.name, codec, decoded.nbytes), lambda data: as_bytes(codec.encode(_uint8(data)))
    if isinstance(encoded, ArrayRepr):
        return _filter(spec, codec, decoded, encoded)
    if spec.kind == "any":
        return (
            lambda data: reinterpret(spec.name, codec.decode(data), decoded.dtype, decoded.shape),
            lambda array: as_bytes(codec.encode(_contiguous(array, decoded.dtype))),
        )
    return _serializer(spec, codec, decoded)


def _uint8(data: Bytes) -> Array:
    return np.frombuffer(data, np.uint8) if len(data) else np.empty(0, np.uint8)


def _contiguous(array: Array, dtype: np.dtype[Any]) -> Array:
    return np.asarray(array, dtype, order="C")


# -- bytes to bytes ----------------------------------------------------------------------------------------------


def _bytes_decoder(spec: NumcodecsCodec, codec: Any, expected: int | None, most: int | None) -> Function:
    if spec.id == "lzma":
        return compressors.lzma_decoder(expected, spec.configuration(), most)
    if spec.id in compressors.DECODERS:
        return compressors.DECODERS[spec.id](expected, most)
    if spec.id == "fletcher32" and expected == 0:
        return _empty_fletcher32
    return _generic_decoder(spec.name, codec, expected)


def _empty_fletcher32(data: Bytes) -> Bytes:
    if bytes(data) != bytes(4):
        raise CodecError(f"fletcher32: expected the checksum of no data, four zero bytes, got {len(data)} bytes")
    return b""


def _generic_decoder(name: str, codec: Any, expected: int | None) -> Function:
    def decode(data: Bytes) -> Bytes:
        out = as_bytes(codec.decode(_uint8(data)))
        if expected is not None and len(out) != expected:
            raise wrong_size(name, expected, len(out))
        return out

    return decode


def _bytes_encoder(spec: NumcodecsCodec, codec: Any, decoded: Any) -> Function:
    if spec.id == "blosc":
        return compressors.blosc_encoder(codec, decoded.itemsize)
    if spec.id in ("gzip", "zlib") and codec.level in compressors.DEFLATE_LEVELS:
        return compressors.deflate_encoder(compressors.GZIP if spec.id == "gzip" else compressors.ZLIB, codec.level)
    if spec.id == "fletcher32":
        # numcodecs cannot sum an empty buffer; both its sums are zero
        return lambda data: as_bytes(codec.encode(_uint8(data))) if len(data) else bytes(4)
    return lambda data: as_bytes(codec.encode(_uint8(data)))


# -- array to array ----------------------------------------------------------------------------------------------


def _filter(spec: NumcodecsCodec, codec: Any, decoded: ArrayRepr, encoded: ArrayRepr) -> tuple[Function, Function]:
    name = spec.name
    inner, outer = decoded.dtype, encoded.dtype
    if spec.id in _NATIVE:
        inner, outer = inner.newbyteorder("="), outer.newbyteorder("=")
    if not decoded.nelements and spec.id != "packbits":
        # numcodecs' filters read the first element
        return lambda _: np.empty(decoded.shape, inner), lambda _: np.empty(encoded.shape, outer)

    # flat, because NumPy turns arrays without dimensions into scalars in the byte order of the machine
    def decode(array: Array) -> Array:
        return reinterpret(name, codec.decode(_contiguous(array, outer).reshape(-1)), inner, decoded.shape)

    def encode(array: Array) -> Array:
        return reinterpret(name, codec.encode(_contiguous(array, inner).reshape(-1)), outer, encoded.shape)

    return decode, encode


# -- array to bytes ----------------------------------------------------------------------------------------------


def _serializer(spec: NumcodecsCodec, codec: Any, chunk: ArrayRepr) -> tuple[Function, Function]:
    match spec.id:
        case "zfpy":
            return _zfpy_decoder(chunk), lambda array: codec.encode(_contiguous(array, chunk.dtype.newbyteorder("=")))
        case "pcodec":
            native = chunk.dtype.newbyteorder("=")
            return _pcodec_decoder(chunk), lambda array: codec.encode(_contiguous(array, native).reshape(-1))
        case "pickle":
            return _unpickler(chunk), lambda array: codec.encode(_contiguous(array, chunk.dtype))
        case "json2":
            return json_decoder(spec.configuration(), chunk), codec.encode
        case "msgpack2":
            # its encoder cannot take an array without dimensions
            return msgpack_decoder(spec.configuration(), chunk), lambda array: codec.encode(np.atleast_1d(array))
    return vlen_decoder(spec.name, codec, chunk), lambda array: codec.encode(as_objects(array))


def _unpickler(chunk: ArrayRepr) -> Function:
    """Loads pickles without numcodecs, whose permission is for the whole process; gzarr asks for each array."""

    def decode(data: Bytes) -> Array:
        value = pickle.loads(data)
        if not isinstance(value, np.ndarray) or value.dtype != chunk.dtype or value.size != chunk.nelements:
            got = f"{value.dtype} of shape {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
            raise CodecError(f"pickle: expected an array of shape {chunk.shape} of {chunk.dtype}, got {got}")
        return reinterpret("pickle", value, chunk.dtype, chunk.shape)

    return decode


def _zfpy_decoder(chunk: ArrayRepr) -> Function:
    zfpy: Any = import_module("zfpy")
    native = chunk.dtype.newbyteorder("=")
    # zfp reads its stream without a check for its end, so it gets the most bytes that a stream of this shape can have:
    # 4**d values a block, each with all its bits and one for group tests, and a header of up to 19 bits. Longer blocks,
    # as the header of the stream may claim, must be there.
    blocks = math.prod((length + 3) // 4 for length in chunk.shape)
    values = 4 ** len(chunk.shape)
    longest = 64 + blocks * ((values * (native.itemsize * 8 + 1) + 19 + 7) // 8)

    def decode(data: Bytes) -> Array:
        padded = bytes(data).ljust(max(longest, len(data) + 64), b"\0")
        header = zfpy.header(padded)
        # zfp counts dimensions from the fastest; missing ones are 0
        shape = tuple(int(header[axis]) for axis in ("nw", "nz", "ny", "nx") if header[axis])
        if shape != chunk.shape or np.dtype(header["type"]) != native:
            raise CodecError(
                f"zfpy: expected shape {chunk.shape} of {native}, got {shape} of {np.dtype(header['type'])}"
            )
        least = header["config"]["expert"]["minbits"]
        if least * blocks > 8 * len(data):
            raise CodecError(f"zfpy: expected {blocks} blocks of {least} bits, got {len(data)} bytes: damaged data")
        return reinterpret("zfpy", zfpy.decompress_numpy(padded), native, chunk.shape)

    return decode


def _pcodec_decoder(chunk: ArrayRepr) -> Function:
    standalone: Any = import_module("pcodec.standalone")
    native, n = chunk.dtype.newbyteorder("="), chunk.nelements

    def decode(data: Bytes) -> Array:
        out = np.empty(n, native)
        try:
            progress = standalone.simple_decompress_into(bytes(data), out)
        except BaseException as error:
            # pyo3 turns a Rust panic into a BaseException
            if type(error).__name__ == "PanicException":
                raise CodecError(f"pcodec: damaged data: {error}") from error
            raise
        if progress.n_processed != n or not progress.finished:
            more = "" if progress.finished else " or more"
            raise CodecError(f"pcodec: expected {n} decoded elements, got {progress.n_processed}{more}")
        return out.reshape(chunk.shape)

    return decode
