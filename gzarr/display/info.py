"""Reports for people: ``array.info``, ``group.info``, ``array.placement`` and the tree of a group."""

import textwrap
from collections.abc import Iterable, Sequence

from gzarr.backend import Placement
from gzarr.errors.escaping import escaped, in_html

_WIDTH = 80


class Report:
    """Lines of names and values, aligned. It prints in a terminal, and is a table in a notebook.

    Parameters
    ----------
    items : iterable of (str, str)
        Names and values.

    Attributes
    ----------
    items : tuple of (str, str)
        The same.
    """

    __slots__ = ("items",)

    def __init__(self, items: Iterable[tuple[str, str]]) -> None:
        self.items = tuple(items)

    def __repr__(self) -> str:
        items = [(escaped(name), escaped(value)) for name, value in self.items]
        width = max((len(name) for name, _ in items), default=0)
        lines = []
        for name, value in items:
            wrapped = textwrap.wrap(value, _WIDTH - width - 3, break_long_words=False, break_on_hyphens=False) or [""]
            labels = [name, *[""] * (len(wrapped) - 1)]
            lines += [f"{label:<{width}} : {line}" for label, line in zip(labels, wrapped, strict=True)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th align='left'>{in_html(name)}</th><td align='left'>{in_html(value)}</td></tr>"
            for name, value in self.items
        )
        return f"<table>{rows}</table>"


class PlacementReport(tuple[Placement, ...]):
    """Where each step of reading an array runs, and why. It prints as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        rows = [("step", "runs on", "because"), *(tuple(map(escaped, row)) for row in self)]
        widths = [max(len(row[i]) for row in rows) for i in range(3)]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


class Tree:
    """A hierarchy that prints as a drawing.

    Parameters
    ----------
    label : str
        Text of this node, escaped: names may hold what terminals obey.
    children : sequence of Tree
        The trees below it.

    Attributes
    ----------
    label, children
        The same.
    """

    __slots__ = ("children", "label")

    def __init__(self, label: str, children: "Sequence[Tree]" = ()) -> None:
        self.label = label
        self.children = children

    def __repr__(self) -> str:
        return "\n".join([self.label, *self._lines()])

    def _lines(self) -> list[str]:
        lines: list[str] = []
        for i, child in enumerate(self.children):
            last = i == len(self.children) - 1
            lines.append(("└── " if last else "├── ") + child.label)
            lines += [("    " if last else "│   ") + line for line in child._lines()]  # noqa: SLF001 - its own kind
        return lines

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(repr(self))}</pre>"


def human_size(nbytes: int) -> str:
    """Write a size in bytes, and again in binary units: ``400000000 (381.5M)``."""
    size, unit = _scaled(nbytes)
    return f"{nbytes} ({size:.1f}{unit})" if unit else str(nbytes)


def size_text(nbytes: int) -> str:
    """Write a size in binary units: ``381.5 MiB``."""
    size, unit = _scaled(nbytes)
    return f"{size:.1f} {unit}iB" if unit else f"{nbytes} B"


def _scaled(nbytes: int) -> tuple[float, str]:
    """Return a size in the largest binary unit below it, and the letter of that unit; "" for bytes."""
    size, unit = float(nbytes), ""
    for letter in "KMGTPE":
        if size < 1024:
            break
        size, unit = size / 1024, letter
    return size, unit


def number(n: int, what: str) -> str:
    """A number of things, in words."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"
