"""The loaders on a store that is far away, beside reading its objects with nothing done to them."""

from __future__ import annotations

import asyncio
import statistics
import time
import urllib.request
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from benchmarks.cpu.measure import serving
from benchmarks.cpu.race import Runner
from benchmarks.loader.bare import objects
from benchmarks.loader.cases import CASES
from benchmarks.loader.data import Cache, datasets
from benchmarks.loader.race import running

DELAY_S = 0.02
BYTES_PER_S = 200e6
AT_ONCE = 64  # requests of the bare reading
ABLE = ("gzarr", "tensorstore", "tensorstore futures", "insitubatch")  # of the contestants, those that read HTTP
CASE_NAMES = ("A", "Cb")


def measure(contestants: Mapping[str, str], cache: Cache, rounds: int) -> dict[str, Any]:
    """Time epochs of those that can. Returns: for each case, rates, and bytes/s over those of bare reading."""
    able = {name: where for name, where in contestants.items() if name in ABLE}
    result: dict[str, Any] = {"delay_s": DELAY_S, "bytes_per_s": BYTES_PER_S, "cases": {}}
    for name in CASE_NAMES:
        case = CASES[name]
        data = datasets(cache.scale)[case.dataset]
        cache.make(data)
        root = cache.path(data.name)
        keys = [path.relative_to(root.parent).as_posix() for path in objects(data, root)]
        with served(root) as url, running(able, name, cache, f"{url}/{data.name}") as runners:
            result["cases"][name] = {"results": race(runners, url, keys, rounds)}
    return result


def race(runners: list[Runner], url: str, keys: list[str], rounds: int) -> dict[str, Any]:
    """Take turns with the bare reading."""
    results: dict[str, dict[str, Any]] = {runner.library: runner.ask("hello") for runner in runners}
    racing = [runner for runner in runners if "version" in results[runner.library]]
    each: dict[str, list[dict[str, float]]] = {runner.library: [] for runner in racing}
    bare: list[float] = []
    for number in range(rounds + 1):  # the first warms up
        start, before = time.perf_counter(), bytes_served(url)
        asyncio.run(read_all(url, keys))
        bare.append((bytes_served(url) - before) / (time.perf_counter() - start))
        for runner in racing:
            before = bytes_served(url)
            reply = runner.ask("epoch", number=number, limit_s=60.0)
            if "samples" not in reply:
                results[runner.library] = reply
                continue
            rate = (bytes_served(url) - before) / reply["seconds"]
            each[runner.library].append({"bytes_per_s": rate, "samples_per_s": reply["samples"] / reply["seconds"]})
    for name, replies in each.items():
        if replies:
            medians = {key: statistics.median(reply[key] for reply in replies[1:] or replies) for key in replies[0]}
            results[name] |= medians | {"share": medians["bytes_per_s"] / statistics.median(bare[1:] or bare)}
    return {"bare": {"bytes_per_s": statistics.median(bare[1:] or bare)}, **results}


async def read_all(url: str, keys: list[str]) -> None:
    """Read every object, as many at once as use up the line."""
    import obstore
    from obstore.store import HTTPStore

    store, turn = HTTPStore.from_url(url, client_options={"allow_http": True}), asyncio.Semaphore(AT_ONCE)

    async def read(key: str) -> None:
        async with turn:
            await (await obstore.get_async(store, key)).bytes_async()

    await asyncio.gather(*map(read, keys))


def bytes_served(url: str) -> int:
    """What the server has sent so far."""
    with urllib.request.urlopen(url + "/.served") as answer:
        return int(answer.read())


def served(root: Path) -> AbstractContextManager[str]:
    """Serve an array over the slow line. Returns: a context that gives the URL of its group."""
    return serving("benchmarks.loader.server", root.parent, root.name, DELAY_S, BYTES_PER_S)
