"""Pyramids of random images, whose builders are killed and go on: every level is that of NumPy."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.torture.children import apart, found, killed, shared
from benchmarks.torture.libraries import Gzarr, import_ahead
from benchmarks.torture.scenario import Counts, Scenario, Setting, rounds
from benchmarks.torture.stores import Place

KILLS = 3
TYPICAL_S = (0.003, 0.02, 0.1)
METHODS = ("mean", "nearest", "mode", "min", "max", "median")
Numbers = npt.NDArray[Any]


def pyramids(setting: Setting) -> Counts:
    """Create images with levels, or add levels to them, until the builder is killed; then go on."""
    library, total = Gzarr(), Counts()
    import_ahead("gzarr.images")
    for number, rng in rounds(setting):
        place = Place(setting.store, setting.folder, f"x{number}")
        data, image, levels = drawn(rng)
        begun, kills = shared(1), int(rng.integers(KILLS + 1))
        whole = bool(rng.integers(2))  # level 0 and the others at once, or the others alone
        if not whole:
            total += apart(_create, place, data, image).counts()
        for kill in range(kills + 1):
            work = (_build, place, data, image if whole else {}, levels, begun)
            after_s = float(rng.exponential(rng.choice(TYPICAL_S)))
            outcome = killed(*work, begun=begun, after_s=after_s) if kill < kills else apart(*work)
            if outcome.status != "killed":
                break
        # One that was killed after its last step is refused, as there is nothing to go on with.
        checked = outcome.counts() + found(apart(_check, library, place, data, levels))
        about = f"seed {[setting.seed, number]}, {data.dtype} {data.shape}, {image}, {levels}, {kill} kills"
        total += (Counts(notes=(about,)) if checked.losses else Counts()) + checked
        place.remove()
    return total


def drawn(rng: np.random.Generator) -> tuple[Numbers, dict[str, Any], dict[str, Any]]:
    """An image: its data, how level 0 is stored, and how the others are made."""
    ndim = int(rng.integers(2, 5))
    longest = {2: (300, 300), 3: (30, 90, 90), 4: (3, 8, 60, 60)}[ndim]
    # Long enough for three levels, none of which equals the one before.
    shape = tuple(int(rng.integers(30 if axis >= ndim - 2 else 1, most)) for axis, most in enumerate(longest))
    data = rng.integers(0, rng.choice([4, 120]), shape).astype(str(rng.choice(["uint8", "int16", "uint16", "float32"])))
    chunks = tuple(int(rng.integers(max(1, n // 6), n + 1)) for n in shape)
    image: dict[str, Any] = {"chunks": chunks, "version": ["0.4", "0.5"][rng.integers(2)]}
    if image["version"] == "0.5" and rng.integers(2):
        image["shards"] = tuple(n * int(rng.integers(1, 4)) for n in chunks)
    levels: dict[str, Any] = {"levels": int(rng.integers(1, 4)), "method": str(rng.choice(METHODS))}
    if rng.integers(2):
        levels["factors"] = {"y": int(rng.integers(1, 5)), "x": int(rng.integers(2, 4))}
    if rng.integers(2):
        levels["max_nbytes"] = 1 << 22
    return data, image, levels


def _create(place: Place, data: Numbers, image: dict[str, Any]) -> None:
    import gzarr.images

    gzarr.images.create_image(place.store(), data, levels=0, **image)


def _build(place: Place, data: Numbers, image: dict[str, Any], levels: dict[str, Any], begun: Any) -> Any:
    import gzarr.images
    from gzarr.images.pyramid import units

    units.TARGET_NBYTES = 1 << 12  # many units of a small image

    def progress(*_: object) -> None:
        begun[0] += 1

    options = {**levels, "progress": progress, "resume": bool(begun[0])}
    if image:
        gzarr.images.create_image(place.store(), data, **image, **options)
    else:
        gzarr.images.build_pyramid(place.store(), **options)
    return {}


def _check(library: Gzarr, place: Place, data: Numbers, levels: dict[str, Any]) -> Any:
    import gzarr.images

    image, wrong = gzarr.images.open_image(place.store("r")), []
    stored = [np.asarray(level[...]) for level in image]
    if len(stored) != levels["levels"] + 1 or not np.array_equal(stored[0], data):
        wrong.append(f"{len(stored)} levels, and level 0 is {'right' if np.array_equal(stored[0], data) else 'wrong'}")
    scales = [np.array(each.scale) for each in image.metadata.datasets]
    for n, (below, level) in enumerate(pairwise(stored)):
        factors = np.rint(scales[n + 1] / scales[n]).astype(int).tolist()
        expected = downsampled(below, factors, levels["method"])
        if level.shape != expected.shape or not np.allclose(
            level, expected, rtol=1e-5 * (level.dtype.kind == "f"), atol=0
        ):
            wrong.append(
                f"level {n + 1}: {(level != expected).sum() if level.shape == expected.shape else level.shape}"
            )
    wrong += [str(fault) for fault in image.validate().faults if fault.severity == "error"]
    wrong += [key for key in image.group.store if "unfinished" in key]
    return Counts(operations=len(stored) - 1, wrong=len(wrong), notes=tuple(wrong)).to_json()


def downsampled(block: Numbers, factors: list[int], method: str) -> Numbers:
    """The level above one, window by window; a window at the end of an axis has the elements that exist."""
    shape = [-(-n // f) for n, f in zip(block.shape, factors, strict=True)]
    pad = [(0, n * f - m) for n, f, m in zip(shape, factors, block.shape, strict=True)]

    def windows(values: Numbers) -> Numbers:
        cut = np.pad(values, pad).reshape([n for pair in zip(shape, factors, strict=True) for n in pair])
        order = [*range(0, cut.ndim, 2), *range(1, cut.ndim, 2)]
        return cut.transpose(order).reshape(*shape, -1)

    values, there = windows(block.astype("f8")), windows(np.ones(block.shape, bool))
    counts = there.sum(-1)
    if method == "nearest":
        out = values[..., 0]
    elif method == "mean":
        out = values.sum(-1) / counts  # padded with zeros
    elif method == "mode":
        kinds = np.unique(block)
        out = kinds[np.argmax([((values == kind) & there).sum(-1) for kind in kinds], 0)]
    else:
        ordered = np.sort(np.where(there, values, np.inf), -1)
        last = {"min": 0 * counts, "max": counts - 1, "median": counts // 2}[method]
        first = (counts - 1) // 2 if method == "median" else last
        out = sum(np.take_along_axis(ordered, at[..., None], -1)[..., 0] for at in (first, last)) / 2
    return (out if block.dtype.kind == "f" else np.rint(out)).astype(block.dtype)


SCENARIOS = (Scenario("pyramids", "builders of pyramids are killed and go on", pyramids, ("local", "s3"), weight=6.0),)
