"""Floats that go wrong where something is not exact: subnormal numbers, NaNs of all bits, infinities, zeros."""

import numpy as np

#: Bits of the mantissa, by bytes of a float.
MANTISSA = {2: 10, 4: 23, 8: 52}


def floats(dtype: str, n: int, seed: int) -> np.ndarray:
    """Floats of any bits, most of them special: native, of shape (n,). dtype: "f2", "f4" or "f8"."""
    rng = np.random.default_rng(seed)
    size = int(dtype[1:])
    mantissa, sign = MANTISSA[size], 8 * size - 1
    top = (1 << (sign - mantissa)) - 1
    exponents = np.array([0, 0, 1, top, top // 2, top // 2 + 1, top // 2 + 30 if size > 2 else 20, top - 1, 3])
    chosen = np.where(rng.random(n) < 0.7, rng.choice(exponents, n), rng.integers(0, top, n)).astype(np.uint64)
    fraction = rng.integers(0, 1 << mantissa, n, np.uint64)
    fraction = np.where(rng.random(n) < 0.3, fraction >> np.uint64(mantissa - 3), fraction)
    fraction[rng.random(n) < 0.1] = 0
    if size == 8:  # near the smallest floats of 4 bytes, which casts meet
        chosen[rng.random(n) < 0.2] = rng.integers(870, 900)
    bits = rng.integers(0, 2, n, np.uint64) << np.uint64(sign) | chosen << np.uint64(mantissa) | fraction
    return bits.astype(f"u{size}").view(dtype)
