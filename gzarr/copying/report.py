"""What a copy did, or would do: for people as text, for programs as fields."""

from __future__ import annotations

from dataclasses import dataclass

_HOW = {"decode": "decoded and encoded", "chunks": "chunks copied encoded", "objects": "objects copied as they are"}


@dataclass(frozen=True, slots=True)
class ArrayReport:
    """One array of a copy.

    Attributes:
        path: path of the copy in its store.
        source: name of the source.
        shape: extents.
        dtype: name of the copy's dtype.
        chunks: shape of the copy's chunks.
        shards: shape of its shards, or None.
        nbytes: decoded size in bytes.
        nobjects: number of stored objects (chunks or shards) that the copy can have.
        how: "decode", "chunks" or "objects": what is done with the source's chunks.
        region: shape of the regions that are decoded at once, or None.
        reads: how often a source chunk is decoded on average; 0 if none is.
    """

    path: str
    source: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    shards: tuple[int, ...] | None
    nbytes: int
    nobjects: int
    how: str
    region: tuple[int, ...] | None
    reads: float

    def __str__(self) -> str:
        shards = f" shards={self.shards}" if self.shards else ""
        again = f", each source chunk {self.reads:.1f} times" if self.reads > 1.05 else ""
        region = f" in regions of {self.region}" if self.region else ""
        return (
            f"/{self.path} {self.shape} {self.dtype} chunks={self.chunks}{shards}: {self.nbytes:,} bytes, "
            f"{self.nobjects:,} objects, {_HOW[self.how]}{region}{again}"
        )


@dataclass(frozen=True, slots=True)
class TransferReport:
    """What a copy did, or would do.

    Attributes:
        arrays: the arrays that were copied.
        ngroups: number of groups.
        nskipped: number of arrays that were there already.
        dry_run: whether nothing was done.
    """

    arrays: tuple[ArrayReport, ...]
    ngroups: int
    nskipped: int
    dry_run: bool

    @property
    def nbytes(self) -> int:
        """Decoded bytes of the arrays that were copied."""
        return sum(array.nbytes for array in self.arrays)

    def __str__(self) -> str:
        begin = "dry run: would copy" if self.dry_run else "copied"
        summary = f"{begin} {len(self.arrays)} arrays ({self.nbytes:,} bytes) and {self.ngroups} groups"
        skipped = f", {self.nskipped} arrays were there already" if self.nskipped else ""
        return "\n".join([*map(str, self.arrays), summary + skipped])
