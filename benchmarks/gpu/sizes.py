"""How much is read and written to be timed: as much as tells something, or little, to try the programs."""

from __future__ import annotations

import os

#: By how much everything is smaller than what tells something. Figures of small sizes mean nothing.
SHRINK = int(os.environ.get("GZARR_GPU_CHECK_SHRINK", "1"))
#: What stands beside such figures; "" if they mean something.
MEANINGLESS = "" if SHRINK == 1 else "the figures mean nothing: small sizes try the programs"


def sized(n: int) -> int:
    """A number of bytes or of streams."""
    return max(n // SHRINK, 1)


def sized_side(n: int) -> int:
    """The side of a square, or bytes of a chunk; a power of two remains one."""
    return max(int(n / SHRINK**0.5), 1)


def rounds(n: int) -> int:
    """How often something is timed."""
    return n if SHRINK == 1 else 1
