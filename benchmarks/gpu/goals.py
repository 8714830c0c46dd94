"""The speeds to reach, and whether a result reaches them. A goal is a ratio that every case must reach."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

#: A measured result, as `benchmarks.gpu` writes it; one of its rows.
Result: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, Any]
#: (name of a case, its ratio).
Found: TypeAlias = Iterator[tuple[str, float]]

CPU_PEERS = ("gzarr on the CPU, upload", "TensorStore, upload", "zarrs, upload")
ZARR_WRITERS = ("zarr-python, from the host", "zarr-python fused, from the host")
RAW_READS = ("raw read by threads", "raw KvikIO")
SMALL_READS = ("one chunk", "100 random chunks")


class Goal(NamedTuple):
    """A goal.

    Attributes
    ----------
    table : str
        Which measurements it is about.
    text : str
        The goal in words.
    limit : float
        The ratio to reach.
    ratios : callable
        Computes the ratios of a result.
    at_most : bool
        Whether the ratio is an upper limit.
    """

    table: str
    text: str
    limit: float
    ratios: Callable[[Result], Found]
    at_most: bool = False


class Case(NamedTuple):
    """The rows of one read or write of one stored array, by contender."""

    name: str
    key: tuple[Any, ...]
    selection: str
    rows: dict[str, Row]


def key_of(row: Row) -> tuple[Any, ...]:
    """Identify a stored array: codec, bytes of a chunk, layout, rows and columns."""
    return row["codec"], row["chunk_nbytes"], row["layout"], row["n"]


def cases_of(result: Result, table: str) -> list[Case]:
    """The cases of a table, in the order in which they were measured."""
    cases: dict[tuple[Any, ...], Case] = {}
    for row in result["rows"]:
        if row["table"] == table:
            key = (*key_of(row), row["selection"])
            name = ", ".join([row["codec"], size(row["chunk_nbytes"]), row["layout"]])
            name += "" if row["selection"] == "whole" else f", {row['selection']}"
            cases.setdefault(key, Case(name, key_of(row), row["selection"], {})).rows[row["contender"]] = row
    return list(cases.values())


def size(nbytes: int) -> str:
    """Format bytes for a table."""
    return f"{nbytes >> 20} MiB" if nbytes >= 1 << 20 else f"{nbytes >> 10} KiB"


def stages_of(result: Result) -> dict[tuple[Any, ...], Row]:
    """Stored array -> its row of *resident*."""
    return {key_of(row): row for row in result["rows"] if row["table"] == "resident"}


def fastest(rows: dict[str, Row], names: tuple[str, ...]) -> float | None:
    """Seconds of the fastest of some contenders; None if none was measured."""
    return min((rows[name]["seconds"] for name in names if name in rows), default=None)


def raw_GB_per_s(case: Case) -> float | None:  # noqa: N802 - the unit
    """GB/s decoded if reading the encoded bytes were all there is to do."""
    rates = [case.rows[name]["GB_per_s_encoded"] for name in RAW_READS if name in case.rows]
    own = case.rows.get("gzarr")
    return max(rates) * own["decoded_nbytes"] / own["encoded_nbytes"] if rates and own else None


def _resident(result: Result) -> Found:
    for case in cases_of(result, "resident"):
        row = case.rows["gzarr"]
        if row["bare_nvcomp_seconds"]:
            yield case.name, row["bare_nvcomp_seconds"] / row["seconds"]


def _placement(result: Result) -> Found:
    copy = result["ceilings"].get("device copy GB_per_s")
    for case in cases_of(result, "resident"):
        rate = case.rows["gzarr"]["placement_GB_per_s"]
        if rate and copy:
            yield case.name, rate / copy


def _file(result: Result) -> Found:
    stages = stages_of(result)
    for case in cases_of(result, "file"):
        bare = stages.get(case.key, {}).get("bare_nvcomp_GB_per_s")
        limits = [rate for rate in (raw_GB_per_s(case), bare) if rate]
        if case.selection == "whole" and "gzarr" in case.rows and raw_GB_per_s(case):
            yield case.name, case.rows["gzarr"]["GB_per_s"] / min(limits)


def _against(
    table: str, selections: tuple[str, ...], peers: tuple[str, ...], own: tuple[str, ...] = ("gzarr",)
) -> Callable[[Result], Found]:
    """Speed of gzarr over that of the fastest of some peers. own: names of gzarr's rows, of which the best counts."""

    def ratios(result: Result) -> Found:
        for case in cases_of(result, table):
            best, ours = fastest(case.rows, peers), fastest(case.rows, own)
            if case.selection in selections and best and ours:
                yield case.name, best / ours

    return ratios


def _memory(result: Result) -> Found:
    for row in result["rows"]:
        if row["table"] == "memory":
            yield f"{row['codec']}, {size(row['chunk_nbytes'])}", row["peak_nbytes"] / row["cap_nbytes"]


#: The defaults of users: the row `gzarr` decodes everything on the device.
_AS_USED = ("gzarr, small reads on the host",)
OWN = ("gzarr", *_AS_USED)
GOALS = (
    Goal("resident", "all stages / bare nvCOMP on the same streams", 0.8, _resident),
    Goal("resident", "placement kernel / device copy", 0.7, _placement),
    Goal("warm file", "whole read / slower of raw read and bare nvCOMP", 0.8, _file),
    Goal("warm file", "times the best CPU decoder plus upload", 3, _against("file", ("whole",), CPU_PEERS)),
    Goal("warm file", "times zarr-python in GPU mode", 10, _against("file", ("whole",), ("zarr-python, GPU mode",))),
    Goal("small reads", "times CPU decode plus upload", 1, _against("file", SMALL_READS, CPU_PEERS[:1], _AS_USED)),
    Goal("write", "times zarr-python from host memory", 5, _against("write", ("whole",), ZARR_WRITERS)),
    Goal("memory", "peak device bytes beyond the result / cap", 1, _memory, at_most=True),
)


def _failed(result: Result | None, goal: Goal) -> bool:
    """Whether gzarr failed or answered wrongly in a case of a goal."""
    table = {"warm file": "file", "small reads": "file"}.get(goal.table, goal.table)
    rows = [] if result is None else result["failed"]
    return any(row.get("contender", "gzarr") in OWN and row.get("table", table) == table for row in rows)


def goals_table(result: Result | None) -> str:
    """A table with a line for each goal. result: None if nothing was measured."""
    lines = [["table", "", "goal", "median", "worst case", "reached"], ["---"] * 6]
    for goal in GOALS:
        limit = f"{'<=' if goal.at_most else '>='} {goal.limit:g}"
        ratios = list(goal.ratios(result)) if result is not None else []
        cells = ["not measured"] * 3
        if ratios:
            worst = (max if goal.at_most else min)(ratios, key=lambda pair: pair[1])
            reached = worst[1] <= goal.limit if goal.at_most else worst[1] >= goal.limit
            reached = reached and not _failed(result, goal)
            median = statistics.median(ratio for _, ratio in ratios)
            cells = [f"{median:.2f}", f"{worst[1]:.2f} ({worst[0]})", "yes" if reached else "no"]
        lines.append([goal.table, goal.text, limit, *cells])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
