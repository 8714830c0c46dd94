"""Arithmetic and casts of floats on the device that give the host's bits, and the list of such casts.

The array module does not: CuPy flushes subnormal 4-byte numbers to zero, also when it casts and compares them; it casts
2-byte floats by way of 4-byte ones; and a GPU has its own NaNs. The kernels of gzarr avoid all of this
(`gzarr/gpu/kernels/floats.cuh`). Integers, and the bits of floats viewed as integers, are the same everywhere.

NaNs are those of this machine's NumPy, which is asked where processors or compilers differ. If both operands are NaNs,
IEEE 754 allows either one as the result: the kernels choose as NumPy does on x86-64.
"""

from functools import cache
from typing import Any, TypeAlias

import numpy as np

from gzarr.backend import Array
from gzarr.gpu.codecs.batch import BatchContext, has_dtype
from gzarr.gpu.codecs.transfers import new_rows
from gzarr.gpu.kernels import NUMBERS, OPERATIONS

#: Steps of arithmetic in one launch.
_N_STEPS = 3
#: Why the host calculates with 2-byte floats.
HALF_FLOATS = "the host calculates with floats of 2 bytes, and makes them"


#: Operations from `OPERATIONS`, each with the bits of its second operand.
Steps: TypeAlias = tuple[tuple[str, int], ...]


def why_not_cast(source: np.dtype[Any], target: np.dtype[Any]) -> str:
    """Why the host casts between two dtypes of any byte order; empty if the device gives the same bits."""
    source, target = source.newbyteorder("="), target.newbyteorder("=")
    if not has_dtype(source) or not has_dtype(target):
        return "the device has no such data type"
    if source == target or target.kind == "b":
        return ""
    if source.kind in "fc" and target.kind in "iu":
        return "floats become integers on the host: what is out of range differs between machines"
    if source.kind == "c" and target.kind == "f":
        return "complex numbers become real on the host, which warns of it"
    if target.str[1:] == "f2" or (source.str[1:] == "f2" and not _keeps_nans_of_halves()):
        return HALF_FLOATS
    return ""


def cast(context: BatchContext, rows: Array, source: np.dtype[Any], target: np.dtype[Any]) -> Array:
    """Cast rows of native numbers as NumPy's ``astype`` does. `why_not_cast` must be empty.

    rows: uint8 (n, bytes), contiguous, on the device. Returns: uint8 (n, bytes).
    """
    if source == target:
        return rows
    if source.kind in "fc" and target.kind == "b":
        return _nonzero(rows, source)
    if target.kind in "biu":
        return context.device.xp.ascontiguousarray(rows.view(source).astype(target)).view(np.uint8)
    numbers, floats = _part(source), _part(target)
    work = numbers if numbers.kind == "f" and numbers.itemsize > 2 else floats
    return _launch(context, rows, (numbers, work, floats), (), 2 if target.kind == "c" and source.kind != "c" else 1)


def calculate(
    context: BatchContext, rows: Array, dtypes: tuple[np.dtype[Any], np.dtype[Any]], target: np.dtype[Any], steps: Steps
) -> Array:
    """Do arithmetic on rows of native real numbers, and cast the results.

    rows: uint8 (n, bytes), contiguous, on the device.
    dtypes: of the numbers, and of the floats that the arithmetic is done in.
    steps: at most three, from `steps_of`.
    Returns: uint8 (n, bytes).
    """
    source, work = dtypes
    spread = 2 if target.kind == "c" else 1
    return _launch(context, rows, (source, work, _part(target)), steps, spread)


def steps_of(work: np.dtype[Any], *steps: tuple[str, Any]) -> Steps | None:
    """Operations for `calculate`, each with its second operand, or None if it has only one.

    Operands are Python numbers or scalars of ``work``, which NumPy converts to that dtype.
    Returns: None if an operand is something else, or not finite in that dtype: the host then raises errors or warns.
    """
    operations = []
    for operation, operand in steps:
        if operand is not None and type(operand) not in (int, float) and getattr(operand, "dtype", None) != work:
            return None
        try:
            with np.errstate(all="ignore"):
                scalar = np.full(1, 0 if operand is None else operand, work)
        except OverflowError:
            return None
        if not np.isfinite(scalar[0]):
            return None
        operations.append((operation, int(scalar.view(f"i{work.itemsize}")[0])))
    return tuple(operations)


