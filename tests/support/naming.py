"""Names of parameters in the ids of tests."""

import re


def name_of(value: object) -> str:
    """A value's name without addresses: every process must collect the same tests."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
