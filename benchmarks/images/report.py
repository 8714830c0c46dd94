"""Formats the result of a run as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.cpu.plot import figure
from benchmarks.cpu.report import digits
from benchmarks.images.cases import GOALS
from benchmarks.images.contestants import BARE, OWN
from benchmarks.loader.report import reached, table

START = "<!-- images: generated -->"
TITLES = {
    "pyramid": "Pyramids",
    "gaussian": "Gaussian filter, sigma 2",
    "project": "Projection: the maximum along z",
    "affine": "Affine transformation, order 1",
    "label": "Connected components",
    "segment": "Segmentation: smoothing, a threshold, numbers",
    "fuse": "Tiles fused into a scene",
    "halo": "Reading with halos of 8",
    "regions": "Random regions",
    "planes": "Random planes",
}


def document(result: Mapping[str, Any]) -> str:
    """All tables of a result."""
    works = list(dict.fromkeys(case["work"] for case in result["cases"].values()))
    parts = [about(result), *(costs(result, work) for work in works), goals(result), absences(result)]
    return "\n\n".join(part for part in parts if part)


def plot(result: Mapping[str, Any]) -> str:
    """A figure: gzarr beside the fastest other library, where an image is read and written."""
    rows = []
    for case in result["cases"].values():
        times = {n: r["wall_s"] for n, r in case["results"].items() if "wall_s" in r and n != BARE}
        peers = [n for n in times if n != OWN]
        if case["work"] in ("pyramid", "gaussian") and OWN in times and peers:
            rows.append((case["title"], {n: times[n] for n in (OWN, min(peers, key=times.__getitem__))}))
    words = "Pyramids (A to C) and Gaussian filters, beside the fastest other library"
    machine = f"{result['machine']['cpu']}, {result['machine']['cores']} cores; {result['machine']['date']}"
    return figure("Time of large images; shorter is better", words, rows, machine, "s")


def about(result: Mapping[str, Any]) -> str:
    """Versions and machine."""
    replies = [(n, r) for case in result["cases"].values() for n, r in case["results"].items()]
    versions = {name: reply["version"] for name, reply in replies if reply.get("version") and name != BARE}
    where = result["machine"]
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    machine = f"{where['cpu']}, {where['cores']} cores, {where['system']}, {where['date']}"
    load = f"load {where['load_at_start']} at the start and {where['load_at_end']} at the end"
    remark = f" {result['remark']}" if "remark" in result else ""
    return f"{names}. {machine}, {load}. The run took {result['seconds'] / 60:.0f} minutes.{remark}"


def costs(result: Mapping[str, Any], work: str) -> str:
    """What every contestant took."""
    box = work in {"regions", "planes"}
    rows = []
    for case in result["cases"].values():
        for each, reply in case["results"].items() if case["work"] == work else ():
            if "wall_s" not in reply:
                continue
            scale = 1e3 if box else 1.0
            cells = [digits(reply["wall_s"] * scale), digits(reply["cpu_s"] * scale)]
            cells += [] if box else [digits(reply["peak_bytes"] / 1e6)]
            what = reply.get("wrong") or reply.get("values", "")
            rows.append([case["title"], each, *cells, len(reply["runs"]), what])
    heads = ["case", "of", *(["ms", "CPU ms"] if box else ["s", "CPU s", "peak MB"]), "runs", "values"]
    return table(TITLES[work], heads, rows)


def goals(result: Mapping[str, Any]) -> str:
    """What gzarr is to reach, and what it reached. Goals that are missed are bold."""
    rows = []
    for name, case in result["cases"].items():
        own, goal = case["results"].get(OWN, {}), GOALS[case["work"]]
        if "wall_s" not in own:
            continue
        over = {f"{key}_over_best": over_best(case, f"{key}_s") for key in ("wall", "cpu")}
        bare = case["results"].get(BARE, {})
        over["cpu_over_bare"] = own["cpu_s"] / bare["cpu_s"] if "cpu_s" in bare else None
        cells = [reached(over[key], goal.get(key)) for key in over]
        peak = own.get("peak_bytes")
        most = goal.get("peak_bytes")
        cells.append(reached(peak / 1e6 if peak else None, most / 1e6 if most else None))
        rows.append([name, *cells])
    heads = ["case", "time / best peer", "CPU / best peer", "CPU / bare work", "peak memory (MB)"]
    return table("Reached (goal)", heads, rows)


def over_best(case: Mapping[str, Any], key: str) -> float | None:
    """What gzarr took over the least that a peer took; None if either is absent."""
    peers = [r[key] for n, r in case["results"].items() if n not in {OWN, BARE} and key in r]
    own = case["results"].get(OWN, {})
    return float(own[key] / min(peers)) if peers and key in own else None


def absences(result: Mapping[str, Any]) -> str:
    """The contestants that are missing from cases, and why."""
    reasons: dict[str, list[str]] = {}
    for name, case in result["cases"].items():
        for each, reply in case["results"].items():
            if why := reply.get("absent") or reply.get("failed"):
                reasons.setdefault(f"{each}: {why}", []).append(name)
    lines = [f"- {why} ({', '.join(names)})" for why, names in reasons.items()]
    return "\n".join(["### Not measured", "", *lines]) if lines else ""
