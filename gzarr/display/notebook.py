"""What arrays and groups show in a notebook: HTML that needs no style sheet and fits light and dark pages.

Everything that comes from metadata is escaped, because a file must not bring markup into a notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gzarr.errors.escaping import in_html

_CELL = "text-align:left;vertical-align:top;padding:2px 10px 2px 0;border:none;background:transparent;color:inherit"
_TABLE = "border-collapse:collapse;color:inherit;font-size:inherit"
_FAINT = "opacity:0.7;font-weight:normal;white-space:nowrap"


#: Characters of one fact that are shown; the rest is cut off.
_MAX_TEXT = 400


class Member(NamedTuple):
    """A member of a group.

    Attributes
    ----------
    name : str
        Its name.
    facts : tuple of str
        What is said of an array; empty for a group.
    members : sequence of Member or None
        Those of a group; None for an array.
    more : bool
        Whether the group has members that are not listed.
    """

    name: str
    facts: tuple[str, ...]
    members: Sequence[Member] | None = None
    more: bool = False


def array_html(
    title: str, columns: Sequence[str], sizes: Iterable[Sequence[str]], facts: Iterable[tuple[str, str]], drawing: str
) -> str:
    """Show an array: its name, a table of sizes, its other facts, and a drawing beside them.

    Parameters
    ----------
    title : str
        Name of the array.
    columns : sequence of str
        Headings of the sizes.
    sizes : iterable of sequences of str
        Rows of a name and a value for every column.
    facts : iterable of (str, str)
        Names and values.
    drawing : str
        An ``<svg>`` element.

    Returns
    -------
    str
        The HTML.
    """
    head = "".join(f"<th style='{_CELL}'>{in_html(column)}</th>" for column in ("", *columns))
    rows = "".join(_row(*row) for row in sizes)
    span = len(columns)
    rest = "".join(_row(name, value, span=span) for name, value in facts)
    table = f"<table style='{_TABLE}'><thead><tr>{head}</tr></thead><tbody>{rows}{rest}</tbody></table>"
    beside = f"<div style='flex:none'>{drawing}</div>"
    return (
        f"<div style='color:inherit'><strong>gzarr.Array</strong> <code>{in_html(title)}</code>"
        f"<div style='display:flex;gap:24px;align-items:center'>{table}{beside}</div></div>"
    )


def group_html(title: str, facts: Iterable[tuple[str, str]], group: Member) -> str:
    """Show a group: its name, its facts, and its members as lists that unfold."""
    rows = "".join(_row(name, value) for name, value in facts)
    return (
        f"<div style='color:inherit'><strong>gzarr.Group</strong> <code>{in_html(title)}</code>"
        f"<table style='{_TABLE}'><tbody>{rows}</tbody></table>{_members(group)}</div>"
    )


def _members(group: Member) -> str:
    items = "".join(f"<li>{_member(member)}</li>" for member in group.members or ())
    if group.more:
        items += f"<li style='{_FAINT}'>…</li>"
    return f"<ul style='margin:0;padding-left:20px;list-style:none'>{items}</ul>" if items else ""


def _member(member: Member) -> str:
    if member.members is None:
        facts = " · ".join(map(in_html, member.facts))
        return f"<code>{in_html(member.name)}</code> <span style='{_FAINT}'>{facts}</span>"
    inside = _members(member)
    if not inside:
        return f"<code>{in_html(member.name)}/</code>"
    return f"<details open><summary><code>{in_html(member.name)}/</code></summary>{inside}</details>"


def _row(name: str, *values: str, span: int = 1) -> str:
    shown = (value if len(value) <= _MAX_TEXT else value[:_MAX_TEXT] + "…" for value in values)
    cells = "".join(f"<td style='{_CELL}' colspan='{span}'>{in_html(value)}</td>" for value in shown)
    return f"<tr><th style='{_CELL};{_FAINT}'>{in_html(name)}</th>{cells}</tr>"
