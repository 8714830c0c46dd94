"""What a loader saves to go on later: a few plain values, and what tells its data from others.

Progress is the number of the epoch and what was taken of it (`gzarr.loader.ranks.History`); everything else in the
state is there to refuse states of other data, other samples or another order, which would give samples twice or never.
"""

import json
from collections.abc import Mapping
from operator import index
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from gzarr.hierarchy.array import Array
from gzarr.identity.inputs import describe_input, place_of, sampled_contents
from gzarr.indexing.grid import is_regular
from gzarr.indexing.selection import Indices
from gzarr.loader.arrays import JoinedArrays
from gzarr.loader.order import Order
from gzarr.loader.ragged import Ragged
from gzarr.loader.ranks import History, RankShare
from gzarr.loader.stats import Meter
from gzarr.tensors import to_host

VERSION = 1
#: Of joined arrays, so many are told from others by their contents, too.
CONTENTS = 32
#: Of so many rows, and of so many elements of each, is the checksum of rows.
SAMPLED_ROWS = 16


class Begun(NamedTuple):
    """An iteration that was begun.

    Attributes
    ----------
    epoch : int
        Number of the epoch.
    order : Order
        Of all its positions.
    share : RankShare
        What this rank takes of them.
    meter : Meter
        Counts what happens.
    stream, to_stream : object
        The streams of the caller on the device of the loader, and on that which batches are uploaded to.
    """

    epoch: int
    order: Order
    share: RankShare
    meter: Meter
    stream: object = None
    to_stream: object = None


class LoaderProgress(NamedTuple):
    """How far a loader has come.

    Attributes
    ----------
    epoch, seed : int
        What the order depends on.
    history : tuple
        What was taken of the epoch: `gzarr.loader.ranks.History`.
    """

    epoch: int
    seed: int
    history: History


def fingerprint(array: Array | JoinedArrays | Ragged | np.ndarray[Any, Any]) -> str:
    """What tells an array from others: type, shape, chunks, codecs, and a digest of a sample of its contents.

    Where it is and when it was written do not matter: a copy of a data set serves as well.
    """
    if isinstance(array, Ragged):
        return f"{fingerprint(array.values)}, {len(array)} samples {crc32(array.offsets.astype('<i8').tobytes()):08x}"
    if isinstance(array, JoinedArrays):
        n = len(array.arrays)
        each = [f"{one.shape} {one.chunks} {one.shards}" for one in array.arrays]
        each += [fingerprint(array.arrays[number * n // min(n, CONTENTS)]) for number in range(min(n, CONTENTS))]
        return f"{array.dtype} {n} arrays of {array.shape[0]} rows, {crc32(repr(each).encode()):08x}"
    told = f"{array.dtype} {tuple(array.shape)}"
    if isinstance(array, Array):
        codecs = json.dumps([codec.to_json() for codec in array.codecs], sort_keys=True)
        told += f", chunks {array.chunks}, codecs {crc32(codecs.encode()):08x}"
        if not is_regular(array.metadata.grid):
            told += f", grid {crc32(repr(array.chunk_sizes).encode()):08x}"
    return f"{told}, contents {sampled_contents(array)}"


def places_of(array: Array | JoinedArrays | Ragged) -> str:
    """What tells an array from all others that are there now: where it is; in memory, all of its contents."""
    if isinstance(array, Ragged):
        return places_of(array.values)
    if isinstance(array, JoinedArrays):
        return f"{crc32(repr([places_of(one) for one in array.arrays]).encode()):08x}"
    versions = array.store.versions
    if versions is not None and versions.in_memory:
        return repr(describe_input(array, most=1 << 62).said)
    return place_of(array)


def checksum_of_rows(array: Array, rows: Indices) -> int:
    """What tells an array from others that were written, too: of elements in the middle of some of these rows."""
    rows = rows[:: max(len(rows) // SAMPLED_ROWS, 1)]
    middle = [slice(n // 2, n // 2 + 1) for n in array.shape[1:-1]]
    middle += [slice(n // 2, n // 2 + SAMPLED_ROWS) for n in array.shape[1:][-1:]]
    return crc32(repr(to_host(array.oindex[rows, *middle]).tolist()).encode()) if len(rows) else 0


def write_state(progress: LoaderProgress, identity: Mapping[str, Any]) -> dict[str, Any]:
    """A state: progress, and what it is the progress of.

    identity: ``{"arrays": {name: fingerprint}, "samples": Samples.describe(), "shuffle": ..., ...}``, JSON values.
    """
    taken = [list(pair) for pair in progress.history]
    return {"version": VERSION, "epoch": progress.epoch, "seed": progress.seed, "taken": taken, **identity}


def read_state(state: Mapping[str, Any], identity: Mapping[str, Any]) -> LoaderProgress:
    """The progress that a state tells, if it is that of a loader like this one."""
    if not isinstance(state, Mapping) or not {"version", "epoch", "seed", "taken"} <= set(state):
        raise ValueError(f"a state of a loader is what its state_dict() gave, got {state!r:.200}")
    if state["version"] != VERSION:
        raise ValueError(f"the state has version {state['version']}, but this gzarr reads {VERSION}")
    found = differences({key: state.get(key) for key in identity}, identity)
    if found:
        raise ValueError(
            "the state is of another loader: "
            + "; ".join(f"{name} was {was!r}, is {now!r}" for name, was, now in found)
            + ". Build the loader as it was, or begin the epoch anew"
        )
    try:
        history = tuple([(_whole(ranks), _whole(taken)) for ranks, taken in state["taken"]])
        progress = LoaderProgress(_whole(state["epoch"]), _whole(state["seed"]), history)
        possible = min(progress.epoch, *[min(ranks - 1, taken) for ranks, taken in history], 0) == 0
    except (TypeError, ValueError):
        possible = False
    if not possible:
        place = {name: state[name] for name in ("epoch", "seed", "taken")}
        raise ValueError(f"the state tells of an impossible place: {place}; use another one")
    return progress


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("a boolean is no number of a state")
    return index(value)


def differences(was: Any, now: Any, name: str = "") -> list[tuple[str, Any, Any]]:
    """What differs between two values as JSON keeps them, by name."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        names = [key for key in {**was, **now} if was.get(key) != now.get(key)]
        return [d for key in names for d in differences(was.get(key), now.get(key), f"{name}.{key}".lstrip("."))]
    return [] if was == now else [(name, was, now)]
