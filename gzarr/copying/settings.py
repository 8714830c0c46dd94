"""How to copy, whatever the new arrays are like: what to do with what is there, how much memory, how to tell of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gzarr.copying.arrays import BUDGET_NBYTES
from gzarr.copying.progress import ProgressLike

IfExists = Literal["raise", "replace", "skip"]


@dataclass(frozen=True, slots=True)
class Settings:
    """How to copy, besides what the new arrays are like.

    Attributes:
        if_exists: "raise", "replace" what is there, or "skip" arrays that are there.
        dry_run: only say what would be done.
        resume: go on with a copy that was interrupted.
        progress: see `gzarr.copying.progress.ProgressLike`.
        budget_nbytes: host memory for what has been read, in bytes; at least one object of the destination is held.
    """

    if_exists: IfExists = "raise"
    dry_run: bool = False
    resume: bool = False
    progress: ProgressLike = None
    budget_nbytes: int = BUDGET_NBYTES

    def __post_init__(self) -> None:
        if self.if_exists not in ("raise", "replace", "skip"):
            raise ValueError(f"if_exists must be 'raise', 'replace' or 'skip', got {self.if_exists!r}")
        if self.budget_nbytes < 1:
            raise ValueError(f"budget_nbytes must be at least 1, got {self.budget_nbytes!r}")