def delta(context: BatchContext, rows: Array, dtype: np.dtype[Any], *, decodes: bool) -> Array:
    """The first number of each row of floats or complex numbers, then the difference of each to the one before it.

    decodes: the reverse: cumulative sums of each row, added one after the other.
    """
    n, nbytes = rows.shape
    itemsize = _part(dtype).itemsize
    n_floats, parts = nbytes // itemsize, dtype.itemsize // itemsize
    made, _ = new_rows(context, n, nbytes)
    head = n, n_floats, itemsize, parts, own_nan(itemsize)
    places = context.device.address(rows), context.device.address(made)
    if decodes:
        later = keeps_later_nan(dtype, min(n_floats // parts, 3))
        context.device.launch("running_sums", n * parts, (*head, later, *places))
    else:
        context.device.launch("differences", n * n_floats, (*head, *places))
    return made


def where_equal(rows: Array, dtype: np.dtype[Any], key: Any) -> Array:
    """Where native real numbers equal a scalar of their dtype; a NaN equals every NaN. Returns: bool (n, numbers)."""
    if dtype.kind != "f":
        return rows.view(dtype) == key
    bits, sign, infinity = _bits(rows, dtype)
    if np.isnan(key):
        return (bits & (sign - 1)) > infinity
    if key == 0:
        return (bits & (sign - 1)) == 0
    return bits == np.full(1, key, dtype).view(bits.dtype)[0]


def put(rows: Array, dtype: np.dtype[Any], where: Array, value: Any) -> None:
    """Write the bits of a scalar where a mask is true. where: bool (n, numbers)."""
    number = np.dtype(f"u{dtype.itemsize}")
    rows.view(number)[where] = np.full(1, value, dtype).view(number)[0]


def _bits(rows: Array, dtype: np.dtype[Any]) -> tuple[Array, Any, Any]:
    """Rows of floats as unsigned integers, the sign bit, and the bits of infinity."""
    number = np.dtype(f"u{dtype.itemsize}")
    infinity = np.full(1, np.inf, dtype).view(number)[0]
    return rows.view(number), number.type(1 << (8 * dtype.itemsize - 1)), infinity


def _nonzero(rows: Array, dtype: np.dtype[Any]) -> Array:
    bits, sign, _ = _bits(rows, _part(dtype))
    if dtype.kind == "c":
        bits = bits[:, ::2] | bits[:, 1::2]
    return ((bits & (sign - 1)) != 0).view(np.uint8)


def _part(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the parts of complex numbers; other dtypes unchanged."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


@cache
def _keeps_nans_of_halves() -> bool:
    """Whether this NumPy widens 2-byte floats with integer arithmetic, as the kernels do: hardware makes NaNs quiet."""
    signalling = np.full(64, 0x7C01, np.uint16).view(np.float16)
    wide = signalling.astype(np.float32).view(np.uint32), signalling.astype(np.float64).view(np.uint64)
    return bool((wide[0] == 0x7F802000).all() and (wide[1] == 0x7FF0_0400_0000_0000).all())


@cache
def own_nan(itemsize: int) -> int:
    """Bits of the NaN that this machine returns for an invalid operation on floats of a size."""
    infinity = np.full(1, np.inf, f"f{itemsize}")
    with np.errstate(invalid="ignore"):
        return int((infinity - infinity).view(f"i{itemsize}")[0])


@cache
def keeps_later_nan(dtype: np.dtype[Any], n: int) -> bool:
    """Whether cumulative sums of n numbers (all n from 3 on are alike) keep the later of two NaNs.

    Compilers choose the order of operands, which differs between NumPy's loops.
    """
    number = np.dtype(f"u{_part(dtype).itemsize}")
    first = np.full(1, np.nan, _part(dtype)).view(number)[0]
    nans = np.repeat(first + np.arange(max(n, 2), dtype=number), dtype.itemsize // number.itemsize)
    return bool(np.cumsum(nans.view(dtype)).view(number)[-1] != first)


def _number(dtype: np.dtype[Any]) -> int:
    return NUMBERS.index(dtype.str[1:])


def _launch(
    context: BatchContext,
    rows: Array,
    dtypes: tuple[np.dtype[Any], np.dtype[Any], np.dtype[Any]],
    steps: Steps,
    spread: int,
) -> Array:
    """Launch `calculate`. dtypes: of the rows, of the arithmetic, and of the resulting floats."""
    source, work, target = dtypes
    n, nbytes = rows.shape
    per_row = nbytes // source.itemsize
    made, _ = new_rows(context, n, per_row * spread * target.itemsize)
    flat = [x for name, bits in steps for x in (OPERATIONS.index(name), bits)]
    flat += [0] * (2 * _N_STEPS - len(flat))
    head = n * per_row, _number(source), work.itemsize, _number(target)
    places = context.device.address(rows), context.device.address(made)
    context.device.launch("calculate", n * per_row, (*head, *flat, own_nan(work.itemsize), spread, *places))
    return made
