"""Reports of copies: text for people, fields for programs."""

from dataclasses import dataclass

from gzarr.display.info import number
from gzarr.errors.escaping import escaped
from gzarr.scale.running import RunReport

_HOW = {"decode": "decoded and encoded", "chunks": "chunks copied encoded", "objects": "objects copied as they are"}


@dataclass(frozen=True, slots=True)
class ArrayReport:
    """One array of a copy.

    Attributes
    ----------
    path : str
        Path of the copy in its store.
    source : str
        Name of the source.
    shape : tuple of int
        Shape of the array.
    dtype : str
        Name of the copy's dtype.
    chunks : tuple of int
        Shape of the copy's chunks.
    shards : tuple of int or None
        Shape of its shards, if it has any.
    nbytes : int
        Decoded size in bytes.
    nobjects : int
        Number of stored objects (chunks or shards) that the copy can have.
    how : {"decode", "chunks", "objects"}
        Whether the source's chunks are decoded, copied encoded, or copied as whole objects.
    region : tuple of int or None
        Shape of the regions that are decoded at a time.
    reads : float
        How often a source chunk is decoded on average; 0 without decoding.
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
        repeated = f", each source chunk {self.reads:.1f} times" if self.reads > 1.05 else ""
        region = f" in regions of {self.region}" if self.region else ""
        return escaped(
            f"/{self.path} {self.shape} {self.dtype} chunks={self.chunks}{shards}: {self.nbytes:,} bytes, "
            f"{number(self.nobjects, 'object')}, {_HOW[self.how]}{region}{repeated}"
        )


@dataclass(frozen=True, slots=True)
class TransferReport:
    """What a copy did, or would do. Prints as text.

    Attributes
    ----------
    arrays : tuple of ArrayReport
        The arrays that were copied.
    ngroups : int
        Number of groups.
    nskipped : int
        Number of arrays that existed already.
    dry_run : bool
        Whether nothing was written.
    run : RunReport or None
        How the blocks were done: what ran them, which were slow or were repeated.
    is_complete : bool
        Whether the copy can be opened; with ``part=``, only after the last part.
    left_out : tuple of str
        What a file of another format has and Zarr lacks, and why, if it was read in place.

    Examples
    --------
    >>> import gzarr
    >>> report = gzarr.transfer(gzarr.ones((100, 100), chunks=(10, 10)), "memory://report", dry_run=True)
    >>> report.nbytes
    80000
    >>> report.arrays[0].how
    'objects'
    """

    arrays: tuple[ArrayReport, ...]
    ngroups: int
    nskipped: int
    dry_run: bool
    run: RunReport | None = None
    is_complete: bool = True
    left_out: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Decoded bytes of the arrays that were copied."""
        return sum(array.nbytes for array in self.arrays)

    def __str__(self) -> str:
        begin = "dry run: would copy" if self.dry_run else "copied"
        if self.run is not None and not self.is_complete:
            begin = f"this part copied {number(self.run.n_blocks, 'block')} of"
        arrays, groups, skipped = number(len(self.arrays), "array"), number(self.ngroups, "group"), ""
        if self.nskipped:
            skipped = f", {number(self.nskipped, 'array')} existed already"
        summary = f"{begin} {arrays} ({self.nbytes:,} bytes) and {groups}"
        ran = [] if self.run is None or self.run.engine == "threads" else [*map(escaped, str(self.run).split("\n"))]
        ran += [] if self.is_complete else ["the copy is not complete: that is done by the last part to end"]
        lost = [f"left out: {escaped(why)}" for why in self.left_out]
        return "\n".join([*map(str, self.arrays), summary + skipped, *ran, *lost])
