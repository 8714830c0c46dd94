"""Damaged documents, shards and chunks: reading gives the right values or an error that names what is damaged.

Every object is read in three ways: by the compiled loop, by the reference path, and on the emulated device. None may
crash, hang or raise an error that is not the library's own. Objects with checksums never give other values; of the
others, all three ways give the same, or all three raise an error.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture.children import apart
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds

#: One child damages so many objects: when it crashes, its seed repeats it.
BATCH = 150
MOST_NBYTES = 12 << 30
WAYS = ("loop", "reference", "emulated")
DATA = np.random.default_rng(0).integers(0, 500, (40, 30)).astype("i4")
HOSTILE = (
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        1 << 31,
        1 << 63,
        1 << 64,
        -(1 << 63),
        1e308,
        0.5,
        "",
        "x",
        "NaN",
        "0x7fc0",
        "\ud800",
    ),
    *([], [[]], [-1], [1 << 62, 1 << 62], {}, {"name": "bytes"}, {"": None}, "9" * 400, ["a"] * 70),
)


def layouts() -> dict[str, tuple[dict[str, Any], bool]]:
    """Keywords of arrays, and whether each of their objects has a checksum."""
    from numcodecs import LZ4, Blosc, Zlib, Zstd

    crc = {"compressors": [{"name": "zstd", "configuration": {"level": 1, "checksum": False}}, {"name": "crc32c"}]}
    found: dict[str, tuple[dict[str, Any], bool]] = {
        "crc32c": (crc, True),
        "shards": ({"shards": (20, 30), **crc}, True),
        "plain shards": ({"shards": (20, 30)}, False),
        "gzip": ({"compressors": [{"name": "gzip", "configuration": {"level": 5}}]}, True),
        "zstd": ({}, False),
        "v2 zlib": ({"zarr_format": 2, "compressor": Zlib(1)}, True),
        "v2 zstd": ({"zarr_format": 2, "compressor": Zstd(1)}, False),
        "v2 lz4": ({"zarr_format": 2, "compressor": LZ4()}, False),
    }
    for name in ("lz4", "zstd", "zlib", "blosclz"):
        for shuffle in (0, 1, 2):
            found[f"v2 blosc {name} {shuffle}"] = {"zarr_format": 2, "compressor": Blosc(name, 5, shuffle)}, False
    return found


def documents(setting: Setting) -> Counts:
    """Values of metadata documents are replaced by others, or their bytes are damaged."""
    return _batches(setting, "documents")


def objects(setting: Setting) -> Counts:
    """Bytes of chunks and shards are flipped, cut, doubled and overwritten."""
    return _batches(setting, "objects")


def _batches(setting: Setting, what: str) -> Counts:
    total = Counts()
    end = time.monotonic() + setting.budget_s
    for number, _ in rounds(setting):
        outcome = apart(_batch, what, [setting.seed, number], setting.folder / f"x{number}", end)
        if outcome.status == "done":
            total += Counts.from_json(outcome.value)
        else:  # it crashed, hung, or this module is wrong
            total += outcome.counts() + Counts(notes=(f"seed {[setting.seed, number]}: {outcome.text[-600:]}",))
    return total


def _batch(what: str, seed: list[int], folder: Path, end: float) -> Any:
    if "LD_PRELOAD" not in os.environ:  # sanitizers need addresses for terabytes
        resource.setrlimit(resource.RLIMIT_AS, (MOST_NBYTES, MOST_NBYTES))
    warnings.simplefilter("ignore")
    rng, total = np.random.default_rng(seed), Counts()
    for n in range(BATCH):
        if n and time.monotonic() > end:
            break
        name = str(rng.choice(list(layouts())))
        total += _damage(what, name, folder, rng)
    shutil.rmtree(folder, ignore_errors=True)
    return total.to_json()


def _damage(what: str, name: str, folder: Path, rng: np.random.Generator) -> Counts:
    import gzarr

    keywords, checked = layouts()[name]
    store = gzarr.LocalStore(folder)
    store.clear()
    gzarr.create_array(store, path="g/array", data=DATA, chunks=(10, 10), **keywords)
    is_document = {key: key.endswith((".zarray", "zarr.json", ".zattrs", ".zgroup")) for key in store}
    keys = sorted(key for key in store if is_document[key] == (what == "documents"))
    key = str(rng.choice(keys))
    old = bytes(store[key])
    if what == "documents" and rng.integers(4):
        new = json.dumps(replaced(json.loads(old), rng)).encode()
    else:
        new = damaged(old, rng)
    if new == old:
        return Counts(operations=1)
    store[key] = new
    results = {way: _read(store, way) for way in WAYS}
    where = f"{name}, {key}: {new[:700]!r}"
    notes = [f"{where}, {way}: {text}" for way, (kind, text) in results.items() if kind == "raw"]
    counts = Counts(operations=1, raw_errors=len(notes), notes=tuple(notes))
    kinds = {kind for kind, _ in results.values()}
    if kinds == {"refused"}:
        counts += Counts(refused=1)
    if what == "objects" and "raw" not in kinds:
        if checked and "other" in kinds:
            counts += Counts(wrong=1, notes=(f"{where}: other values in spite of checksums: {results}",))
        elif len({result if result[0] == "other" else (result[0], "") for result in results.values()}) > 1:
            counts += Counts(wrong=1, notes=(f"{where}: the ways differ: {results}",))
    return counts


def _read(store: Any, way: str) -> tuple[str, str]:
    """Read the array. Returns: "right", "other" and a digest, "refused", or "raw" and what was raised."""
    import gzarr
    from gzarr.errors import GzarrError

    try:
        with gzarr.config.set({"cpu.native": way == "loop", "threading.max_workers": 1}):
            options = {"device": _emulated()} if way == "emulated" else {}
            gzarr.open_group(store, "r").tree()
            z = gzarr.open_array(store, path="g/array", mode="r", **options)
            first = tuple(slice(0, min(extent, 40)) for extent in z.shape)
            values = np.asarray(z[first])
            if values.nbytes > 1 << 24:
                return "right", ""
    except GzarrError as error:
        named = any(part in str(error) for part in ("array", "file://", "group"))
        return ("refused", "") if named else ("raw", f"names nothing: {type(error).__name__}: {error}"[:300])
    except MemoryError:  # passed on as it is: a chunk of 80 GiB may be meant
        return "refused", ""
    except Exception as error:  # noqa: BLE001
        return "raw", f"{type(error).__name__}: {error}"[:300]
    if values.dtype == DATA.dtype and values.shape == DATA.shape and (values == DATA).all():
        return "right", ""
    return "other", str(hash(values.tobytes()))


_devices: list[Any] = []


def _emulated() -> Any:
    from gzarr.gpu.backend import GpuBackend
    from gzarr.gpu.device.emulated import EmulatedDevice

    if not _devices:
        _devices.append(GpuBackend(EmulatedDevice(), max_device_nbytes=1 << 26))
    return _devices[0]


# -- damage --------------------------------------------------------------------------------------------------------


def replaced(document: Any, rng: np.random.Generator) -> Any:
    """A document with one of its values replaced, deleted, doubled or nested deep."""
    places = list(_places(document))
    change: Callable[[Any], Any] = places[int(rng.integers(len(places)))]
    value = HOSTILE[int(rng.integers(len(HOSTILE)))]
    if not rng.integers(20):
        value = [[]]
        for _ in range(int(rng.integers(2, 400))):
            value = [value]
    return change(value)


def _places(value: Any) -> Iterator[Callable[[Any], Any]]:
    """Functions that give a document with one value replaced, for every value in it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in list(items):
        yield partial(_put, value, name)
        yield partial(_without, value, name)
        for change in _places(inner):
            yield lambda new, name=name, change=change: _put(value, name, change(new))
    if isinstance(value, list):
        yield lambda new: [*value, new]
    if isinstance(value, dict):
        yield lambda new: {**value, "surprise": new}


