"""The options of a copy: what happens to existing data, memory, progress, and the keywords of the new arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gzarr.copying.arrays import BUDGET_NBYTES
from gzarr.display.progress import ProgressLike
from gzarr.hierarchy.keywords import ChainKeywords, DatasetKeywords
from gzarr.identity.runs import Resume
from gzarr.scale.blocks import JobPart, parse_part

IfExists = Literal["raise", "replace", "skip"]


class CopyKeywords(ChainKeywords, total=False):
    """Keywords of `gzarr.create_array` for the arrays of a copy; what is not given is as in the source."""

    chunks: Any
    compressor: Any
    fill_value: Any
    order: Literal["C", "F"] | None
    zarr_format: Literal[2, 3] | None
    write_empty_chunks: bool | None


class TransferKeywords(CopyKeywords, total=False):
    """Keywords of `gzarr.transfer` that the functions of `gzarr.convert` pass on."""

    path: str | None
    each: Mapping[str, Mapping[str, Any]] | None
    if_exists: IfExists
    dry_run: bool
    resume: Resume
    progress: ProgressLike
    budget_nbytes: int
    on: Any
    part: tuple[int, int] | None


class Hdf5Keywords(DatasetKeywords, total=False):
    """Keywords of ``h5py.Group.create_dataset`` for the datasets of a copy."""

    chunks: Any
    maxshape: Any


class CopyMemberKeywords(CopyKeywords, Hdf5Keywords, total=False):
    """Keywords of the function that creates the arrays of `gzarr.copy` in a group of gzarr or h5py."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to copy; the parameters of `gzarr.transfer` that do not describe the new arrays."""

    if_exists: IfExists = "raise"
    dry_run: bool = False
    resume: Resume = False
    progress: ProgressLike = None
    budget_nbytes: int = BUDGET_NBYTES
    on: Any = None
    part: JobPart | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "part", parse_part(self.part))
        if self.part is not None:  # each process goes on with what the others have begun
            object.__setattr__(self, "resume", self.resume or True)
            if self.on is not None:
                raise ValueError("on= and part= are two ways to use several machines; leave one of them away")
            if self.if_exists == "replace":
                raise ValueError("part= does not go with if_exists='replace', which would delete what others write")
        if self.if_exists not in ("raise", "replace", "skip"):
            raise ValueError(f"if_exists must be 'raise', 'replace' or 'skip', got {self.if_exists!r}")
        if self.budget_nbytes < 1:
            raise ValueError(f"budget_nbytes must be at least 1, got {self.budget_nbytes!r}")
