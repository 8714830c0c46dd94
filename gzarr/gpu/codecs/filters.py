"""Filters, which are codecs from array to array: the table from their names to functions of both directions.

On the device, a filter is a function from a uint8 array (n chunks, bytes before) to a uint8 array (n chunks, bytes
after). Between two filters, numbers are in native byte order. A filter runs on the host if the device cannot give the
host's results bit for bit, or cannot raise its errors: machines differ in how they cast floats that an integer type
cannot hold; scale_offset checks each integer, and cast_value each number unless the cast is exact. Arithmetic on floats
is in `gzarr.gpu.codecs.floats`; everything else is done with the array module (CuPy or NumPy).
Source: numcodecs, the filters of the same names; `gzarr.codecs.scale_offset`, `gzarr.codecs.cast_value`.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Array
from gzarr.codecs.cast_value import CastValueCodec
from gzarr.codecs.scale_offset import ScaleOffsetCodec
from gzarr.codecs.spec import ArrayRepr, Step
from gzarr.codecs.transpose import TransposeCodec
from gzarr.cpu.compiled.filters import quantum
from gzarr.errors import CodecError
from gzarr.gpu.codecs import floats
from gzarr.gpu.codecs.batch import BatchContext, Chunks, DeviceCodec, has_dtype
from gzarr.gpu.codecs.refusing import UNFIT, decoded_nbytes
from gzarr.gpu.codecs.transfers import as_chunks, as_rows, rows_as_chunks, unshuffled

#: Works on all chunks of a batch: uint8 (n, bytes before) -> uint8 (n, bytes after), both on the device.
Filter: TypeAlias = Callable[[BatchContext, Array], Array]
#: Makes the filter of a step in a direction, "decode" or "encode", or says why the host has to run it.
Maker: TypeAlias = Callable[[Step, str], Filter | str]

#: A pair of native dtypes: decoded, encoded.
Dtypes: TypeAlias = tuple[np.dtype[Any], np.dtype[Any]]

#: Bits of the mantissa that is stored, by the size of a float (IEEE 754, binary16, 32, 64).
_MANTISSA_BITS = {2: 10, 4: 23, 8: 52}
DATA_TYPE = "the device cannot run it for this data type"
CHECKED = "the host checks each number"


def filter_codec(make: Maker) -> DeviceCodec:
    """The codec of a filter in both directions."""

    def in_direction(step: Step, direction: str) -> Any:
        function, decoded, encoded = make(step, direction), decoded_nbytes(step), step.encoded.nbytes
        if isinstance(function, str) or decoded is None or encoded is None:
            return function if isinstance(function, str) else UNFIT
        name, nbytes = step.spec.name, decoded if direction == "decode" else encoded

        def run(context: BatchContext, batch: Any) -> Chunks:
            if direction == "decode":
                batch = unshuffled(context, as_chunks(context, batch, encoded, name))
            made = rows_as_chunks(context, function(context, as_rows(context, batch)))
            if made.nbytes != nbytes:
                raise CodecError(f"{name}: expected {nbytes} {direction}d bytes, got {made.nbytes}", codec=name)
            return made

        return run

    return DeviceCodec(
        lambda step, device: in_direction(step, "decode"), lambda step, device: in_direction(step, "encode")
    )


def filter_dtypes(step: Step, first: str = "dtype", second: str = "astype") -> Dtypes | None:
    """Decoded and encoded dtype of a filter of numcodecs, in native byte order, from two fields of its configuration.

    Returns: None if the device lacks one of them, or if the chunks hold other numbers.
    """
    config = step.spec.configuration()
    decoded = np.dtype(config[first])
    encoded = np.dtype(config.get(second) or config[first])
    stated = (decoded, step.decoded), (encoded, step.encoded)
    same = all(isinstance(there, ArrayRepr) and there.dtype == dtype for dtype, there in stated)
    if not all(has_dtype(dtype) for dtype in (decoded, encoded)):
        return None
    if not same and not (decoded.isnative and encoded.isnative):
        return None
    return decoded.newbyteorder("="), encoded.newbyteorder("=")


def _of_numbers(
    make: Callable[[Step, str, np.dtype[Any], np.dtype[Any]], Filter | str],
    first: str = "dtype",
    second: str = "astype",
) -> DeviceCodec:
    """The codec of a filter of numcodecs, made from a function of its step, a direction and `filter_dtypes`."""

    def maker(step: Step, direction: str) -> Filter | str:
        dtypes = filter_dtypes(step, first, second)
        return DATA_TYPE if dtypes is None else make(step, direction, *dtypes)

    return filter_codec(maker)


def casting(source: np.dtype[Any], target: np.dtype[Any]) -> Filter | str:
    """A cast, or why the device would not give the host's bits."""
    return floats.why_not_cast(source, target) or (lambda context, rows: floats.cast(context, rows, source, target))


