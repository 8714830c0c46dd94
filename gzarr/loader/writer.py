"""`gzarr.Writer`: rows of arrays out of batches in any order, stored as whole chunks and shards.

Theory of operation. An array is cut along axis 0 into blocks of whole stored objects. Copies of the rows of batches
wait in their blocks; one that is complete is put together and stored on a thread of its own. If memory does not suffice
for more rows, the fullest blocks are stored in part. Rows count as stored once their write has ended, and that is all
there is to know about progress.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple, Self

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import run_ahead
from gzarr.concurrency import Pool, new_lock, reraise
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.indexing.grid import RegularAxis
from gzarr.indexing.selection import Indices
from gzarr.loader.arrays import io_of
from gzarr.loader.feeds import Bools
from gzarr.loader.pool import parse_memory
from gzarr.loader.sources import collect, flatten
from gzarr.loader.state import checksum_of_rows
from gzarr.tensors import to_host

#: Small objects are stored together: so many bytes a block, and this share of the memory at most.
BLOCK_NBYTES, BLOCK_SHARE = 16 << 20, 16


class _Block(NamedTuple):
    """Rows of one array on their way: the first one, parts of batches with their places, and which rows there are."""

    first: int
    parts: list[tuple[Indices, Any]]
    given: Bools


class _Target:
    """An array that is written: its open blocks by number, and which rows are stored."""

    def __init__(self, array: Array, memory: int) -> None:
        array.check_writable()
        self.array, self.row_nbytes = array, prod(array.shape[1:]) * array.dtype.itemsize
        axis = io_of(array).layout.objects[0]
        if isinstance(axis, RegularAxis):
            wanted = min(BLOCK_NBYTES, memory // BLOCK_SHARE) // max(axis.length * self.row_nbytes, 1)
            axis = RegularAxis(axis.extent, axis.length * max(min(wanted, axis.nchunks), 1))
        self.axis = axis
        self.empty: Callable[[tuple[int, ...], Any], Any] | None = None  # where blocks are: where values are
        self.open: dict[int, _Block] = {}
        self.stored: Bools = np.zeros(len(array), np.bool_)

    def checked(self, name: str, values: Any, n: int) -> AnyArray:
        """Values of rows, where the array is. Raises: TypeError, ValueError."""
        array = self.array
        made = array.backend.asarray(values, array.dtype)
        self.empty = self.empty or (np.empty if isinstance(made, np.ndarray) else array.backend.empty)
        if self.empty is np.empty:
            made = to_host(made)
        elif isinstance(made, np.ndarray):
            raise TypeError(
                f"values of {name!r} were on a device before, and are now on the host: give all of one kind"
            )
        if tuple(made.shape) != (n, *array.shape[1:]):
            raise ValueError(f"values of {name!r} have shape {made.shape}; expected {(n, *array.shape[1:])}")
        if made.dtype != array.dtype and not np.can_cast(made.dtype, array.dtype, "same_kind"):
            raise TypeError(f"values of {name!r} are {made.dtype}, the array is {array.dtype}: convert them")
        return made

    def new_block(self, number: int) -> _Block:
        """Open a block."""
        first, last = self.axis.bounds(number)
        n = min(last, len(self.stored)) - first
        return self.open.setdefault(number, _Block(first, [], np.zeros(n, np.bool_)))

    def store(self, block: _Block, ended: deque[None]) -> None:
        """Write the rows of a block that there are; ``ended`` gets an item."""
        first, parts, given = block
        try:
            values: Any = (self.empty or np.empty)((len(given), *self.array.shape[1:]), self.array.dtype)
            for inside, part in parts:
                values[inside] = part
            if given.all():
                self.array[first : first + len(given)] = values
            else:
                rows = np.flatnonzero(given)
                self.array.oindex[rows + first] = values[rows]
            self.stored[first : first + len(given)] |= given
        finally:
            ended.append(None)


class Writer:
    """Rows of arrays, such as predictions, out of batches in any order.

    Batches are gathered until whole chunks and shards are complete, which are written once, by a thread of their own.
    The memory of a batch may be used again as soon as `write` returns. Leaving ``with`` stores the rest and raises what
    failed.

    Parameters
    ----------
    out : Array, dict or Group
        What is written: an array, or arrays by name of equally many rows; values are then dicts.
    memory : int or str
        The most memory for rows that wait, besides a row of chunks or shards: bytes, "512 MiB", or a share of the
        arrays such as "35 %". If it does not suffice, rows are stored in part (`n_parts`), and their chunks or shards
        written more than once.
    complete : bool
        Whether `close` raises if rows are missing. False for a writer of some of the rows, such as that of a rank.

    Raises
    ------
    ValueError
        If memory does not suffice for one row of chunks or shards, or the arrays differ in length.
    ReadOnlyError
        If an array was opened for reading.

    Examples
    --------
    >>> import gzarr, numpy as np
    >>> loader = gzarr.Loader(gzarr.array(np.arange(100)), batch_size=32, shuffle=True)
    >>> out = gzarr.zeros(100, chunks=10)
    >>> with gzarr.Writer(out) as writer:
    ...     for step, batch in enumerate(loader):
    ...         writer.write(loader.batch_ids(step), 2 * batch)
    >>> out[:4]
    array([0., 2., 4., 6.])
    """

    def __init__(
        self, out: Array | Group | Mapping[str, Array], *, memory: int | str = "1 GiB", complete: bool = True
    ) -> None:
        arrays, self._names = collect(out)
        for name, array in arrays.items():
            if not isinstance(array, Array):
                raise TypeError(f"Writer: {name!r} must be a gzarr array, got {type(array).__name__}")
        if len({len(array) for array in arrays.values()}) > 1:
            lengths = ", ".join(f"{name!r} {len(array)}" for name, array in arrays.items())
            raise ValueError(f"Writer: arrays must have equally many rows, got {lengths}")
        self._memory = parse_memory(memory, sum(array.nbytes for array in arrays.values()))
        self._targets = {name: _Target(array, self._memory // len(arrays)) for name, array in arrays.items()}
        for name, target in self._targets.items():
            _check_memory(name, target, self._memory)
        self._given: Bools = np.zeros(len(next(iter(arrays.values()))), np.bool_)
        self._complete, self._closed = complete, False
        self._threads, self._lock = Pool(), new_lock()
        self._writes: deque[tuple[Callable[[], None], _Block, int]] = deque()  # in the order in which they end
        self._ended: deque[None] = deque()
        self._nbytes = 0
        self._error: Exception | None = None
        self.n_parts = 0

    def write(self, ids: Any, values: Any) -> None:
        """Take some rows. They are stored later; what fails then is raised by a later call, or by `close`.

        Parameters
        ----------
        ids : array of int
            Their numbers, as `Loader.batch_ids` gives those of rows. Windows and crops of a part of a split have
            numbers of their own: use `Loader.batch_starts` for these.
        values : array or dict of arrays
            Their values, of any library, on the host or on a device.

        Raises
        ------
        ValueError
            If a row was given before, or values are not of the array's shape. Then none of the rows is taken.
        IndexError
            If there is no such row.
        """
        with self._lock:
            if self._closed:
                raise ValueError("the writer is closed; make another one, and give it the state of this one")
            while self._ended or (self._error is not None and self._writes):
                self._finish()
            reraise(self._error)
            rows = self._checked(ids)
            named = dict.fromkeys(self._targets, values)
            if self._names is not None:
                given = dict(flatten(values)) if isinstance(values, Mapping) else {}
                if set(given) != set(self._names.values()):
                    raise ValueError(f"Writer: expected values of {', '.join(map(repr, self._targets))}")
                named = {name: given[path] for name, path in self._names.items()}
            made = {name: target.checked(name, named[name], len(rows)) for name, target in self._targets.items()}
            self._given[rows] = True
            for name, target in self._targets.items():
                self._take(target, rows, made[name])

    def _checked(self, ids: Any) -> Indices:
        rows, n = np.asarray(to_host(ids)), len(self._given)
        if not rows.size:
            return np.empty(0, np.int64)
        if rows.ndim != 1 or rows.dtype.kind not in "iu":
            raise TypeError(f"Writer: ids must be integers, one for each row, got {rows.dtype} {rows.shape}")
        rows = rows.astype(np.int64)
        bad = np.flatnonzero((rows < 0) | (rows >= n))
        if len(bad):
            raise IndexError(f"Writer: there is no row {rows[bad[0]]}; expected 0 to {n - 1}")
        twice = rows[self._given[rows]]
        if not len(twice):
            numbers, counts = np.unique(rows, return_counts=True)
            twice = numbers[counts > 1]
        if len(twice):
            raise ValueError(
                f"Writer: row {twice[0]} is written twice, and {len(twice) - 1} others of this batch; to go on with "
                "a job, give its loader sampler=writer.missing()"
            )
        return rows

    def _take(self, target: _Target, rows: Indices, values: AnyArray) -> None:
        """Copy rows to their blocks, and begin to store those that are complete."""
        numbers = target.axis.locate_all(rows)
        order = np.argsort(numbers, kind="stable")
        for at in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1) if len(order) else ():
            number = int(numbers[at[0]])
            self._make_room(len(at) * target.row_nbytes)
            block = target.open.get(number) or target.new_block(number)
            inside = rows[at] - block.first
            block.parts.append((inside, values[at]))  # a copy
            block.given[inside] = True
            if block.given.all():
                self._store(target, number)

    def _make_room(self, nbytes: int) -> None:
        while self._nbytes + nbytes > self._memory and self._nbytes:
            if not self._writes:
                self._store_some()
            self._finish()
        self._nbytes += nbytes

    def _store_some(self) -> None:
        """Begin to store the fullest blocks, a quarter of all."""
        fullest = sorted(
            ((-np.count_nonzero(block.given) * target.row_nbytes, number, name))
            for name, target in self._targets.items()
            for number, block in target.open.items()
        )
        for _, number, name in fullest[: len(fullest) // 4 + 1]:
            self._store(self._targets[name], number)

    def _store(self, target: _Target, number: int) -> None:
        block = target.open.pop(number)
        self.n_parts += not block.given.all()
        wait = run_ahead(target.array.backend, self._threads, 1, partial(target.store, block, self._ended))
        self._writes.append((wait, block, int(np.count_nonzero(block.given)) * target.row_nbytes))

    def _finish(self) -> None:
        """Wait for the oldest write. Raises: what it, or one before it, has raised."""
        wait, _, nbytes = self._writes.popleft()  # a stream may read the block until it has waited
        try:
            wait()
        except Exception as error:  # noqa: BLE001 - raised below, and by every later call
            self._error = self._error or error
        if self._ended:
            self._ended.popleft()
        self._nbytes -= nbytes
        reraise(self._error)

    def flush(self) -> None:
        """Store all rows that were given, in part where blocks are incomplete, and wait for it.

        Raises
        ------
        Exception
            What a write has failed with. Its rows are `missing`.
        """
        with self._lock:
            for target in self._targets.values():
                for number in list(target.open):
                    self._store(target, number)
            while self._writes:
                try:
                    self._finish()
                except Exception:
                    if not self._writes:
                        raise
            reraise(self._error)

    def close(self) -> None:
        """Store all rows that were given, and check that there are no others.

        Raises
        ------
        ValueError
            If rows are missing and ``complete`` is true.
        Exception
            What a write has failed with.
        """
        if self._closed:
            return
        self._closed = True
        self.flush()
        missing = self.missing()
        if self._complete and len(missing):
            raise ValueError(
                f"Writer: {len(missing)} of {len(self._given)} rows were never written, the first is {missing[0]}; "
                "go on with Loader(..., sampler=writer.missing()), or give complete=False"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
            return
        self._closed = True
        try:
            self.flush()  # rows that the caller's loop has computed are good
        except Exception as other:  # noqa: BLE001 - the caller's error is the first
            error.add_note(f"Writer: rows could not be stored: {other}")

    def missing(self) -> Indices:
        """Return the rows that are not stored yet: a ``sampler`` for the loader of the rest of a job.

        Returns
        -------
        numpy.ndarray
            Their numbers, int64, ascending.
        """
        return np.flatnonzero(~self._stored())

    def _stored(self) -> Bools:
        stored: Bools = np.logical_and.reduce([target.stored for target in self._targets.values()])
        return stored

    def state_dict(self) -> dict[str, Any]:
        """Return which rows are stored. Rows that wait in memory are not among them: `flush` stores those.

        Returns
        -------
        dict
            Numbers and lists, which JSON can store.
        """
        stored = self._stored()
        edges = np.flatnonzero(np.diff(stored, prepend=False, append=False))
        told = {"version": 1, "rows": len(self._given), "stored": edges.reshape(-1, 2).tolist()}
        return told | {"contents": self._contents(stored)}

    def _contents(self, stored: Bools) -> dict[str, int]:
        """By name of array, a checksum of a part of some of the rows that are stored."""
        rows = np.flatnonzero(stored)
        return {name: checksum_of_rows(target.array, rows) for name, target in self._targets.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with arrays in which some rows are stored.

        Parameters
        ----------
        state : dict
            What `state_dict` gave, of this writer or one of a process that ended.

        Raises
        ------
        ValueError
            If the state is of other arrays, of another length or without its rows, or rows were given to this writer.
        """
        if not isinstance(state, Mapping) or state.get("version") != 1 or state.get("rows") != len(self._given):
            raise ValueError(f"Writer: expected a state of arrays of {len(self._given)} rows, got {state!r:.200}")
        if self._given.any():
            raise ValueError("Writer: rows were written; load a state into a new writer")
        edges = np.array(state["stored"], np.int64).reshape(-1)
        if len(edges) % 2 or (np.diff(edges, prepend=0, append=len(self._given)) < 0).any():
            raise ValueError(f"Writer: the state tells of impossible rows: {state!r:.200}")
        there = np.zeros(len(self._given), np.bool_)
        for first, last in edges.reshape(-1, 2).tolist():
            there[first:last] = True
        for name, checksum in self._contents(there).items():
            if (state.get("contents") or {}).get(name) != checksum:
                where = self._targets[name].array.store_path
                raise ValueError(
                    f"Writer: {where} does not have the rows that the state tells of: it was made anew, or is another "
                    "one; open the array that was written, or begin without a state"
                )
        for mask in (self._given, *[target.stored for target in self._targets.values()]):
            mask[there] = True

    def __repr__(self) -> str:
        return f"<Writer: {np.count_nonzero(self._stored())} of {len(self._given)} rows stored>"


def _check_memory(name: str, target: _Target, memory: int) -> None:
    """Raise ValueError if there is no memory for a block."""
    largest = max(last - first for first, last in map(target.axis.bounds, range(max(target.axis.nchunks, 1))))
    if largest * target.row_nbytes > memory:
        raise ValueError(
            f"memory={memory} bytes are less than a row of chunks or shards of {name!r} takes: give "
            f"memory={largest * target.row_nbytes} or more"
        )
