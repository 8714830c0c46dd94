"""Random programs through zarr-python: with gzarr's pipeline they do what they do with its own, step by step.

The same calls are made of two arrays in two stores. After each step, values, errors, keys and documents are compared,
and the bytes of chunks where they are not compressed.
"""

from __future__ import annotations

import json
import math
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.torture.children import apart, found
from benchmarks.torture.libraries import absence, import_ahead
from benchmarks.torture.programs import selection
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds

STEPS = 40
RECORD = [("a", "<i4"), ("b", "<f8")]
DTYPES = ("bool", "int8", "uint16", ">i4", "float32", "float64", "complex64", "M8[s]", "S3", "U2", "str", "record")
DOCUMENTS = (".zarray", ".zattrs", "zarr.json")


def plugin(setting: Setting) -> Counts:
    """Make an array twice, and the same calls of both."""
    import_ahead("gzarr.interop.zarr")
    total = Counts()
    for number, _ in rounds(setting):
        folder = setting.folder / f"x{number}"
        total += found(apart(_program, [setting.seed, number], folder))
        shutil.rmtree(folder, ignore_errors=True)
    return total


def _program(seed: list[int], folder: Path) -> Any:
    import zarr

    from gzarr.interop.zarr import install

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(seed)
    pipelines = [zarr.config.get("codec_pipeline.path")]
    install("cpu")
    pipelines.append(zarr.config.get("codec_pipeline.path"))
    layout = _layout(rng)
    folders: list[Any] = [folder / name for name in "ab"] if rng.integers(2) else [{}, {}]
    make = zarr.storage.LocalStore if isinstance(folders[0], Path) else zarr.storage.MemoryStore
    stores = [make(each) for each in folders]

    def opened(function: Callable[..., Any], **how: Any) -> list[Any]:
        pair = []
        for store, pipeline in zip(stores, pipelines, strict=True):
            with zarr.config.set({"codec_pipeline.path": pipeline}):
                pair.append(function(store, **how))
        return pair

    pair, steps, differ = opened(zarr.create_array, **layout), [], []
    for _ in range(STEPS):
        name, call = _step(rng, pair[0])
        steps.append(name)
        own, ours = (_result(call, array) for array in pair)
        if own[0] == "error" != ours[0]:  # zarr-python cannot do it, and the arrays differ from now on
            return Counts(operations=len(steps), refused=1).to_json()
        differ = _differences(own, ours, [_stored(each, layout["compressors"] is None) for each in folders])
        if differ:
            break
        if rng.integers(10) == 0:
            pair = opened(zarr.open_array, mode="r+")
            steps.append("open again")
    if not differ:  # what one pipeline has written, the other one reads
        stores.reverse()
        values = [_result(lambda array: array[...], array) for array in opened(zarr.open_array, mode="r")]
        differ = _differences(*values, [{}, {}])
    note = f"seed {seed}, {layout}, {steps[-4:]}: {differ}"
    return Counts(operations=len(steps), wrong=int(bool(differ)), notes=(note,) if differ else ()).to_json()


