"""Functions that check what is stored: verify, repair and compare hierarchies."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gzarr.api.open import open as open_node
from gzarr.checking.chunks import verify_place
from gzarr.checking.compare import Comparison, compare_places
from gzarr.checking.repair import Repair, Repairable, repair_found
from gzarr.checking.report import Place, Verification
from gzarr.checking.values import Tolerance
from gzarr.devices import backend_for
from gzarr.display.progress import ProgressLike
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.hierarchy.keywords import OpenMode
from gzarr.hierarchy.reaching import close_if_opened_here, open_place


def verify(
    store: Any,
    *,
    path: str | None = None,
    progress: ProgressLike = None,
    allow_pickle: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    on: Any = None,
    part: tuple[int, int] | None = None,
) -> Verification:
    """Read and check everything that is stored of an array, or of a group and all below it.

    Every chunk is decoded, on the CPU, with its checksums and sizes. A bad chunk does not end the verification. Indexes
    of shards, documents and consolidated metadata are checked too, and objects that nothing reads are named. Nothing
    is changed. Memory is bounded, whatever the size of the arrays.

    Parameters
    ----------
    store : Array, Group, Store, path, URL or mapping
        What to verify.
    path : str, optional
        Path of the array or group in the store.
    progress : bool or callable, optional
        True for a bar in the terminal; or a function of (bytes done, bytes in all, path of the array).
    allow_pickle : bool
        Whether pickled objects are loaded. Loading a pickle can run any code, so allow it for trusted data only.
    storage_options : mapping, optional
        Options for the server of a URL.
    on : optional
        What decodes the chunks, such as a `distributed.Client`: see `gzarr.transfer`.
    part : (int, int), optional
        Which part of the chunks is decoded here, ``(k, n)`` with k from 0; everything else is checked by each.

    Returns
    -------
    Verification
        What is wrong; ``found.ok`` if nothing is.

    Raises
    ------
    NodeNotFoundError
        If nothing is stored there.
    StoreError
        If the store cannot be read at all.

    Examples
    --------
    >>> import gzarr
    >>> root = gzarr.group("survey.zarr")
    >>> z = root.create_array("speed", data=[1.0, 2.5], chunks=1)
    >>> z.store["speed/c/0"] = b"damaged"
    >>> found = gzarr.verify("survey.zarr")
    >>> found.ok, [problem.key for problem in found.problems]
    (False, ['speed/c/0'])
    """
    with _opened(store, path, "r", storage_options, allow_pickle=allow_pickle) as place:
        return verify_place(place, progress, on, part)


def repair(
    store: Any,
    *kinds: Repairable,
    path: str | None = None,
    remove: Iterable[str] = (),
    apply: bool = False,
    progress: ProgressLike = None,
    allow_pickle: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Repair:
    """Verify, and repair what is asked for; by default only say what would be done.

    Parameters
    ----------
    store : Array, Group, Store, path, URL or mapping
        What to repair.
    *kinds : {"chunks", "leftovers", "consolidated"}
        What to repair. "chunks" drops chunks that cannot be decoded, which then read as the fill value; of a shard
        only the bad ones, if its index is sound. "leftovers" deletes what killed writers have left, and chunks outside
        of their array. "consolidated" consolidates metadata again.
    path : str, optional
        Path of the array or group in the store.
    remove : iterable of str
        Keys of other leftover files to delete, as the verification lists them. Files that gzarr did not write are
        deleted only if they are named here.
    apply : bool
        Whether to do it.
    progress : bool or callable, optional
        As in `verify`.
    allow_pickle : bool
        As in `verify`.
    storage_options : mapping, optional
        Options for the server of a URL.

    Returns
    -------
    Repair
        What was done, or would be done, and the problems that are left.

    Raises
    ------
    NodeNotFoundError
        If nothing is stored there.
    ReadOnlyError
        If the store was opened for reading.
    ValueError
        If a kind is unknown, or a name in ``remove`` is no leftover file.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.create_array("broken.zarr", data=[1, 2, 3], chunks=1)
    >>> z.store["c/1"] = b"damaged"
    >>> gzarr.repair("broken.zarr", "chunks")
    dry run: would do 1 repair, 0 problems left
    drop chunk (1,): c/1
    >>> gzarr.repair("broken.zarr", "chunks", apply=True).ok
    True
    >>> z[...]
    array([1, 0, 3])
    """
    with _opened(store, path, "r+" if apply else "r", storage_options, allow_pickle=allow_pickle) as place:
        return repair_found(place, verify_place(place, progress), kinds, remove, apply=apply)


def compare(
    a: Any,
    b: Any,
    *,
    rtol: float = 0.0,
    atol: float = 0.0,
    strict: bool = False,
    metadata_only: bool = False,
    progress: ProgressLike = None,
    on: Any = None,
    part: tuple[int, int] | None = None,
) -> Comparison:
    """Compare two arrays, or two groups and all below them: members, metadata and values.

    Shapes, dtypes, fill values, attributes, dimension names and values count; NaN equals NaN. Chunks, shards, codecs
    and the format may differ: such differences are listed apart. Memory is bounded, whatever the size of the arrays.

    Parameters
    ----------
    a, b : Array, Group, Store, path, URL or mapping
        What to compare.
    rtol, atol : float
        Numbers are equal if ``abs(a - b) <= atol + rtol * abs(b)``. By default they must be exactly equal.
    strict : bool
        Whether differences of chunks, codecs and format count.
    metadata_only : bool
        Whether values are left out.
    progress : bool or callable, optional
        True for a bar in the terminal; or a function of (bytes done, bytes in all, path of the array).
    on : optional
        What decodes the chunks, such as a `distributed.Client`: see `gzarr.transfer`.
    part : tuple of int, optional
        Which part of the values is compared here, as of `verify`: they are equal if each part says so.

    Returns
    -------
    Comparison
        What differs; true if nothing does.

    Raises
    ------
    NodeNotFoundError
        If nothing is stored at one of the places.
    MetadataError
        If stored metadata are malformed.

    Examples
    --------
    >>> import gzarr
    >>> a, b = gzarr.array([1.0, 2.0, 3.0], chunks=1), gzarr.array([1.0, 2.5, 3.0], chunks=2)
    >>> found = gzarr.compare(a, b)
    >>> found.equal, str(found.differences[0])
    (False, '/: values: 1 of 3 elements differ; the largest difference is 0.5; first: 2.0 != 2.5 at (1,)')
    >>> gzarr.compare(a, b, atol=0.5).equal
    True
    """
    places = [_place_of(what if isinstance(what, (Array, Group)) else open_node(what, "r")) for what in (a, b)]
    try:
        how: Any = {"strict": strict, "metadata_only": metadata_only, "on": on, "part": part}
        return compare_places(places[0], places[1], Tolerance(rtol, atol), progress, **how)
    finally:
        for given, place in zip((a, b), places, strict=True):
            close_if_opened_here(given, place.store)


def _place_of(node: Array | Group) -> Place:
    return Place(node.store, node.path, node.backend.host, node.opened_with.allow_pickle)


@contextmanager
def _opened(
    store: Any, path: str | None, mode: OpenMode, storage_options: Mapping[str, Any] | None, *, allow_pickle: bool
) -> Iterator[Place]:
    """The place that a call names. A store that is opened here is closed at the end."""
    opened, where = open_place(store, path, mode, {"storage_options": storage_options})
    if isinstance(store, (Array, Group)):
        allow_pickle = allow_pickle or store.opened_with.allow_pickle
    try:
        yield Place(opened, where, backend_for("cpu"), allow_pickle)
    finally:
        close_if_opened_here(store, opened)
