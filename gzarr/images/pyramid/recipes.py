"""How levels are made of level 0, as one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from gzarr.display.progress import ProgressLike
from gzarr.errors import OVERWRITE
from gzarr.identity.runs import Resume, Run
from gzarr.images.ome.documents import Multiscale
from gzarr.images.pyramid.downsample import Method
from gzarr.images.pyramid.levels import Factors


class ClusterClient(Protocol):
    """What runs tasks in other processes: `distributed.Client`, or an executor of `concurrent.futures`."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Return a future with ``result``, ``cancel`` and ``add_done_callback``."""
        ...


class Recipe(NamedTuple):
    """How levels are made of level 0.

    Attributes
    ----------
    levels, factors, method
        As in `gzarr.images.build_pyramid`.
    max_nbytes : int or None
        Memory for decoded elements, in bytes; None for 256 MiB, or what one unit needs.
    resume : bool or str
        Whether to go on with an unfinished build; see `gzarr.images.build_pyramid`.
    overwrite : bool
        Whether to replace levels, and unfinished builds.
    progress : bool or callable, optional
        As in `gzarr.transfer`.
    client : ClusterClient, optional
        Of a cluster that builds the levels, where level 0 is stored already.
    run : Run, optional
        What becomes level 0.
    skip : number, array of bool or False, optional
        As in `gzarr.images.build_pyramid`.
    name : str
        Of the function that builds, for messages.
    remedy : str
        What to do to begin anew, for messages.
    """

    levels: int | None = None
    factors: Factors = None
    method: Method | None = None
    max_nbytes: int | None = None
    resume: Resume = False
    overwrite: bool = False
    progress: ProgressLike = None
    client: ClusterClient | None = None
    run: Run | None = None
    skip: Any = None
    name: str = "build_pyramid"
    remedy: str = f"pass {OVERWRITE}"

    def method_for(self, multiscale: Multiscale) -> Method:
        """The method; by default the mean, and of labels the mode."""
        if self.method is not None:
            return self.method
        return "mean" if multiscale.image_label is None else "mode"