def calculated(dtypes: Dtypes, target: np.dtype[Any], *steps: tuple[str, Any]) -> Filter | str:
    """Arithmetic, or why the device would not give the host's bits. dtypes: of the numbers, and of the arithmetic."""
    for source, made in (dtypes, (dtypes[1], target)):
        if source.kind == "c":
            return "complex numbers are calculated with on the host"
        if "f2" in (source.str[1:], made.str[1:]):
            return floats.HALF_FLOATS
        if why := floats.why_not_cast(source, made):
            return why
    numbers = floats.steps_of(dtypes[1], *steps)
    if numbers is None:
        return "the device calculates with plain finite scales and offsets"
    return lambda context, rows: floats.calculate(context, rows, dtypes, target, numbers)


# -- bits: bitround drops bits of floats, packbits stores eight booleans in a byte -----------------------------------


def _unchanged(context: BatchContext, rows: Array) -> Array:
    return rows


def _bitround(step: Step, direction: str) -> Filter | str:
    """In integers, as numcodecs does it."""
    if direction == "decode":
        return _unchanged
    if not isinstance(step.decoded, ArrayRepr) or step.decoded.dtype.kind != "f":
        return DATA_TYPE
    itemsize, keep = step.decoded.dtype.itemsize, step.spec.configuration()["keepbits"]
    dropped = _MANTISSA_BITS.get(itemsize, -1) - keep
    if dropped < 0:
        return DATA_TYPE
    if dropped == 0:
        return _unchanged
    number = np.dtype(f"i{itemsize}").type
    half, shift, mask = number((1 << (dropped - 1)) - 1), number(dropped), number(-(1 << dropped))

    def encode(context: BatchContext, rows: Array) -> Array:
        bits = rows.view(number)
        return ((bits + ((bits >> shift & number(1)) + half)) & mask).view(np.uint8)

    return encode


