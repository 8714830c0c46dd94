"""What the arithmetic instructions of PTX compute, on NumPy arrays with one number for each thread.

Source: NVIDIA, "Parallel Thread Execution ISA", version 9. Results that PTX leaves open are made conspicuous: a NaN
that an operation makes is not the host's, and a division of integers by zero is a fault.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tests.gpu.ptx.flushing import flushed, result_of
from tests.gpu.ptx.program import Instruction

Numbers = np.ndarray

DTYPES: dict[str, np.dtype[Any]] = {
    f"{letter}{8 * size}": np.dtype(f"{kind}{size}")
    for letter, kind in (("u", "u"), ("b", "u"), ("s", "i"), ("f", "f"))
    for size in (1, 2, 4, 8)
    if letter != "f" or size > 2
} | {"pred": np.dtype(bool)}


class Operation(NamedTuple):
    """The types of the sources and of the result, and the function of the sources."""

    sources: tuple[str, ...]
    result: str
    function: Callable[..., Numbers]


def operation(one: Instruction) -> Operation:
    """Raises: NotImplementedError for what the kernels do not need."""
    if "ftz" in one.parts:
        exact = operation(one._replace(parts=tuple(part for part in one.parts if part != "ftz")))
        return exact._replace(function=lambda *numbers: result_of(exact.function(*map(flushed, numbers))))
    name, last = one.parts[0], one.parts[-1]
    if "approx" in one.parts or "sat" in one.parts:
        raise NotImplementedError(f"{one.text}: inexact on purpose")
    if name in _SIMPLE:
        count, function = _SIMPLE[name]
        # A scalar would make a shift or product of two constants a scalar operation, which warns.
        return Operation((last,) * count, last, _settled(function) if last[0] == "f" else function)
    if name in _MAKERS:
        return _MAKERS[name](one)
    raise NotImplementedError(one.text)


def _settled(function: Callable[..., Numbers]) -> Callable[..., Numbers]:
    """A NaN of the device: one pattern of its own, whatever the operands were."""

    def settled(*sources: Numbers) -> Numbers:
        result = function(*sources)
        nan = np.array(0x7FFFFFFF if result.dtype.itemsize == 4 else 0xFFF8000000000000, f"u{result.dtype.itemsize}")
        return np.where(np.isnan(result), nan.view(result.dtype), result)

    return settled


def _divided(a: Numbers, b: Numbers) -> Numbers:
    if a.dtype.kind == "f":
        return a / b
    if not np.all(b):
        raise ZeroDivisionError
    # NumPy rounds down, the device towards zero.
    quotient = a // b
    return quotient if a.dtype.kind == "u" else quotient + ((a - quotient * b != 0) & ((a < 0) != (b < 0)))


def _high(a: Numbers, b: Numbers) -> Numbers:
    """The upper half of the product."""
    bits = 8 * a.dtype.itemsize
    return np.array([int(x) * int(y) >> bits & (1 << bits) - 1 for x, y in np.broadcast(a, b)], f"u{bits // 8}").view(
        a.dtype
    )


def _wide(dtype: np.dtype[Any]) -> str:
    return f"{'s' if dtype.kind == 'i' else 'u'}{16 * dtype.itemsize}"


def _times(one: Instruction) -> tuple[Callable[..., Numbers], str]:
    kind, last = one.parts[1], one.parts[-1]
    if last[0] == "f" or kind == "lo":
        return np.multiply, last
    if kind == "wide":
        wide = DTYPES[_wide(DTYPES[last])]
        return (lambda a, b: a.astype(wide) * b.astype(wide)), _wide(DTYPES[last])
    return (_high32 if DTYPES[last].itemsize == 4 else _high), last


def _high32(a: Numbers, b: Numbers) -> Numbers:
    wide = DTYPES[_wide(a.dtype)]
    return (a.astype(wide) * b.astype(wide) >> 32).astype(a.dtype)


def _multiply(one: Instruction) -> Operation:
    function, result = _times(one)
    return Operation((one.parts[-1],) * 2, result, _settled(function) if result[0] == "f" else function)


def _multiply_add(one: Instruction) -> Operation:
    function, result = _times(one)
    if result[0] == "f":
        raise NotImplementedError(f"{one.text}: two operations became one")
    return Operation((one.parts[-1],) * 2 + (result,), result, lambda a, b, c: function(a, b) + c)


def _shift(one: Instruction) -> Operation:
    last = one.parts[-1]
    bits = 8 * DTYPES[last].itemsize

    def left(a: Numbers, n: Numbers) -> Numbers:
        return np.where(n < bits, a << np.minimum(n, bits - 1).astype(a.dtype), 0).astype(a.dtype)

    def right(a: Numbers, n: Numbers) -> Numbers:
        shifted = a >> np.minimum(n, bits - 1).astype(a.dtype)
        return shifted if a.dtype.kind == "i" else np.where(n < bits, shifted, 0).astype(a.dtype)

    return Operation((last, "u32"), last, left if one.parts[0] == "shl" else right)


def _funnel(one: Instruction) -> Operation:
    is_left, wraps = one.parts[1] == "l", one.parts[2] == "wrap"

    def shifted(low: Numbers, high: Numbers, n: Numbers) -> Numbers:
        n = (n & 31 if wraps else np.minimum(n, 32)).astype("u8")
        both = high.astype("u8") << np.uint64(32) | low
        if is_left:
            # By 64 - 32 at most, in two steps: a shift by all bits is undefined.
            return (both >> np.uint64(32) - n).astype("u4")
        return (both >> n).astype("u4")

    return Operation(("b32", "b32", "u32"), "b32", shifted)


_COMPARISONS: dict[str, Callable[..., Numbers]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_LOGIC: dict[str, Callable[..., Numbers]] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _compare(one: Instruction) -> Operation:
    compare, last = _COMPARISONS[one.parts[1]], one.parts[-1]
    if one.parts[2] not in _LOGIC:
        return Operation((last, last), "pred", compare)
    logic = _LOGIC[one.parts[2]]
    return Operation((last, last, "pred"), "pred", lambda a, b, c: logic(compare(a, b), c))


def _select(one: Instruction) -> Operation:
    last = one.parts[-1]
    return Operation((last, last, "pred"), last, lambda a, b, p: np.where(p, a, b))


def _convert(one: Instruction) -> Operation:
    to, source = one.parts[-2:]
    if one.parts[1] == "rni":
        return Operation((source,), to, _settled(np.rint))
    if to[0] != "f" and source[0] == "f":
        raise NotImplementedError(one.text)
    function = lambda a: a.astype(DTYPES[to])  # noqa: E731
    return Operation((source,), to, _settled(function) if to[0] == "f" else function)


def _insert(one: Instruction) -> Operation:
    last = one.parts[-1]
    bits = 8 * DTYPES[last].itemsize

    def inserted(part: Numbers, base: Numbers, position: Numbers, count: Numbers) -> Numbers:
        position, count = position & 255, np.minimum(count & 255, bits)
        ones = np.where(
            count < bits, (np.uint64(1) << np.minimum(count, 63).astype("u8")) - np.uint64(1), ~np.uint64(0)
        )
        at = np.minimum(position, 63).astype("u8")
        mask = np.where(position < bits, ones << at, 0)
        return (base & ~mask | (part.astype("u8") << at) & mask).astype(base.dtype)

    return Operation((last, last, "u32", "u32"), last, inserted)


def _extract(one: Instruction) -> Operation:
    last = one.parts[-1]
    bits = 8 * DTYPES[last].itemsize

    def extracted(a: Numbers, position: Numbers, count: Numbers) -> Numbers:
        position, count = (position & 255).astype("i8"), (count & 255).astype("i8")
        top = np.minimum(np.minimum(position + count, bits), 64)
        kept = np.maximum(top - position, 0)
        up = np.minimum(64 - top, 63).astype(a.dtype if bits == 64 else "u8")
        wide = a.astype("i8" if a.dtype.kind == "i" else "u8")
        value = wide << up.astype(wide.dtype) >> np.minimum(64 - kept, 63).astype(wide.dtype)
        return np.where(kept > 0, value, 0).astype(a.dtype)

    return Operation((last, "u32", "u32"), last, extracted)


def _permute(one: Instruction) -> Operation:
    if one.parts[1:] != ("b32",):
        raise NotImplementedError(one.text)

    def permuted(a: Numbers, b: Numbers, how: Numbers) -> Numbers:
        both = b.astype("u8") << np.uint64(32) | a
        result = np.zeros(np.broadcast(both, how).shape, "u8")
        for k in range(4):
            nibble = how.astype("u8") >> np.uint64(4 * k) & np.uint64(15)
            byte = both >> (nibble & np.uint64(7)) * np.uint64(8) & np.uint64(255)
            signs = np.where(byte & np.uint64(128), 255, 0).astype("u8")
            result |= np.where(nibble & np.uint64(8), signs, byte) << np.uint64(8 * k)
        return result.astype("u4")

    return Operation(("b32", "b32", "b32"), "b32", permuted)


def _lookup(one: Instruction) -> Operation:
    """lop3: any function of three bits, given as the table of its results."""

    def looked_up(a: Numbers, b: Numbers, c: Numbers, table: Numbers) -> Numbers:
        result = np.zeros_like(a)
        for row in range(8):
            if int(np.max(table)) >> row & 1:
                result = result | (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
        return result

    return Operation(("b32",) * 4, "b32", looked_up)


def _count(one: Instruction) -> Operation:
    last = one.parts[-1]
    bits = 8 * DTYPES[last].itemsize
    of: Callable[[int], int] = int.bit_count if one.parts[0] == "popc" else lambda x: bits - x.bit_length()
    return Operation((last,), "u32", lambda a: np.array([of(int(x)) for x in a], "u4"))


def _reverse(one: Instruction) -> Operation:
    last = one.parts[-1]
    dtype = DTYPES[last]

    def turned(a: Numbers) -> Numbers:
        raw = np.ascontiguousarray(a.astype(dtype.newbyteorder(">"))).view("u1")
        return np.packbits(np.unpackbits(raw).reshape(a.size, -1)[:, ::-1]).view(dtype.newbyteorder(">")).astype(dtype)

    return Operation((last,), last, turned)


def _not(one: Instruction) -> Operation:
    return Operation((one.parts[-1],), one.parts[-1], np.logical_not if one.parts[-1] == "pred" else np.invert)


def _bitwise(one: Instruction) -> Operation:
    functions = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    return Operation((one.parts[-1],) * 2, one.parts[-1], functions[one.parts[0]])


_SIMPLE: dict[str, tuple[int, Callable[..., Numbers]]] = {
    "add": (2, np.add),
    "sub": (2, np.subtract),
    "div": (2, _divided),
    "rem": (2, lambda a, b: a - _divided(a, b) * b),
    "min": (2, np.minimum),
    "max": (2, np.maximum),
    "neg": (1, np.negative),
    "abs": (1, np.abs),
}
_MAKERS: dict[str, Callable[[Instruction], Operation]] = {
    "mul": _multiply,
    "mad": _multiply_add,
    "fma": _multiply_add,
    "shl": _shift,
    "shr": _shift,
    "shf": _funnel,
    "setp": _compare,
    "selp": _select,
    "cvt": _convert,
    "bfi": _insert,
    "bfe": _extract,
    "prmt": _permute,
    "lop3": _lookup,
    "popc": _count,
    "clz": _count,
    "brev": _reverse,
    "not": _not,
    "and": _bitwise,
    "or": _bitwise,
    "xor": _bitwise,
}
