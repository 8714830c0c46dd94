"""What a verification has found: text for people, fields for programs."""

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from gzarr.backend import Backend
from gzarr.display.info import number, size_text
from gzarr.errors import StoreError
from gzarr.errors.escaping import as_lines, escaped
from gzarr.indexing.keys import join_path
from gzarr.storage.base import Store

#: Problems that the text of an error names; all are in the report.
_NAMED = 3


class Place(NamedTuple):
    """A node in a store, and what its chunks are decoded with.

    Attributes
    ----------
    store : Store
        The store.
    path : str
        Path of the node.
    backend : Backend
        Where chunks are decoded.
    allow_pickle : bool
        Whether pickled objects are loaded.
    """

    store: Store
    path: str
    backend: Backend
    allow_pickle: bool = False

    def __str__(self) -> str:
        return join_path(str(self.store), self.path)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes
    ----------
    kind : str
        "chunk" or "shard" (cannot be decoded), "index" (chunks of a shard overlap), "unreadable" (the store fails),
        "codec" (an array that cannot be decoded here), "document" (malformed), "conflict" (several nodes at one
        place), "group" (missing above a node), "unreachable" (outside the grid, or below an array), "consolidated"
        (differs from the documents), "key" (not allowed), "temporary" (left by a killed writer), "unfinished" (a copy,
        or levels), "leftover" (belongs to no node).
    key : str
        Key of the stored object, or path of a folder, which ends with a slash.
    reason : str
        What is wrong.
    path : str
        Path of the array or group.
    chunk_coords : tuple of int or None
        Coordinates of the chunk in the chunk grid.
    codec : str
        Name of the codec that failed, or "".
    """

    kind: str
    key: str
    reason: str
    path: str = ""
    chunk_coords: tuple[int, ...] | None = None
    codec: str = ""

    def __str__(self) -> str:
        chunk = "" if self.chunk_coords is None else f" chunk {self.chunk_coords}"
        codec = f" codec {self.codec!r}" if self.codec else ""
        return escaped(f"{self.kind:<12} {self.key}{chunk}{codec}: {one_line(self.reason)}")


@dataclass(frozen=True, slots=True, repr=False)
class Verification:
    """What a verification has found. Prints as a report.

    Attributes
    ----------
    name : str
        Store and path of what was verified.
    problems : tuple of Problem
        What is wrong.
    leftover_files : tuple of Problem
        Objects that belong to no node, such as a README. They harm nothing.
    unchecked : tuple of str
        What could not be checked, and why.
    ngroups, narrays : int
        Numbers of groups and arrays.
    nobjects : int
        Number of stored chunks and shards; of all possible ones, where the store cannot list them.
    nbytes : int
        Decoded bytes of the arrays.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.create_array("checked.zarr", data=[1, 2, 3], chunks=1)
    >>> found = z.verify()
    >>> found.ok
    True
    >>> z.store["c/1"] = b"damaged"
    >>> [(problem.key, problem.chunk_coords, problem.codec) for problem in z.verify().problems]
    [('c/1', (1,), 'zstd')]
    """

    name: str
    problems: tuple[Problem, ...]
    leftover_files: tuple[Problem, ...]
    unchecked: tuple[str, ...]
    ngroups: int
    narrays: int
    nobjects: int
    nbytes: int

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def raise_for_problems(self) -> None:
        """Raise an error if anything is wrong.

        Raises
        ------
        StoreError
            Names the first problems.
        """
        if self.problems:
            more = len(self.problems) - _NAMED
            named = [" ".join(str(problem).split()) for problem in self.problems[:_NAMED]]
            rest = f"; and {more} more" if more > 0 else ""
            raise StoreError(f"{self.name} has {number(len(self.problems), 'problem')}: {'; '.join(named)}{rest}")

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON values.

        Returns
        -------
        dict
            The attributes and ``ok``.
        """
        counts = {name: getattr(self, name) for name in ("ngroups", "narrays", "nobjects", "nbytes")}
        lists = {"problems": list(map(asdict, self.problems)), "leftover_files": list(map(asdict, self.leftover_files))}
        return {"name": self.name, "ok": self.ok, **counts, **lists, "unchecked": list(self.unchecked)}

    def __repr__(self) -> str:
        nodes = f"{number(self.narrays, 'array')}, {number(self.ngroups, 'group')}"
        objects = f"{number(self.nobjects, 'stored object')}, decoded size {size_text(self.nbytes)}"
        verdict = number(len(self.problems), "problem") if self.problems else "no problems"
        return as_lines(
            [
                f"{self.name}: {nodes}, {objects}: {verdict}",
                *map(str, self.problems),
                *map(str, self.leftover_files),
                *(f"not checked: {one_line(reason)}" for reason in self.unchecked),
            ]
        )


def one_line(reason: str) -> str:
    """A reason that an error gave in several lines."""
    return reason.replace("\n", " ")
