"""Measures the memory that a call takes on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def measured(call: Callable[[], T]) -> tuple[T, int | None]:
    """The result of a call, and the most memory that it took at once; None if something else traces memory already."""
    import tracemalloc  # few programs measure

    if tracemalloc.is_tracing():
        return call(), None
    tracemalloc.start(1)
    try:
        before = tracemalloc.get_traced_memory()[0]
        result = call()
        return result, tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
