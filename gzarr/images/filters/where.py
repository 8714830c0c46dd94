"""Where a block lies, for functions that ask for it by a parameter ``where``."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gzarr.hierarchy.array import Array
from gzarr.images.image import Image
from gzarr.indexing.regions import Region


@dataclass(frozen=True, slots=True)
class Where:
    """Where a block lies.

    Attributes
    ----------
    box : tuple of slice
        Elements of the first input, at a level, without the halo.
    halo : tuple of (int, int)
        How many more elements the block has before and after the box, by axis.
    level : int
        Which level of the image: 0, the largest.
    scale, translation : mapping
        Of the level, by axis; empty for an array.

    Examples
    --------
    >>> import gzarr.images
    >>> image = gzarr.images.create_image(shape=(4, 6), dtype="f4", scale=0.5)
    >>> made = gzarr.images.map_blocks(lambda block, where: block + where.units["x"][1], image, None)
    >>> float(made[0][0, 0])  # the right edge of the block
    2.75
    """

    box: Region
    halo: tuple[tuple[int, int], ...] = ()
    level: int = 0
    scale: Mapping[str, float] = field(default_factory=dict)
    translation: Mapping[str, float] = field(default_factory=dict)

    @property
    def units(self) -> dict[str, tuple[float, float]]:
        """The edges of the box in the units of the image, by axis."""
        edges = zip(self.scale.items(), self.translation.values(), self.box, strict=True)
        return {n: (t + s * (part.start - 0.5), t + s * (part.stop - 0.5)) for (n, s), t, part in edges}


def telling(func: Callable[..., Any], given: Array | Image) -> Callable[..., Any]:
    """A function of a region, a halo and blocks that calls another one, with ``where`` if it has such a parameter."""
    try:
        found = inspect.signature(func).parameters.get("where")
    except (TypeError, ValueError):  # of some functions in C
        found = None
    asks = found is not None and found.default in (None, found.empty)  # NumPy's functions have another "where"
    if not asks:
        return lambda _region, _halo, *blocks: func(*blocks)
    placed = (given.scale(), given.translation()) if isinstance(given, Image) else ({}, {})

    def told(region: Region, halo: Sequence[tuple[int, int]], *blocks: Any) -> Any:
        return func(*blocks, where=Where(region, tuple(halo), 0, *placed))

    return told
