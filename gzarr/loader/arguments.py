"""Arguments of a loader that need no data to be checked."""

from collections.abc import Mapping
from operator import index
from typing import Any

import numpy as np

from gzarr.loader.order import Shuffle, check_kind, is_repeatable
from gzarr.loader.ragged import Ragged
from gzarr.loader.windows import Crops


def integer(name: str, value: Any) -> int:
    """Return an integer argument. Raises: TypeError."""
    try:
        return index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, got {value!r}") from None


def check_sampler(sampler: Any, shuffle: Shuffle, world_size: int) -> None:
    """Refuse a sampler beside another order, one that is there for one epoch only, and one that ranks cannot share."""
    if sampler is None:
        return
    check_kind(sampler)
    if shuffle:
        raise ValueError(f"sampler= is an order of its own: leave shuffle={shuffle!r} out")
    if hasattr(sampler, "__next__"):
        raise TypeError("sampler is an iterator, which ends with its first epoch; give what iterators are made of")
    if world_size > 1 and not is_repeatable(sampler):
        raise ValueError(
            f"sampler is iterated over, with world_size={world_size}: ranks may get different orders of it and take "
            "samples twice; give a function of positions and epoch; or, if it has the samples of one rank, rank=0 and "
            "world_size=1"
        )


def check_functions(given: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return ``on_epoch`` and ``transform``. Raises: TypeError."""
    for name in ("transform", "on_epoch"):
        if given[name] is not None and not callable(given[name]):
            raise TypeError(f"{name} must be a function, got {given[name]!r}")
    return given["on_epoch"], given["transform"]


def check_on_error(on_error: Any, world_size: int) -> bool:
    """Return whether damaged samples are left out. Raises: ValueError."""
    if on_error not in ("raise", "skip"):
        raise ValueError(f"on_error must be 'raise' or 'skip', got {on_error!r}")
    if on_error == "skip" and world_size > 1:
        raise ValueError(
            f"on_error='skip' with world_size={world_size}: a rank with damaged samples would take fewer steps, and "
            "the others would wait for it forever; use 'raise', and gzarr.verify to find the damage"
        )
    return bool(on_error == "skip")


def parse_pads(crops: Crops | None, arrays: Mapping[str, Any], dtypes: Mapping[str, np.dtype[Any]]) -> dict[str, Any]:
    """By name, what elements past the ends of an array, or of ragged samples, are. Raises: ValueError."""
    pads = {name: array.pad for name, array in arrays.items() if isinstance(array, Ragged) and array.padded}
    if crops is not None and crops.is_padded:
        pads |= crops.pad if isinstance(crops.pad, Mapping) else dict.fromkeys(arrays, crops.pad)
        if set(pads) != set(arrays):
            raise ValueError(f"pad of Crops has {sorted(pads)}; expected a value for each of {sorted(arrays)}")
    for name, pad in pads.items():
        if not _is_value(pad, dtypes[name]):
            raise ValueError(f"pad: {pad!r} is no value of {name!r}, which is {dtypes[name]} in batches; see dtype=")
    return pads


def _is_value(pad: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a scalar is a value of a type; numbers may be rounded, but keep their kind."""
    if pad is None or np.ndim(pad):
        return False
    if dtype.kind not in "iufc":
        try:
            return bool(np.full((), pad, dtype) == pad) or dtype.kind != "b"
        except (TypeError, ValueError):
            return False
    is_of_kind = np.can_cast(np.min_scalar_type(pad), dtype, "same_kind")
    return is_of_kind and (dtype.kind in "fc" or np.iinfo(dtype).min <= pad <= np.iinfo(dtype).max)
