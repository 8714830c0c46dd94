"""The interface is frozen: a public name, parameter or default that changes by accident fails here.

After a change that is meant: ``python -m tools.public_api > tests/public_api.txt``, and a line in CHANGELOG.md.
"""

from pathlib import Path

from tools.public_api import lines, load

LISTED = Path(__file__).with_name("public_api.txt")


def test_the_interface_is_the_one_that_is_listed() -> None:
    found, listed = set(lines(load())), set(LISTED.read_text().splitlines())
    assert sorted(found - listed) == []  # new, or changed
    assert sorted(listed - found) == []  # gone, or changed
