"""Formats the result of a run as Markdown tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.cpu.plot import figure
from benchmarks.cpu.report import digits
from benchmarks.loader.cases import CASES, FIRST_GOAL

START = "<!-- loader: generated -->"
OWN = "gzarr"


def document(result: Mapping[str, Any]) -> str:
    """All tables of a result."""
    parts = [about(result), speeds(result), costs(result), goals(result), remote(result), absences(result)]
    return "\n\n".join(part for part in parts if part)


def plot(result: Mapping[str, Any]) -> str:
    """A figure: gzarr beside the fastest other loader and the fastest one of PyTorch."""
    rows = []
    for name, case in result["cases"].items():
        rates = {n: r["samples_per_s"] for n, r in case["results"].items() if "samples_per_s" in r}
        torch = max((n for n in rates if n.startswith("torch")), key=rates.__getitem__, default=OWN)
        shown = dict.fromkeys((OWN, best_peer(case) or OWN, torch))
        named = {"torch DataLoader" if n == torch else n: 1e4 / rates[n] for n in shown}
        rows.append((CASES[name].title.capitalize(), named))
    words = "Beside the fastest other loader, and the fastest setting of torch's DataLoader"
    machine = f"{result['machine']['cpu']}, {result['machine']['cores']} cores; {result['machine']['date']}"
    return figure("Time of 10,000 samples; shorter is better", words, rows, machine, "s")


def about(result: Mapping[str, Any]) -> str:
    """Versions and machine."""
    versions = {
        n: r["version"] for case in result["cases"].values() for n, r in case["results"].items() if "version" in r
    }
    where = result["machine"]
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    machine = f"{where['cpu']}, {where['cores']} cores, {where['system']}, {where['date']}"
    load = f"load {where['load_at_start']} at the start and {where['load_at_end']} at the end"
    return f"{names}. {machine}, {load}. Medians of {result['rounds']} rounds; the slow ones take part in two."


def speeds(result: Mapping[str, Any]) -> str:
    """Samples a second of every contestant."""
    names = contestants(result)
    rows = []
    for name, case in result["cases"].items():
        cells = [rate(case["results"].get(each, {})) for each in names]
        rows.append([title(name, case), *cells, times(over_best(case))])
    return table("Samples a second", ["case", *names, "gzarr / best peer"], rows)


def costs(result: Mapping[str, Any]) -> str:
    """What the samples cost gzarr and the best peer."""
    heads = ["case", "of", "CPU / bare work", "CPU / bare decode", "bytes read / stored", "decodes a chunk"]
    heads += ["first batch / bare read"]
    rows = []
    for name, case in result["cases"].items():
        for each in (OWN, best_peer(case)):
            reply = case["results"].get(each or "", {})
            if "samples_per_s" in reply:
                cells = [reply["cpu_over_bare"], reply["cpu_over_decode"], reply["read_over_stored"]]
                cells += [reply.get("decodes"), first(case, reply)]
                rows.append([name, each, *map(times, cells), memory(case, reply)])
    return table("Costs of an epoch, beside the best peer", [*heads, "peak memory, and what was given (MB)"], rows)


def goals(result: Mapping[str, Any]) -> str:
    """What gzarr is to reach, and what it reached. Goals that are missed are bold."""
    rows = []
    for name, case in result["cases"].items():
        own, goal = case["results"].get(OWN, {}), CASES[name].goal
        if "samples_per_s" not in own:
            continue
        batch, cap = case["batch_bytes"] / 1e6, case["memory"] / 1e6
        pairs = [
            reached(over_best(case), goal.speed, at_least=True),
            reached(own["cpu_over_bare"], goal.cpu),
            reached(own.get("decodes"), goal.decodes),
            reached(first(case, own), FIRST_GOAL),
            reached(own["peak_bytes"] / 1e6, cap + 3 * batch),
        ]
        rows.append([name, *pairs])
    heads = ["case", "speed / best peer", "CPU / bare work", "decodes a chunk", "first batch", "peak memory (MB)"]
    return table("Reached (goal)", heads, rows)


def remote(result: Mapping[str, Any]) -> str:
    """The store that is far away."""
    if not result.get("remote"):
        return ""
    rows = []
    for name, case in result["remote"]["cases"].items():
        for each, reply in case["results"].items():
            if "bytes_per_s" in reply:
                speed = f"{reply['samples_per_s']:,.0f}" if "samples_per_s" in reply else ""
                rows.append([name, each, speed, digits(reply["bytes_per_s"] / 1e6), times(reply.get("share"))])
    delay, bandwidth = result["remote"]["delay_s"] * 1e3, result["remote"]["bytes_per_s"] / 1e6
    heads = ["case", "reader", "samples/s", "MB/s", "of bare reading"]
    return table(f"A store {delay:.0f} ms away over a line of {bandwidth:.0f} MB/s", heads, rows)


def absences(result: Mapping[str, Any]) -> str:
    """The contestants that are missing from cases, and why."""
    reasons: dict[str, list[str]] = {}
    far = result.get("remote", {}).get("cases", {})
    every = [*result["cases"].items(), *((f"{name}, far away", case) for name, case in far.items())]
    for name, case in every:
        for each, reply in case["results"].items():
            if why := reply.get("absent") or reply.get("failed") or reply.get("wrong"):
                reasons.setdefault(f"{each}: {why}", []).append(name)
    lines = [f"- {why} ({', '.join(names)})" for why, names in reasons.items()]
    return "\n".join(["### Not measured", "", *lines]) if lines else ""


def contestants(result: Mapping[str, Any]) -> list[str]:
    """The names of all contestants."""
    return list(dict.fromkeys(name for case in result["cases"].values() for name in case["results"]))


def best_peer(case: Mapping[str, Any]) -> str | None:
    """The fastest contestant but gzarr; None without any."""
    rates = {n: r["samples_per_s"] for n, r in case["results"].items() if "samples_per_s" in r and n != OWN}
    return max(rates, key=rates.__getitem__, default=None)


def over_best(case: Mapping[str, Any]) -> float | None:
    """Rate of gzarr over that of the best peer; None if either is absent."""
    own, best = case["results"].get(OWN, {}), best_peer(case)
    if best is None or "samples_per_s" not in own:
        return None
    return float(own["samples_per_s"] / case["results"][best]["samples_per_s"])


def first(case: Mapping[str, Any], reply: Mapping[str, Any]) -> float | None:
    """Time of the first batch over that of a bare read of it."""
    return float(reply["first_s"] / case["first_bare_s"]) if "first_s" in reply else None


def memory(case: Mapping[str, Any], reply: Mapping[str, Any]) -> str:
    """The peak, and the memory that was given. A peak without workers says nothing and is left out."""
    peak = digits(reply["peak_bytes"] / 1e6) if reply.get("peak_bytes") else "-"
    return f"{peak} of {digits(case['memory'] / 1e6)}"


def title(name: str, case: Mapping[str, Any]) -> str:
    """A case in words."""
    return f"{name}: {case['n']:,} samples, {CASES[name].title}"


def rate(reply: Mapping[str, Any]) -> str:
    """Samples a second."""
    return f"{reply['samples_per_s']:,.0f}" if "samples_per_s" in reply else ""


def times(value: float | None) -> str:
    """A ratio."""
    return "" if value is None else f"{value:.2f}"


def reached(value: float | None, goal: float | None, *, at_least: bool = False) -> str:
    """A value beside its goal; bold if it is missed."""
    if value is None or goal is None:
        return digits(value) if value is not None else ""
    text = f"{digits(value)} ({'at least' if at_least else 'at most'} {digits(goal)})"
    return text if (value >= goal if at_least else value <= goal) else f"**{text}**"


def table(heading: str, heads: list[str], rows: list[list[Any]]) -> str:
    """One table; empty if there are no rows."""
    if not rows:
        return ""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join([f"### {heading}", "", *("| " + " | ".join(map(str, line)) + " |" for line in lines)])
