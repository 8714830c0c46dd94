"""Makes text from data fit to be shown: nothing in it moves a cursor, colours a terminal, or turns text around.

Names, attributes and messages are escaped where they become text for people: in reports, the ``repr`` of nodes, errors,
progress, logs, HTML, and what commands print. Letters of all languages stay as they are. The data themselves, and
attributes of errors and reports, keep what is stored.
"""

import re
from collections.abc import Iterable

#: Controls of ASCII and of Latin 1, marks and overrides of direction, separators of lines, halves of pairs. Source:
#: ECMA-48, section 5; Unicode Standard Annex 9, section 2; Unicode 16, sections 23.1, 23.2 and 23.6.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def escaped(text: object) -> str:
    r"""A text on one line, with escapes as in Python for what is not to be shown: ``"a\nb"`` becomes ``a\\nb``."""
    text = str(text)
    if text.isascii() and text.isprintable():
        return text
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


def escaped_lines(text: object) -> str:
    """A text with its line feeds, and escapes for everything else that is not to be shown."""
    return "\n".join(map(escaped, str(text).split("\n")))


def as_lines(lines: Iterable[object]) -> str:
    """Texts as a line each."""
    return "\n".join(map(escaped, lines))


def in_html(text: object) -> str:
    """A text as HTML shows it."""
    from html import escape  # with a table of 2,000 names

    return escape(escaped(text))
