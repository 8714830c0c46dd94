"""Tables of chunks that are made when they are first asked for, as a hierarchy may have many arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from gzarr.concurrency import new_lock
from gzarr.virtual.store import Chunks


class LazyTables(Mapping[str, Chunks]):
    """The tables of arrays by path, each made when it is first asked for.

    Parameters
    ----------
    paths : sequence of str
        Of the arrays.
    make : callable
        Makes the table of one.
    """

    def __init__(self, paths: Sequence[str], make: Callable[[str], Chunks]) -> None:
        self._made: dict[str, Chunks | None] = dict.fromkeys(paths)
        self._make, self._lock = make, new_lock()  # as tables number the objects that they share

    def __getitem__(self, path: str) -> Chunks:
        made = self._made[path]
        if made is None:
            with self._lock:
                made = self._made[path]
                if made is None:
                    made = self._made[path] = self._make(path)
        return made

    def __contains__(self, path: object) -> bool:
        return path in self._made

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)
