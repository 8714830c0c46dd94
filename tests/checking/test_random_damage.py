"""Random damage: verification never fails, names whatever a read cannot read, and after a repair everything reads."""

from typing import Any

import numpy as np
import pytest

import gzarr
from gzarr.codecs import Crc32cCodec
from gzarr.errors import GzarrError
from gzarr.storage import MemoryStore

DATA = np.arange(200.0).reshape(20, 10)


def hierarchy(zarr_format: Any) -> dict[str, bytes]:
    store = MemoryStore()
    root = gzarr.group(store, zarr_format=zarr_format)
    root.create_array("g/x", data=DATA, chunks=(7, 4))
    root.create_array("g/raw", data=DATA, chunks=(7, 4), compressors=None)
    root.create_array("words", data=np.array(["a", "bc", "d"], object), dtype=str, chunks=2)
    if zarr_format == 3:
        for location in ("start", "end"):
            shards: Any = {"shape": (8, 10), "index_location": location}
            root.create_array(f"s_{location}", data=DATA, chunks=(2, 5), shards=shards, compressors=Crc32cCodec())
    gzarr.consolidate_metadata(store)
    return {key: bytes(store[key]) for key in store}


def damage(rng: np.random.Generator, stored: dict[str, bytes]) -> None:
    """Flip, cut or extend one object, or lose it."""
    key = sorted(stored)[rng.integers(len(stored))]
    data = bytearray(stored[key])
    match rng.integers(4):
        case 0:
            data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
        case 1:
            del data[rng.integers(len(data)) :]
        case 2:
            data += bytes(rng.integers(0, 256, 5).tolist())
        case _:
            del stored[key]
            return
    stored[key] = bytes(data)


def failures(store: Any) -> set[str]:
    """Paths of the arrays that cannot be read whole."""
    failed = set()
    for path in ("g/x", "g/raw", "words", "s_start", "s_end"):
        try:
            array = gzarr.open(store, "r", path=path, use_consolidated=False)
            array[...]
        except gzarr.NodeNotFoundError:
            pass
        except GzarrError:
            failed.add(path)
    return failed


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("seed", range(2))
def test_what_cannot_be_read_is_found_and_repaired(zarr_format: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    whole = hierarchy(zarr_format)
    for _ in range(12):
        stored = dict(whole)
        for _ in range(rng.integers(1, 4)):
            damage(rng, stored)
        store = MemoryStore(stored)
        failed = failures(store)
        found = gzarr.verify(store)
        assert failed <= {problem.path for problem in found.problems}
        report = gzarr.repair(store, "chunks", "leftovers", "consolidated", apply=True)
        left = {problem.path for problem in report.left}
        assert failures(store) <= left
        assert not {"chunk", "shard"} & {problem.kind for problem in gzarr.verify(store).problems}
