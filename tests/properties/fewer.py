"""Fewer examples for suites that run again on another device: their selections were tried in full on the first."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import settings

#: The attribute in which Hypothesis keeps a test's settings; it has no public way to change them temporarily.
_SETTINGS = "_hypothesis_internal_use_settings"
#: Examples for devices whose paths are few; each example is a selection of an array, of thousands per suite.
EXAMPLES = 10


@contextmanager
def examples_of(namespace: dict[str, Any], most: int = EXAMPLES) -> Iterator[None]:
    """The tests of a module draw at most so many examples, unless a profile asks for more."""
    tests = [item for name, item in namespace.items() if name.startswith("test_") and hasattr(item, _SETTINGS)]
    if not tests:
        raise LookupError(f"no tests with {_SETTINGS}: Hypothesis keeps its settings elsewhere")
    before = [getattr(test, _SETTINGS) for test in tests]
    profile = settings.get_current_profile_name()  # of state machines, which are run within tests
    if settings.default.max_examples <= settings.get_profile("gzarr").max_examples:
        settings.load_profile("few")
    try:
        for test, found in zip(tests, before, strict=True):
            if found.max_examples <= settings.get_profile("gzarr").max_examples:
                setattr(test, _SETTINGS, settings(found, max_examples=min(most, found.max_examples)))
        yield
    finally:
        settings.load_profile(profile)
        for test, found in zip(tests, before, strict=True):
            setattr(test, _SETTINGS, found)
