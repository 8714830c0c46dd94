"""How levels are made of level 0, as one value."""

from typing import Any, NamedTuple

from gzarr.display.progress import ProgressLike
from gzarr.errors import OVERWRITE
from gzarr.identity.runs import Resume, Run
from gzarr.images.ome.documents import Multiscale
from gzarr.images.pyramid.downsample import Method
from gzarr.images.pyramid.levels import Factors
from gzarr.scale.blocks import JobPart, parse_part


def shared_part(
    on: Any, part: tuple[int, int] | None, resume: Resume, *, overwrite: bool
) -> tuple[JobPart | None, Resume]:
    """Which part of a job is done here, and whether to go on with what is there. Raises: ValueError."""
    this = parse_part(part)
    if this is not None and (overwrite or on is not None):
        other = f"{OVERWRITE} would delete what others write" if overwrite else "on= is another way to several machines"
        raise ValueError(f"part=: {other}; leave one of them away")
    return this, this is not None if resume is False else resume  # an empty text is refused later


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
    on : optional
        What runs blocks: see `gzarr.scale.engines.open_engine`.
    part : JobPart, optional
        Which part of a job is done here.
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
    on: Any = None
    part: JobPart | None = None
    run: Run | None = None
    skip: Any = None
    name: str = "build_pyramid"
    remedy: str = f"pass {OVERWRITE}"

    @property
    def is_shared(self) -> bool:
        """Whether others than this process do the blocks, or some."""
        return self.on is not None or self.part is not None

    def method_for(self, multiscale: Multiscale) -> Method:
        """The method; by default the mean, and of labels the mode."""
        if self.method is not None:
            return self.method
        return "mean" if multiscale.image_label is None else "mode"