def _put(value: Any, name: Any, new: Any) -> Any:
    if isinstance(value, dict):
        return {**value, name: new}
    return [new if number == name else inner for number, inner in enumerate(value)]


def _without(value: Any, name: Any, _: Any) -> Any:
    if isinstance(value, dict):
        return {other: inner for other, inner in value.items() if other != name}
    return [inner for number, inner in enumerate(value) if number != name]


def damaged(data: bytes, rng: np.random.Generator) -> bytes:
    """Bytes with a few of them flipped, overwritten, cut off, doubled or moved."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(out) + 1)) if rng.integers(2) else int(rng.integers(min(len(out), 24) + 1))
        n = int(rng.choice([1, 2, 4, 8, 16]))
        match int(rng.integers(7)):
            case 0:
                out[at:] = b""
            case 1:
                out[at : at + n] = rng.bytes(min(n, max(len(out) - at, 0)))
            case 2:
                out[at : at + n] = bytes([int(rng.choice([0, 1, 127, 128, 255]))]) * min(n, max(len(out) - at, 0))
            case 3:
                out[at:at] = rng.bytes(n)
            case 4:
                out += bytes(out[at : at + n]) or b"\0"
            case 5:
                del out[at : at + n]
            case _ if at < len(out):
                out[at] ^= 1 << int(rng.integers(8))
    return bytes(out)


SCENARIOS = (
    Scenario("damaged documents", "metadata documents are damaged", documents, ("none",)),
    Scenario("damaged objects", "chunks and shards are damaged", objects, ("none",)),
)