def _packbits(step: Step, direction: str) -> Filter | str:
    n_bits = step.decoded.nbytes  # a bool is a byte
    if n_bits is None:
        return DATA_TYPE
    padding = -n_bits % 8

    def decode(context: BatchContext, rows: Array) -> Array:
        xp = context.device.xp
        # The first byte is the number of padding bits in the last one, which the number of elements tells too.
        bits = xp.unpackbits(xp.ascontiguousarray(rows[:, 1:]).reshape(-1))
        return xp.ascontiguousarray(bits.reshape(rows.shape[0], -1)[:, :n_bits])

    def encode(context: BatchContext, rows: Array) -> Array:
        xp, n = context.device.xp, rows.shape[0]
        whole = xp.zeros((n, n_bits + padding), np.uint8)
        whole[:, :n_bits] = rows
        packed = xp.empty((n, 1 + (n_bits + padding) // 8), np.uint8)
        packed[:, :1] = padding
        packed[:, 1:] = xp.packbits(whole.reshape(-1)).reshape(n, -1)
        return packed

    return decode if direction == "decode" else encode


# -- numbers stored as another data type: astype, and the exact casts of cast_value ----------------------------------


def _astype(step: Step, direction: str, decoded: np.dtype[Any], encoded: np.dtype[Any]) -> Filter | str:
    return casting(decoded, encoded) if direction == "encode" else casting(encoded, decoded)


def _cast_value(step: Step, direction: str) -> Filter | str:
    """The exact casts of cast_value, for which the rounding rule does not matter. direction: "encode" or "decode"."""
    spec = step.spec
    if not isinstance(spec, CastValueCodec):
        return DATA_TYPE
    if not isinstance(step.decoded, ArrayRepr) or not isinstance(step.encoded, ArrayRepr):
        return DATA_TYPE
    source, target = step.encoded.dtype.newbyteorder("="), step.decoded.dtype.newbyteorder("=")
    if direction == "encode":
        source, target = target, source
    # NumPy calls the cast of 64-bit integers to doubles safe, although it rounds.
    exact = target.kind != "f" or source.kind == "f" or source.itemsize < target.itemsize
    if not (exact and np.can_cast(source, target, "safe")):
        return CHECKED
    why = floats.why_not_cast(source, target)
    if why:
        return why
    mapping = spec.mapping(direction, source, target)

    def run(context: BatchContext, rows: Array) -> Array:
        result = floats.cast(context, rows, source, target)
        if mapping and result is rows:
            result = rows.copy()
        for key, value in mapping:
            floats.put(result, target, floats.where_equal(rows, source, key), value)
        return result

    return run


# -- differences of neighbouring numbers, and their running sums -----------------------------------------------------


def _delta(step: Step, direction: str, decoded: np.dtype[Any], encoded: np.dtype[Any]) -> Filter | str:
    decodes = direction == "decode"
    if decoded.kind not in "iu" or encoded.kind not in "iu":
        if decoded.str[1:] == "f2":
            return floats.HALF_FLOATS
        if decoded != encoded or decoded.kind not in "fc":
            return "the device takes differences of integers, and of floats stored in their own type"
        return lambda context, rows: floats.delta(context, rows, decoded, decodes=decodes)
    if decodes:
        return lambda context, rows: context.device.xp.cumsum(rows.view(encoded), axis=1, dtype=decoded).view(np.uint8)
    if not np.can_cast(decoded, encoded, "safe"):
        return "the host refuses a first number that is out of range"

    def encode(context: BatchContext, rows: Array) -> Array:
        values = rows.view(decoded)
        steps = context.device.xp.empty(values.shape, encoded)
        steps[:, :1] = values[:, :1].astype(encoded)
        with np.errstate(over="ignore"):  # as on the host; the emulated device has NumPy's warnings
            steps[:, 1:] = (values[:, 1:] - values[:, :-1]).astype(encoded)
        return steps.view(np.uint8)

    return encode


# -- floats that are scaled and rounded ------------------------------------------------------------------------------


def _fixed(step: Step, direction: str, decoded: np.dtype[Any], encoded: np.dtype[Any]) -> Filter | str:
    if "b" in (decoded.kind, encoded.kind):
        return DATA_TYPE
    offset, scale = (step.spec.configuration()[name] for name in ("offset", "scale"))
    if direction == "decode":
        work = encoded if encoded.kind in "fc" else np.dtype(np.float64)
        return calculated((encoded, work), decoded, ("divide", scale), ("add", offset))
    if decoded.kind in "iu":
        return "integers are scaled on the host"
    return calculated((decoded, decoded), encoded, ("subtract", offset), ("multiply", scale), ("rint", None))


def _quantize(step: Step, direction: str, decoded: np.dtype[Any], encoded: np.dtype[Any]) -> Filter | str:
    if direction == "decode":
        return casting(encoded, decoded)
    if decoded.kind != "f":
        return DATA_TYPE
    scale = quantum(step.spec.configuration()["digits"])
    return calculated((decoded, decoded), encoded, ("multiply", scale), ("rint", None), ("divide", scale))


def _scale_offset(step: Step, direction: str) -> Filter | str:
    spec = step.spec
    if not isinstance(spec, ScaleOffsetCodec) or not isinstance(step.decoded, ArrayRepr):
        return DATA_TYPE
    if not has_dtype(step.decoded.dtype):
        return DATA_TYPE
    native = step.decoded.dtype.newbyteorder("=")
    if native.kind != "f":
        return CHECKED
    offset, scale = spec.scalars(native)
    steps = ("divide", scale), ("add", offset)
    if direction == "encode":
        steps = ("subtract", offset), ("multiply", scale)
    return calculated((native, native), native, *steps)


# -- transposes behind other filters; the placement and gathering kernels do those at the beginning of a chain -------


def _transpose(step: Step, direction: str) -> Filter | str:
    given = step.decoded if direction == "encode" else step.encoded
    if not isinstance(given, ArrayRepr) or not isinstance(step.spec, TransposeCodec):
        return DATA_TYPE
    axes: Sequence[int] = step.spec.permutation(len(given.shape))
    if direction == "decode":
        axes = np.argsort(axes).tolist()
    shape, itemsize = given.shape, given.dtype.itemsize
    order = (0, *(axis + 1 for axis in axes), len(shape) + 1)

    def run(context: BatchContext, rows: Array) -> Array:
        n = rows.shape[0]
        return context.device.xp.ascontiguousarray(rows.reshape(n, *shape, itemsize).transpose(order)).reshape(n, -1)

    return run


CODECS = {
    "cast_value": filter_codec(_cast_value),
    "numcodecs.astype": _of_numbers(_astype, "decode_dtype", "encode_dtype"),
    "numcodecs.bitround": filter_codec(_bitround),
    "numcodecs.delta": _of_numbers(_delta),
    "numcodecs.fixedscaleoffset": _of_numbers(_fixed),
    "numcodecs.packbits": filter_codec(_packbits),
    "numcodecs.quantize": _of_numbers(_quantize),
    "scale_offset": filter_codec(_scale_offset),
    "transpose": filter_codec(_transpose),
}
