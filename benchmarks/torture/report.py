"""Formats the result of a run as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.torture.catalogue import BY_NAME
from benchmarks.torture.scenario import LOSSES, Counts

START, END = "<!-- torture: generated -->", "<!-- end -->"
WORDS = {"raw_errors": "raw errors"}
HEADS = {"local": "directory", "views": "directory, several views", "zip": "ZIP", "sqlite": "SQLite"}
HEADS |= {"s3": "S3", "none": "no store"}


def line(counts: Counts) -> str:
    """The counts in words."""
    losses = [f"{getattr(counts, name):,} {WORDS.get(name, name)}" for name in LOSSES if getattr(counts, name)]
    refused = f", {counts.refused:,} refused" if counts.refused else ""
    return f"{', '.join(losses) or '0'} of {counts.operations:,}{refused}"


def document(result: Mapping[str, Any]) -> str:
    """All tables of a result."""
    own = [cell for cell in result["cells"] if cell["writer"] == "gzarr"]
    raced = {cell["scenario"] for cell in result["cells"] if cell["writer"] != "gzarr"}
    beside = [cell for cell in result["cells"] if cell["scenario"] in raced and cell["store"] == "local"]
    parts = [about(result), table(own, "store")]
    if beside:
        parts.append("Local directories, beside other libraries:\n\n" + table(beside, "writer"))
    return "\n\n".join(parts)


def about(result: Mapping[str, Any]) -> str:
    """Versions, machine and seed."""
    where = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in result["libraries"].items())
    return (
        f"{versions}; {where['cpu']}, {where['cores']} cores, {where['system']}, {where['folder']}, {where['date']};"
        f" {result['minutes']:g} minutes, seed {result['seed']}."
    )


def table(cells: list[Mapping[str, Any]], column: str) -> str:
    """One row a scenario, one column a store or a library; a row that is not promised says so."""
    columns = list(dict.fromkeys(cell[column] for cell in cells))
    rows = [["what happens", *(HEADS.get(each, each) for each in columns)], ["---"] * (len(columns) + 1)]
    for name in dict.fromkeys(cell["scenario"] for cell in cells):
        of_column = {cell[column]: cell for cell in cells if cell["scenario"] == name}
        rows.append([BY_NAME[name].what, *(_text(of_column.get(each)) for each in columns)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _text(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return ""
    mark = " (not promised)" if cell["unsafe"] and cell["writer"] == "gzarr" else ""
    return line(Counts.from_json(cell)) + mark


def inserted(path: Path) -> str:
    """The tables that a Markdown file holds."""
    return path.read_text().partition(START)[2].partition(END)[0].strip()


def insert(path: Path, text: str) -> None:
    """Put the tables between the markers of a Markdown file. Raises: ValueError if it has no markers."""
    before, start, rest = path.read_text().partition(START)
    _, end, after = rest.partition(END)
    if not (start and end):
        raise ValueError(f"{path} has no lines {START!r} and {END!r} to put the tables between")
    path.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}")