def _layout(rng: np.random.Generator) -> dict[str, Any]:
    shape = tuple(int(rng.integers(1, 14)) for _ in range(rng.integers(1, 4)))
    chunks = tuple(int(rng.integers(-(-n // 4), n + 2)) for n in shape)
    dtype: Any = str(rng.choice(DTYPES))
    layout = {"shape": shape, "chunks": chunks, "dtype": RECORD if dtype == "record" else dtype, "zarr_format": 3}
    layout |= {"compressors": [None, "auto"][rng.integers(2)], "config": {"write_empty_chunks": bool(rng.integers(2))}}
    if rng.integers(3) == 0:
        return layout | {"zarr_format": 2, "order": str(rng.choice(["C", "F"]))}
    if rng.integers(2):
        layout["shards"] = tuple(n * int(rng.integers(1, 4)) for n in chunks)
    if np.dtype(layout["dtype"]).kind in "iuf" and rng.integers(2):
        layout["fill_value"] = 1
    return layout


def _values(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> Any:
    """Few distinct values, so that chunks of the fill value occur."""
    numbers = rng.integers(0, 3, shape) if rng.integers(3) else np.full(shape, rng.integers(0, 2))
    if dtype.kind == "V":
        return np.array(list(zip(numbers.ravel(), numbers.ravel() / 2, strict=True)), dtype).reshape(shape)
    if dtype.kind in "SUTO":
        return np.array(["", "a", "bc"])[numbers].astype(dtype)
    return numbers.astype(dtype)


def _step(rng: np.random.Generator, array: Any) -> tuple[str, Callable[[Any], Any]]:
    """The next call, with its name."""
    shape, kind = array.shape, int(rng.integers(12))
    if kind == 0:
        new = tuple(int(rng.integers(0, n + 5)) for n in shape)
        return f"resize {new}", lambda z: z.resize(new)
    if kind == 1:
        axis = int(rng.integers(len(shape)))
        more = _values(
            rng, array.dtype, tuple(int(rng.integers(1, 4)) if i == axis else n for i, n in enumerate(shape))
        )
        return f"append {more.shape} along {axis}", lambda z: z.append(more, axis)
    if kind == 2:
        value = int(rng.integers(9))
        return "attributes", lambda z: z.attrs.update(a=value, b={"c": [value]})
    how, key, places = "basic", ..., np.arange(math.prod(shape)).reshape(shape)
    if 0 not in shape and kind < 11:
        how, key, places = selection(rng, places, array.shards or array.chunks, whole=True)
    if kind == 11 and len(shape) > 1:
        key = (*[0] * (len(shape) - 1), int(rng.integers(-20, 20)))  # perhaps out of bounds
        places = np.array(0)

    def target(z: Any) -> Any:
        return z if how == "basic" else getattr(z, how)

    if rng.integers(2):
        return f"read {how} {key}", lambda z: target(z)[key]
    values = _values(rng, array.dtype, shape).ravel()  # of all elements: zarr-python says nothing of points that repeat
    if kind == 11 or rng.integers(3) == 0:
        value = _values(rng, array.dtype, (1,))[0]
    else:
        value = np.asarray(values[places], array.dtype)
    return f"write {how} {key}", lambda z: target(z).__setitem__(key, value)


def _result(call: Callable[[Any], Any], array: Any) -> tuple[str, Any]:
    """What a call gave, as something that can be compared, or the class of the error that it raised."""
    try:
        value = call(array)
    except Exception as error:  # noqa: BLE001 - whatever zarr-python raises
        return "error", type(error).__name__
    if value is None or isinstance(value, tuple):
        return "done", value
    values = np.asarray(value)
    return f"{values.dtype} {values.shape}", values.tolist() if values.dtype.kind in "TO" else values.tobytes()


def _stored(place: Any, plain: bool) -> dict[str, Any]:
    """What is stored by key: documents as JSON values, chunks as bytes if they are plain."""
    if isinstance(place, Path):
        found_ = {p.relative_to(place).as_posix(): p.read_bytes() for p in place.rglob("*") if p.is_file()}
    else:
        found_ = {key: value.to_bytes() for key, value in place.items()}
    return {
        key: json.loads(data) if key.endswith(DOCUMENTS) else data if plain else None for key, data in found_.items()
    }


def _differences(own: Any, ours: Any, stored: list[dict[str, Any]]) -> list[str]:
    """What differs between zarr-python's pipeline and gzarr's."""
    differ = [] if own == ours else [f"{str(own)[:200]} with zarr-python's pipeline, {str(ours)[:200]} with gzarr's"]
    keys = sorted({*stored[0], *stored[1]})
    changed = [key for key in keys if stored[0].get(key, "") != stored[1].get(key, "")]
    return differ + [f"{key}: {str([each.get(key, '') for each in stored])[:300]}" for key in changed]


SCENARIOS = (
    Scenario(
        "zarr-python",
        "programs through zarr-python, by gzarr's pipeline and by its own",
        plugin,
        ("none",),
        weight=12.0,
        absence=partial(absence, "zarr"),
    ),
)
