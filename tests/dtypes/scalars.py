"""Values compared by type and bits."""

from typing import Any

import numpy as np


def same(value: Any, expected: Any) -> bool:
    """Equal type and bits."""
    if isinstance(expected, np.generic):
        return type(value) is type(expected) and value.dtype == expected.dtype and value.tobytes() == expected.tobytes()
    return type(value) is type(expected) and value == expected


def bits(hexadecimal: str, dtype: str) -> Any:
    """The scalar of these bits."""
    return np.frombuffer(bytes.fromhex(hexadecimal)[::-1], dtype)[0]
