"""Epochs of a loader that is killed and goes on from the state that it saved last, with any number of ranks.

Elements of the array are numbered in C order, so a batch tells by itself which samples it has, and if they are whole.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture.children import apart, found, killed, shared
from benchmarks.torture.libraries import Gzarr, Layout, import_ahead
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds
from benchmarks.torture.stores import Place

STOPS = 3  # of an epoch, at most
MOST_STEPS = 8  # until a stop
TYPICAL_S = (0.003, 0.02, 0.1)  # until a kill
BATCH = 12  # epochs of one process that is not killed


def epochs(setting: Setting) -> Counts:
    """Every sample comes once, whole, however often the epoch was stopped and whoever went on with it."""
    library, total = Gzarr(), Counts()
    import_ahead("gzarr.loader", "gzarr.gpu")
    for number, _ in rounds(setting):
        if number % 3 == 0:
            total += _epoch(library, setting, [setting.seed, number], kills=True)
        else:
            total += found(apart(_batch, library, setting, number))
    return total


def _batch(library: Gzarr, setting: Setting, number: int) -> Any:
    seeds = [[setting.seed, number, n] for n in range(BATCH)]
    return sum((_epoch(library, setting, seed, kills=False) for seed in seeds), Counts()).to_json()


def _epoch(library: Gzarr, setting: Setting, seed: list[int], *, kills: bool) -> Counts:
    """One epoch. kills: whether processes that take it are killed, or stop by themselves in this process."""
    rng = np.random.default_rng(seed)
    place = Place(setting.store, setting.folder, "-".join(map(str, seed)))
    layout, options, corners, box = drawn(rng)
    saved, begun, counts, worlds = setting.folder / f"{place.name}.json", shared(1), Counts(), []
    saved.write_text(json.dumps({"state": None, "ids": [], "corners": [], "ended": False}))
    if kills:
        counts += apart(_create, library, place, layout).counts()
    else:
        _create(library, place, layout)
    for stop in range(STOPS + 1):
        worlds.append(int(rng.integers(1, 4)))
        work = (_run, library, place, options, box, worlds[-1], saved)
        after_s, steps = float(rng.exponential(rng.choice(TYPICAL_S))), int(rng.integers(MOST_STEPS))
        if not kills:
            counts += Counts.from_json(work[0](*work[1:], begun, steps if stop < STOPS else None))
        elif stop < STOPS:
            outcome = killed(*work, begun, None, begun=begun, after_s=after_s)
            counts += found(outcome) if outcome.status != "killed" else Counts()
        else:
            counts += found(apart(*work, begun, None))
        kept = json.loads(saved.read_text())
        if kept["ended"] or counts.losses:
            break
    wrong = "" if counts.losses else compare(kept, corners, options, worlds)
    counts += Counts(operations=1, wrong=int(bool(wrong)), notes=(wrong,) if wrong else ())
    place.remove()
    return counts + Counts(notes=(f"seed {seed}, {layout}, {options}, ranks {worlds}",) if counts.losses else ())


def drawn(rng: np.random.Generator) -> tuple[Layout, dict[str, Any], Any, tuple[int, ...]]:
    """An array and samples of it: layout, options of the loader, first elements of all samples, shape of a sample.

    For random crops, instead of their first elements, how many there are.
    """
    shape = (int(rng.integers(5, 120)), int(rng.integers(1, 9)), int(rng.integers(1, 9)))
    chunks = tuple(int(rng.integers(1, n + 1)) for n in shape)
    shards = tuple(n * int(rng.integers(1, 4)) for n in chunks) if rng.integers(2) else None
    kind, batch = str(rng.choice(["rows", "window", "tiles", "crops"])), int(rng.integers(1, 17))
    ids, size = np.arange(np.prod(shape)).reshape(shape), tuple(int(rng.integers(1, min(n, 8) + 1)) for n in shape)
    shuffle = [False, "exact", *(["blocks"] if kind != "crops" else [])][rng.integers(2 + (kind != "crops"))]
    options: dict[str, Any] = {"batch_size": batch, "shuffle": shuffle, "drop_last": bool(rng.integers(2))}
    options |= {"seed": int(rng.integers(100)), "block_chunks": int(rng.integers(1, 5)), "epoch": int(rng.integers(3))}
    options |= {"device": ["cpu", "emulated"][rng.integers(2)], "kind": kind, "size": size}
    box = (size[0], *shape[1:]) if kind == "window" else shape[1:] if kind == "rows" else size
    options["memory"] = int(batch * (np.prod(box) * 8 + 128) * rng.choice([1, 4, 1000]))
    if kind == "rows":
        starts: Any = [range(shape[0])]
    elif kind == "window":
        options["ends"] = sorted({*rng.integers(size[0], shape[0] + 1, 3).tolist()})
        options["stride"] = (int(rng.integers(1, 4)),)
        spans = zip([0, *options["ends"]], options["ends"], strict=False)
        starts = [[a for low, high in spans for a in range(low, high - size[0] + 1, options["stride"][0])]]
    elif kind == "tiles":
        options["stride"] = tuple(int(rng.integers(1, n + 1)) for n in size)
        along = zip(shape, size, options["stride"], strict=True)
        starts = [sorted({*range(0, n - s + 1, step), n - s}) for n, s, step in along]
    else:
        options["n"] = int(rng.integers(1, 200))
        options["drop_last"] &= options["n"] > 4 * batch
        return Layout(shape, chunks, shards), options, options["n"], box
    corners = [int(ids[(*corner, *[0] * (3 - len(corner)))]) for corner in itertools.product(*starts)]
    options["drop_last"] &= len(corners) > 4 * batch  # a step of all ranks must be possible
    return Layout(shape, chunks, shards), options, corners, box


def _create(library: Gzarr, place: Place, layout: Layout) -> None:
    array = library.create(place, "a", layout)
    array[...] = np.arange(np.prod(layout.shape)).reshape(layout.shape)


def _loader(library: Gzarr, place: Place, options: dict[str, Any], rank: int, world: int) -> Any:
    gzarr, kind, size = library.lib, options["kind"], options["size"]
    how = {name: options[name] for name in ("batch_size", "shuffle", "drop_last", "seed", "block_chunks", "memory")}
    if kind == "window":
        how["window"] = gzarr.Window(size[0], ends=options["ends"], stride=options["stride"][0])
    elif kind != "rows":
        how["crops"] = gzarr.Crops(size, n=options.get("n"), stride=options.get("stride"))
    array = library.open(place, "a", read_only=True)
    return gzarr.Loader(array, **how, rank=rank, world_size=world, device=options["device"])


def _run(
    library: Gzarr,
    place: Place,
    options: dict[str, Any],
    box: tuple[int, ...],
    world: int,
    saved: Path,
    begun: Any,
    steps: int | None,
) -> Any:
    """Take steps of all ranks in turn, and save the state after each, with what the epoch has given so far."""
    kept = json.loads(saved.read_text())
    loaders = [_loader(library, place, options, rank, world) for rank in range(world)]
    for loader in loaders:
        loader.set_epoch(options["epoch"])
        if kept["state"] is not None:
            loader.load_state_dict(kept["state"])
    running, counts = [iter(loader) for loader in loaders], Counts()
    shape = library.open(place, "a", read_only=True).shape
    ids = np.arange(np.prod(shape)).reshape(shape)
    offsets = ids[(0,) * (3 - len(box)) + tuple(slice(n) for n in box)]
    for step in itertools.count():
        if step == steps:
            break
        batches = [next(each, None) for each in running]
        if any((batch is None) != (batches[0] is None) for batch in batches):
            return Counts(wrong=1, notes=(f"ranks differ in their number of steps: {options}, {world}",)).to_json()
        if batches[0] is None:
            kept["ended"] = True
            break
        for loader, batch in zip(loaders, batches, strict=True):
            values = np.asarray(batch.get() if hasattr(batch, "get") else batch)
            corners = values.reshape(len(values), -1)[:, 0]
            right = np.array_equal(values, corners.reshape(-1, *[1] * len(box)) + offsets)
            counts += Counts(wrong=int(not right), notes=() if right else (f"a batch of {options} is {values[:1]}",))
            kept["corners"] += corners.tolist()
            kept["ids"] += loader.batch_ids(step).tolist()
        states = [loader.state_dict() for loader in loaders]
        if any(state != states[0] for state in states):
            counts += Counts(wrong=1, notes=(f"states of ranks differ: {states}",))
        kept["state"] = states[0]
        _save(saved, kept)
        begun[0] += 1
    _save(saved, kept)
    for loader in loaders:
        loader.close()
    return counts.to_json()


def _save(path: Path, kept: Any) -> None:
    path.with_suffix(".new").write_text(json.dumps(kept))
    path.with_suffix(".new").replace(path)


def compare(kept: Any, corners: Any, options: dict[str, Any], worlds: list[int]) -> str:
    """What is wrong with an epoch: samples that it lacks, or that came more often than ranks of equal length need."""
    n = corners if isinstance(corners, int) else len(corners)
    seen = Counter(kept["ids"])
    missing, again = n - len(seen), sum(seen.values()) - len(seen)
    most_missing = worlds[-1] * options["batch_size"] - 1 if options["drop_last"] else 0
    most_again = 0 if options["drop_last"] else sum(world - 1 for world in worlds)
    if not set(seen) <= set(range(n)) or missing > most_missing or again > most_again:
        return f"of {n} samples {missing} are missing, {again} came again"
    if isinstance(corners, int):
        return ""
    found_ = Counter(kept["corners"])
    right = not set(found_) - set(corners) and len(found_) == len(seen) and found_.total() == seen.total()
    return "" if right else f"samples that are none: {sorted(set(found_) - set(corners))[:5]}"


SCENARIOS = (Scenario("epochs", "loaders are killed and go on with other ranks", epochs, ("local", "s3"), weight=8.0),)
