"""The array: NumPy-like reads and writes of chunks in a store, on the device that it was opened for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend, BasicSelections, Fields
from gzarr.chunk_io import engine
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.prepare import is_prepared
from gzarr.chunk_io.waves import ReadJob, WriteJob
from gzarr.config import config
from gzarr.display.progress import ProgressLike
from gzarr.errors import ArrayNotFoundError, GzarrError, MetadataError, MissingExtraError, UnknownCodecError
from gzarr.hierarchy.array_views import ViewableArray
from gzarr.hierarchy.asynchronous import AsyncArray, take_over, unwrapped
from gzarr.hierarchy.keywords import ConstructorKeywords
from gzarr.hierarchy.node import same_objects
from gzarr.hierarchy.open_options import OpenedWith, opened_with_settings
from gzarr.hierarchy.reaching import reach_existing, split_positional
from gzarr.hierarchy.resizing import objects_stored
from gzarr.hierarchy.values import broadcast_value, check_out, fields_dtype, native_times, to_array_axes
from gzarr.indexing.keys import join_path
from gzarr.indexing.plan import make_plan
from gzarr.indexing.selection import Points, Selection, normalize_basic
from gzarr.metadata.documents import as_meta, documents, found_instead, read_node
from gzarr.metadata.model import ArrayMeta
from gzarr.storage import open_store
from gzarr.storage.base import Store
from gzarr.tensors import dlpack

if TYPE_CHECKING:
    from gzarr.hierarchy.stats import Stats


class Array(ViewableArray):
    """A chunked, compressed, N-dimensional array.

    ``array[selection]`` reads into a new NumPy array or, on a CUDA device, CuPy array; ``array[selection] = value``
    writes at once. Arrays are made by the functions of `gzarr`; calling the class, as in zarr 2, opens the array in a
    store: ``Array(store, path="foo", read_only=True)``.

    Attributes
    ----------
    store, path : Store and str
        The store, and the path of the array in it; "" is the root.
    metadata : ArrayMeta
        What the array's documents said when it was opened or last changed through this object.
    is_view : bool
        Whether this is a view made by `astype` or `view`, whose metadata are not stored.
    write_empty_chunks : bool
        Whether chunks equal to the fill value are stored.
    read_missing_chunks : bool
        Whether chunks that are not stored are read as the fill value, instead of raising `ChunkNotFoundError`.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.create_array("grid.zarr", shape=(4, 6), chunks=(2, 3), dtype="i4")
    >>> z[1, 1:4] = 5
    >>> z[1]
    array([0, 5, 5, 5, 0, 0], dtype=int32)
    >>> z.nchunks, z.nchunks_initialized
    (4, 2)
    """

    __slots__ = ()

    def __init__(
        self,
        store: Any,
        path: str | None = None,
        metadata: ArrayMeta | None = None,
        opened_with: OpenedWith | Backend | None = None,
        *,
        read_only: bool = False,
        write_empty_chunks: bool | None = None,
        read_missing_chunks: bool | None = None,
        out_dtype: np.dtype[Any] | None = None,
        is_view: bool = False,
        **kwargs: Unpack[ConstructorKeywords],
    ) -> None:
        if path is None or opened_with is None or not isinstance(metadata, ArrayMeta):
            if isinstance(store, AsyncArray) and path is None and not kwargs:
                node: Array = unwrapped(store)
                asked = {"write_empty_chunks": write_empty_chunks, "read_missing_chunks": read_missing_chunks}
                usage = node._options() | {name: value for name, value in asked.items() if value is not None}
                usage["read_only"] |= read_only
                Array.__init__(self, node.store, node.path, node.metadata, node.opened_with, **usage)
                return
            read_only, metadata = split_positional(Array, ArrayMeta, metadata, opened_with, read_only)
            store, path, metadata, opened_with = _reach(store, path, metadata, {**kwargs})
        super().__init__(store, path, metadata, opened_with, read_only=read_only)
        setting = config.get("array.read_missing_chunks") if read_missing_chunks is None else read_missing_chunks
        self.read_missing_chunks = bool(setting)
        backend, chunk_cache, allow_pickle = self.opened_with.reading
        self._bound = None
        if chunk_cache is not None or not is_prepared(metadata, backend, allow_pickle=allow_pickle):
            try:
                self._bound = self._prepared(metadata)
            except (UnknownCodecError, MissingExtraError) as error:
                # The array can still be described; reading or writing it raises this error.
                self._bound = type(error)(str(error))
        self._out_dtype = metadata.data_type.dtype if out_dtype is None else out_dtype
        self.is_view = is_view
        setting = config.get("array.write_empty_chunks") if write_empty_chunks is None else write_empty_chunks
        self.write_empty_chunks = bool(setting)

    @property
    def read_only(self) -> bool:
        """Whether writes through this object are refused. Can be assigned, as in zarr 2; the store may still refuse."""
        return super().read_only

    @read_only.setter
    def read_only(self, value: bool) -> None:
        self._read_only = bool(value)

    # -- reading -------------------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        """Return the whole array as a NumPy array on the host.

        Parameters
        ----------
        dtype : dtype-like, optional
            Data type to convert to. By default the array's.
        copy : bool, optional
            False raises ValueError, as there is nothing to share.

        Returns
        -------
        numpy.ndarray
            All elements.
        """
        if copy is False:
            raise ValueError("a gzarr array cannot become a NumPy array without a copy")
        data = self._read(normalize_basic((), self.shape), None, None)
        return np.asarray(data.get() if hasattr(data, "get") else data, self.dtype if dtype is None else dtype)

    def __dlpack__(self, *, copy: bool | None = None, **kwargs: Any) -> Any:
        """Read the whole array into a tensor on the array's device: for ``from_dlpack`` of NumPy, CuPy, torch and JAX.

        Parameters
        ----------
        copy : bool, optional
            False raises BufferError, as there is nothing to share.
        **kwargs
            Arguments of the protocol, handed to the NumPy or CuPy array that was read.

        Returns
        -------
        capsule
            The tensor.

        Raises
        ------
        BufferError
            If ``copy`` is false, or DLPack lacks the data type.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> np.from_dlpack(gzarr.array([1, 2, 3]))
        array([1, 2, 3])
        """
        if copy is False:
            raise BufferError("a gzarr array cannot be exported without a copy")
        data = self._read(normalize_basic((), self.shape), None, None)
        tensor = data if hasattr(data, "__dlpack__") else np.asarray(data)
        # Leave out arguments that are None: not every version of the libraries takes them.
        return dlpack(tensor, **{name: value for name, value in kwargs.items() if value is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind and number of the device that `__dlpack__` reads to."""
        kind, number = self.backend.empty((0,), self.dtype).__dlpack_device__()
        return int(kind), int(number)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-dimensional array")
        return self.shape[0]

    def __iter__(self) -> Iterator[AnyArray]:
        if not self.shape:
            raise TypeError("iteration over a 0-dimensional array")
        return self._rows(0, self.shape[0])

    def _rows(self, start: int, end: int) -> Iterator[AnyArray]:
        """Iterate over sub-arrays along the first axis; the chunks of each row of chunks are read once."""
        bounds = self.metadata.chunk_grid[0].bounds
        parts = (bounds(i) for i in range(self.metadata.chunk_grid[0].nchunks))
        return (
            row for low, high in parts if low < end and high > start for row in self[max(low, start) : min(high, end)]
        )

    def islice(self, start: int | None = None, end: int | None = None) -> Iterator[AnyArray]:
        """Iterate over sub-arrays along the first axis, reading each chunk once.

        Parameters
        ----------
        start, end : int, optional
            The first index, and the index before which to stop. By default the whole axis; an ``end`` past it means its
            end, and one before ``start`` gives nothing.

        Returns
        -------
        iterator of numpy.ndarray or cupy.ndarray
            Sub-arrays on the array's device.

        Raises
        ------
        ValueError
            If one is negative or no integer.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.array([[1, 2], [3, 4], [5, 6]])
        >>> [row.tolist() for row in z.islice(1)]
        [[3, 4], [5, 6]]
        """
        nrows = len(self)
        start, end = 0 if start is None else start, nrows if end is None else min(end, nrows)
        if not all(isinstance(n, (int, np.integer)) and n >= 0 for n in (start, end)):
            raise ValueError(f"islice from {start} to {end} of an array of {nrows} rows; expected integers, at least 0")
        return self._rows(start, end)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise ValueError("the truth value of an array with more than one element is ambiguous")
        return bool(self._scalar())

    def __int__(self) -> int:
        return int(self._scalar())

    def __float__(self) -> float:
        return float(self._scalar())

    # -- other ways to the same array ------------------------------------------------------------------------------

    @property
    def async_array(self) -> AsyncArray:
        """The same array for callers that await."""
        return AsyncArray(self)

    @classmethod
    def open(cls, store: Any, zarr_format: int | None = None) -> Self:
        """Open the array in a store.

        Parameters
        ----------
        store : Store, StorePath, Group, path, URL or mapping
            Where the array is stored.
        zarr_format : {2, 3}, optional
            Format to look for. By default both.

        Returns
        -------
        Array
            The array.

        Raises
        ------
        ArrayNotFoundError
            If no array is stored there.
        """
        return cls(store) if zarr_format is None else cls(store, zarr_version=zarr_format)

    @classmethod
    def from_dict(cls, store_path: Any, data: Any) -> Self:
        """Return the array that a document describes, which need not be stored.

        Parameters
        ----------
        store_path : Store, StorePath, path, URL or mapping
            Where the chunks are.
        data : mapping or metadata
            What ``array.metadata.to_dict()`` gives, or metadata of gzarr or zarr-python.

        Returns
        -------
        Array
            The array.

        Raises
        ------
        MetadataError
            If the document is malformed, or that of a group.
        """
        opened, path = open_store(store_path)
        meta = as_meta(data)
        if not isinstance(meta, ArrayMeta):
            raise MetadataError(f"{join_path(str(opened), path)}: expected the metadata of an array, got a group's")
        return cls(opened, path, meta, opened_with_settings())

    def stats(
        self,
        bins: int | None = None,
        range: tuple[float, float] | None = None,
        *,
        skip: Any = None,
        max_nbytes: int = 256 << 20,
        progress: ProgressLike = None,
    ) -> Stats:
        """Compute the least and the greatest element, mean and standard deviation, without loading the array.

        Chunks are read by several threads, each once; those that are not stored are counted without being read. Means
        of integers are exact before they are rounded.

        Parameters
        ----------
        bins : int, optional
            Number of bins of a histogram. By default there is none. Without ``range``, arrays of other types than
            integers of 8 and 16 bits are read twice.
        range : tuple of float, optional
            Where the first bin begins, and the last one ends. By default the least and the greatest element.
        skip : number, array of bool or False, optional
            Elements that are missing, which are left out: those that equal a number, or a mask of the array's shape, in
            memory or of gzarr. By default those that the attribute ``nodata`` names; False for none.
        max_nbytes : int
            Memory for decoded chunks.
        progress : bool or callable, optional
            True for a bar in the terminal; or a function of (bytes done, bytes in all, path of the array).

        Returns
        -------
        Stats
            ``count``, ``n_nan``, ``min``, ``max``, ``mean``, ``std``, ``histogram`` and ``n_missing``. NaNs count as
            ``n_nan`` only, those that are missing as ``n_missing``.

        Raises
        ------
        MetadataError
            If the elements are not real numbers.
        ValueError
            If no element can be the number that is skipped, or a mask has another shape.
        ChunkError
            If a stored chunk is damaged.

        Examples
        --------
        >>> import gzarr
        >>> stats = gzarr.array([1, 2, 3, 6]).stats(bins=2)
        >>> stats.min, stats.max, stats.mean, stats.histogram[0]
        (1, 6, 3.0, array([3, 1]))
        """
        from gzarr.hierarchy.stats import stats_of  # few programs ask

        return stats_of(self, bins, range, max_nbytes, progress, skip)

    def digest(self, hashname: str = "sha1") -> bytes:
        """Compute a hash of the stored chunks and metadata, without decoding them.

        Parameters
        ----------
        hashname : str
            Name of a hash function of `hashlib`.

        Returns
        -------
        bytes
            The hash, equal for arrays whose stored bytes are equal. For v2 it is that of zarr 2.
        """
        import hashlib

        digest = hashlib.new(hashname)
        layout = self._io.layout
        for coords in sorted(objects_stored(self.metadata, self.store, self.path)):
            digest.update(self.store[layout.key(coords)])
        for _, data in sorted(documents(self.metadata, "")):
            digest.update(data)
        return digest.digest()

    def hexdigest(self, hashname: str = "sha1") -> str:
        """Compute `digest` as hexadecimal digits.

        Parameters
        ----------
        hashname : str
            Name of a hash function of `hashlib`.

        Returns
        -------
        str
            The hash.
        """
        return self.digest(hashname).hex()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Array)
            and self.path == other.path
            and self.read_only == other.read_only
            and self.metadata.shape == other.metadata.shape
            and self.dtype == other.dtype
            and same_objects(self.store, other.store)
        )

    def __hash__(self) -> int:
        return hash((self.path, self.metadata.shape))

    def __reduce__(self) -> tuple[Any, ...]:
        meta = self.metadata if self.is_view else None
        return _reopen, (self.store, self.path, meta, self.opened_with, self._options())

    def __dask_tokenize__(self) -> Any:
        from dask.base import normalize_token  # only Dask calls this

        return normalize_token((self.store, self.path, documents(self.metadata, ""), self._out_dtype, self.device))

    def __repr__(self) -> str:
        return f"<Array {self.store_path} shape={self.shape} dtype={self.dtype}>"

    # -- inside --------------------------------------------------------------------------------------------------

    def require_codecs(self) -> None:
        """Raise what reading would raise if a codec is missing: UnknownCodecError or MissingExtraError."""
        _ = self._io

    def _ready(self) -> ArrayIO | None:
        """The array as the engine reads it; None where reading raises an error, which it does then."""
        try:
            return self._io if self.read_missing_chunks else None
        except GzarrError:
            return None

    def _read(self, selection: Selection, fields: Fields, out: AnyArray) -> AnyArray:
        job, result = self._read_job(selection, fields, out)
        engine.read((job,))
        return self._finish_read(selection, job, result, out)

    def _basic(self) -> BasicSelections | None:
        bound = self._io if self._bound is None else self._bound
        return bound.compiled.basic() if type(bound) is ArrayIO and bound.compiled is not None else None

    def _read_job(self, selection: Selection, fields: Fields, out: AnyArray) -> tuple[ReadJob, AnyArray]:
        """Prepare a read. Returns: what the engine reads, and the result, which `_finish_read` finishes."""
        fields = fields or None
        dtype = self._out_dtype if fields is None else fields_dtype(self._out_dtype, fields)
        io = self._io
        if out is None:
            result = io.backend.empty(selection.shape, dtype)
        else:
            result = check_out(io.backend.adopt_out(out), selection.shape, dtype)
            if result.dtype.kind in "mM":
                result = native_times(result)
        return ReadJob(io, make_plan(selection, io.layout.grid), to_array_axes(result, selection), fields), result

    def _finish_read(self, selection: Selection, job: ReadJob, result: AnyArray, out: AnyArray) -> AnyArray:
        """Return what a caller gets, once the engine has done a job of `_read_job`. out: of that."""
        if out is not None:
            if isinstance(selection, Points) and not np.may_share_memory(job.out, result):
                result[...] = job.out.reshape(result.shape)
            if result.dtype.kind in "mM" and result.dtype != out.dtype:
                result[...] = result.byteswap()
            return out
        return result[()] if not selection.shape and isinstance(result, np.ndarray) else result

    def _write(self, selection: Selection, value: Any, fields: Fields) -> None:
        engine.write((self._write_job(selection, value, fields),))

    def _write_basic(self, basic: BasicSelections, key: Any, value: Any) -> bool:
        if self._out_dtype != self.metadata.data_type.dtype:
            return False
        self.check_writable()
        return basic.write(key, value, keep_empty=self.write_empty_chunks)

    def _write_job(self, selection: Selection, value: Any, fields: Fields) -> WriteJob:
        self.check_writable()
        if self._out_dtype != self.metadata.data_type.dtype:
            raise MetadataError(f"{self.store_path}: a view made by astype is read-only; write to the array")
        fields = fields or None
        dtype = self._out_dtype if fields is None else fields_dtype(self._out_dtype, fields)
        io = self._io
        plan = make_plan(selection, io.layout.grid)
        return WriteJob(io, plan, broadcast_value(value, dtype, selection, self), fields, self.write_empty_chunks)

    def _scalar(self) -> Any:
        if self.size != 1:
            raise TypeError("only arrays of one element can be converted to a Python scalar")
        return self[(0,) * self.ndim]

    def _options(self) -> dict[str, Any]:
        """Return keywords of the constructor that make an array like this one."""
        given = {"read_only": self._read_only, "write_empty_chunks": self.write_empty_chunks}
        given["read_missing_chunks"] = self.read_missing_chunks
        return {**given, "is_view": True, "out_dtype": self._out_dtype} if self.is_view else given

    def _with(self, meta: ArrayMeta, opened_with: OpenedWith | None = None, **options: Any) -> Self:
        """Return the array with other metadata or on another device."""
        options = {**self._options(), **options}
        return type(self)(self.store, self.path, meta, opened_with or self.opened_with, **options)


def _reach(
    store: Any, path: str | None, metadata: ArrayMeta | None, keywords: dict[str, Any]
) -> tuple[Store, str, ArrayMeta, OpenedWith]:
    """Find the array in a store. Raises ArrayNotFoundError, MetadataError, TypeError."""
    opened, where, meta, opened_with = reach_existing(Array.__init__, store, path, metadata, keywords)
    if not isinstance(meta, ArrayMeta):
        raise ArrayNotFoundError(f"no array at {join_path(str(opened), where)!r}: {found_instead(opened, where, meta)}")
    return opened, where, meta, opened_with


def _reopen(store: Store, path: str, meta: ArrayMeta | None, opened_with: OpenedWith, options: dict[str, Any]) -> Array:
    """Open a pickled array again, a view with its metadata. Raises ArrayNotFoundError or MetadataError."""
    found = read_node(store, path) if meta is None else meta
    if not isinstance(found, ArrayMeta):
        raise ArrayNotFoundError(f"no array at {join_path(str(store), path)!r}: {found_instead(store, path, found)}")
    return Array(store, path, found, opened_with, **options)


take_over(AsyncArray, Array)
