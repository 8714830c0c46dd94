"""Formats the result of a run as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.cpu.libraries import PIPELINES, PLUGIN, REFERENCES
from benchmarks.cpu.measure import mean_ratio, ratio

START, END = "<!-- cpu: generated -->", "<!-- end -->"
TITLES = {"reads": "Reads", "hierarchies": "Opening and listing", "writes": "Writes", "remote": "A store 20 ms away"}
TITLES |= {"codecs": "Gzip, zlib and filters, in Zarr v2"}
TITLES |= {"s3": "An object store: S3, 20 ms to the first byte, 50 MB/s a connection"}


def document(result: Mapping[str, Any]) -> str:
    """All tables of a result."""
    names = list(result["libraries"])
    parts = [about(result)]
    direct = [name for name in names if name != PLUGIN]
    for section, title in TITLES.items():
        rows = {n: w["results"] for n, w in result["workloads"].items() if w["section"] == section}
        parts.append(table(f"{title} (ms)", direct, rows, times_text, ratio_text))
    counted = {n: w["results"] for n, w in result["workloads"].items() if w["section"] == "s3"}
    parts.append(table("Requests to the object store, most at once, and megabytes", direct, counted, counts_text))
    parts.append(through(result))
    parts.append(
        table("Chunks touched, none of them stored (microseconds a chunk)", direct, result["chunks"], cost_text)
    )
    parts.append(table("One 16 KiB chunk out of arrays of other sizes (ms)", direct, result["sizes"], times_text))
    parts.append(table("Peak memory beyond the output (MB)", direct, result["memory"], memory_text))
    parts.append(absences(result))
    return "\n\n".join(part for part in parts if part)


def through(result: Mapping[str, Any]) -> str:
    """The pipelines of zarr-python, on the rows that gzarr's took part in."""
    rows = {n: w["results"] for n, w in result["workloads"].items() if "median_s" in w["results"].get(PLUGIN, {})}

    def last(replies: Mapping[str, Any]) -> str:
        return ratio_text({name: reply for name, reply in replies.items() if name in (PLUGIN, *PIPELINES)}, PLUGIN)

    names = [name for name in (PLUGIN, *PIPELINES, "gzarr") if name in result["libraries"]]
    heads = {PLUGIN: "gzarr's pipeline", "zarr": "zarr's default", "zarr fused": "zarr's fused", "zarrs": "zarrs'"}
    heads["gzarr"] = "gzarr without zarr-python"
    ratio_head = "best other pipeline / gzarr's"
    return table("Through zarr-python (ms)", names, rows, times_text, last, heads=heads, ratio_head=ratio_head)


def about(result: Mapping[str, Any]) -> str:
    """Versions, machine and the geometric mean."""
    versions = [f"{name} {a['version']}" for name, a in result["libraries"].items() if "version" in a]
    pythons = sorted({a["python"] for a in result["libraries"].values() if "python" in a})
    where = result["machine"]
    mean = mean_ratio(result)
    lines = [f"{', '.join(versions)}; Python {' and '.join(pythons)}; {where['cpu']}, {where['cores']} cores, "]
    lines[0] += f"{where['system']}, {where['date']}, load {where['load_at_start']} at the start"
    lines[0] += f" and {where['load_at_end'] or 'not recorded'} at the end. Medians of {result['rounds']} rounds"
    lines[0] += f" in {result['runs']} runs." if result.get("runs", 1) > 1 else "."
    if "written" in result:
        lines[0] += f" Writes went to {result['written']}."
    if mean:
        lines.append(f"**Best peer / gzarr, geometric mean of all workloads: {mean:.2f}.**")
    return "\n\n".join(lines)


def table(
    title: str,
    names: list[str],
    rows: Mapping[str, Mapping[str, Any]],
    cell: Callable[[str, Mapping[str, Any]], str],
    last: Callable[[Mapping[str, Any]], str] | None = None,
    *,
    heads: Mapping[str, str] | None = None,
    ratio_head: str = "best peer / gzarr",
) -> str:
    """One table; empty if there are no rows."""
    if not rows:
        return ""
    titles = [(heads or {}).get(name, name + (" (reference)" if name in REFERENCES else "")) for name in names]
    lines = []
    for label, replies in rows.items():
        cells = [cell(label, replies[n]) if n in replies else "" for n in names]
        lines.append([label, *cells, *([last(replies)] if last else [])])
    heads = ["workload", *titles, *([ratio_head] if last else [])]
    return "\n".join([f"### {title}", "", grid(heads, lines)])


def grid(heads: list[str], lines: list[list[str]]) -> str:
    """A table of Markdown, with numbers to the right of its first column."""
    every = [heads, ["---", *["---:"] * (len(heads) - 1)], *lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in every)


def times_text(_: str, reply: Mapping[str, Any]) -> str:
    """A median in milliseconds."""
    return digits(reply["median_s"] * 1e3) if "median_s" in reply else ""


def cost_text(label: str, reply: Mapping[str, Any]) -> str:
    """Microseconds for one of the chunks."""
    chunks = int(label.split(maxsplit=1)[0].replace(",", ""))
    return digits(reply["median_s"] / chunks * 1e6) if "median_s" in reply else ""


def counts_text(_: str, reply: Mapping[str, Any]) -> str:
    """Requests by method, how many were under way at once, and megabytes in bodies, both ways together."""
    counts = dict(reply.get("counts", {}))
    if not counts:
        return ""
    nbytes = counts.pop("bytes_sent", 0) + counts.pop("bytes_received", 0)
    most = counts.pop("most_at_once", 0)
    requests = ", ".join(f"{n} {method}" for method, n in sorted(counts.items()))
    return f"{requests}; {most} at once; {digits(nbytes / 1e6)} MB"


def memory_text(_: str, reply: Mapping[str, Any]) -> str:
    """Megabytes."""
    return digits(reply["over_output_bytes"] / 1e6) if "over_output_bytes" in reply else ""


def ratio_text(replies: Mapping[str, Any], own: str = "gzarr") -> str:
    """Speed of gzarr over that of the best peer; bold if gzarr is slower."""
    value = ratio(replies, own)
    if value is None:
        return ""
    return f"{value:.2f}" if value >= 1 else f"**{value:.2f}**"


def digits(value: float) -> str:
    """Three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def absences(result: Mapping[str, Any]) -> str:
    """The libraries that are missing from rows, and why."""
    reasons: dict[str, list[str]] = {}
    tables = {n: w["results"] for n, w in result["workloads"].items()}
    for label, replies in {**tables, **result["chunks"], **result["sizes"]}.items():
        for name, reply in replies.items():
            why = reply.get("absent") or reply.get("failed") or reply.get("wrong")
            if why:
                reasons.setdefault(f"{name}: {why}", []).append(label)
    lines = []
    for why, labels in reasons.items():
        where = "all" if len(labels) >= len(tables) else ", ".join(labels)
        lines.append(f"- {why} ({where})")
    return "\n".join(["### Not measured", "", *lines]) if lines else ""


def insert(path: Path, text: str, start: str = START) -> None:
    """Put the tables between the markers of a Markdown file. Raises: ValueError if it has no markers."""
    before, found, rest = path.read_text().partition(start)
    _, end, after = rest.partition(END)
    if not (found and end):
        raise ValueError(f"{path} has no lines {start!r} and {END!r} to put the tables between")
    path.write_text(f"{before}{start}\n{text}\n{END}{after}")


def inserted(path: Path) -> str:
    """The tables that a Markdown file holds."""
    return path.read_text().partition(START)[2].partition(END)[0].strip()
