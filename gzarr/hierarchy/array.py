"""The array: NumPy-like reads and writes of chunks in a store, on the device that it was opened for.

The class holds the state and the documentation. The work is done by functions of other modules, by topic:
``selecting``, ``resizing``, ``array_views``, ``array_info``, ``stats``.
"""

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

import numpy as np

from gzarr.backend import Array as AnyArray
from gzarr.backend import Backend, Fields
from gzarr.chunk_io.array_io import ArrayIO
from gzarr.chunk_io.prepare import is_prepared, prepare_array
from gzarr.codecs.spec import CodecSpec
from gzarr.concurrency import new_lock
from gzarr.config import config
from gzarr.display.info import PlacementReport, Report
from gzarr.display.progress import ProgressLike
from gzarr.errors import ArrayNotFoundError, GzarrError, MissingExtraError, UnknownCodecError
from gzarr.hierarchy import array_info, selecting
from gzarr.hierarchy.array_info import casting_dtype, view_metadata
from gzarr.hierarchy.asynchronous import AsyncArray, take_over, unwrapped
from gzarr.hierarchy.keywords import ConstructorKeywords, DeviceKeywords
from gzarr.hierarchy.node import Node, Sized, same_objects
from gzarr.hierarchy.options import ArrayConfig, OpenedWith, given_config
from gzarr.hierarchy.reaching import reach_existing, split_positional
from gzarr.hierarchy.region_writing import RegionWriter, regions_of
from gzarr.hierarchy.resizing import append_to, resize_array
from gzarr.hierarchy.threads import run_in_thread
from gzarr.indexing.chunking import parse_shape
from gzarr.indexing.grid import nchunks
from gzarr.indexing.regions import Regions
from gzarr.indexing.selection import (
    normalize,
    normalize_basic,
    normalize_mask,
    normalize_orthogonal,
    normalize_vindex,
    split_fields,
)
from gzarr.metadata.documents import documents, expect_array, read_node, split_codecs
from gzarr.metadata.model import ArrayMeta
from gzarr.storage.base import Store
from gzarr.tensors import dlpack

if TYPE_CHECKING:
    from gzarr.chunk_io.chunk_cache import ChunkCache
    from gzarr.hierarchy.lazy_views import LazyView
    from gzarr.hierarchy.stats import Stats

#: Arrays are prepared for reading one after another.
_preparing = new_lock()


class Array(Sized, Node[ArrayMeta]):
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

    _metadata_kind = ArrayMeta
    __slots__ = ("_bound", "_out_dtype", "is_view", "read_missing_chunks", "write_empty_chunks")
    _bound: ArrayIO | GzarrError | None  # None until it is needed, as most of many arrays are opened in vain

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
            store, path, meta, opened_with = reach_existing(Array.__init__, store, path, metadata, {**kwargs})
            metadata = expect_array(store, path, meta)
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
    def _io(self) -> ArrayIO:
        """The array as the engine reads and writes it. Raises UnknownCodecError or MissingExtraError."""
        bound = self._bound
        if bound is None:
            with _preparing:
                if self._bound is None:
                    self._bound = self._prepared(self.metadata)
            return self._io
        if isinstance(bound, ArrayIO):
            return bound
        raise type(bound)(str(bound))

    def _prepared(self, meta: ArrayMeta) -> ArrayIO:
        """The array with some metadata, as the engine reads and writes it."""
        io = prepare_array(meta, self.store, self.path, *self.opened_with.reading)
        return io if self.read_missing_chunks else io.without_missing()

    def _take(self, meta: ArrayMeta, io: ArrayIO) -> None:
        """Go on with other metadata, and the array as the engine reads it with them."""
        with _preparing:  # else another thread that prepares the array could undo this
            self._bound = io
        if self._out_dtype == self.metadata.data_type.dtype:
            self._out_dtype = meta.data_type.dtype
        self.metadata = meta

    @property
    def read_only(self) -> bool:
        """Whether writes through this object are refused. Can be assigned, as in zarr 2; the store may still refuse."""
        return super().read_only

    @read_only.setter
    def read_only(self, value: bool) -> None:
        self._read_only = bool(value)

    @property
    def name(self) -> str | None:  # type: ignore[override]
        """Absolute path of the array in its store. At the root: "/", or None for v2, as in zarr 2."""
        return "/" + self.path if self.path or self.metadata.zarr_format == 3 else None

    @property
    def basename(self) -> str | None:  # type: ignore[override]
        """Last part of the path. At the root: "", or None for v2."""
        return None if self.name is None else super().basename

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents. Assigning to it resizes the array."""
        return self.metadata.shape

    @shape.setter
    def shape(self, value: tuple[int, ...]) -> None:
        self.resize(value)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.metadata.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.metadata.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy data type of what reads return."""
        return self._out_dtype

    @property
    def itemsize(self) -> int:
        """Size of an element, in bytes."""
        return self._out_dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Size of the whole array in memory, in bytes."""
        return self.size * self._out_dtype.itemsize

    @property
    def fill_value(self) -> Any:
        """Value of elements that were never written; None if it is undefined."""
        return self.metadata.fill_value

    @property
    def order(self) -> Literal["C", "F"]:
        """Memory order of the elements in a chunk."""
        return self.metadata.order

    @property
    def chunks(self) -> tuple[int, ...]:
        """Shape of the chunks.

        In a sharded array, of the chunks within a shard; if chunks vary, of the first.
        """
        return self.metadata.chunks

    @property
    def chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Lengths of the chunks along every axis, within the array.

        Examples
        --------
        >>> import gzarr
        >>> gzarr.zeros((5, 4), chunks=(2, 4)).chunk_sizes
        ((2, 2, 1), (4,))
        """
        return array_info.chunk_lengths(self.metadata.chunk_grid)

    @property
    def read_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """`chunk_sizes`, by zarr-python's name."""
        return self.chunk_sizes

    @property
    def write_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Lengths along every axis of what is stored as one object, within the array: of shards, or of chunks."""
        return array_info.chunk_lengths(self.metadata.grid)

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Shape of the shards, or None if the array is not sharded."""
        return None if self.metadata.sharding is None else self.metadata.object_shape

    @property
    def cdata_shape(self) -> tuple[int, ...]:
        """Number of chunks along every axis. As in zarr 2, a v2 array without axes has (1,)."""
        counts = tuple(axis.nchunks for axis in self.metadata.chunk_grid)
        return counts or (1,) * (self.metadata.zarr_format == 2)

    @property
    def nchunks(self) -> int:
        """Number of chunks."""
        return nchunks(self.metadata.chunk_grid)

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """A name or None for every axis, or None if the array has no names."""
        return self.metadata.dimension_names

    @property
    def codecs(self) -> tuple[CodecSpec, ...]:
        """The whole codec chain, in encoding order."""
        return self.metadata.codecs

    @property
    def filters(self) -> Any:
        """Codecs between the array and its bytes: numcodecs objects or None in v2, a tuple of specs in v3."""
        return array_info.shown_codecs(self.metadata)[0]

    @property
    def serializer(self) -> CodecSpec | None:
        """The codec that turns the array into bytes; None in v2."""
        return split_codecs(self.metadata)[1]

    @property
    def compressors(self) -> tuple[Any, ...]:
        """Codecs from bytes to bytes: numcodecs objects in v2, specs in v3."""
        return array_info.shown_codecs(self.metadata)[1]

    @property
    def compressor(self) -> Any:
        """The compressor as a numcodecs object, or None.

        In v3 it may also be a codec that turns the array into bytes by itself, as image codecs do. TypeError is raised
        if the array has several compressors.
        """
        return array_info.only_compressor(self)

    @property
    def nbytes_stored(self) -> int:
        """Bytes that the array occupies in its store, metadata included."""
        return self.store.nbytes_stored(self.path)

    @property
    def nchunks_initialized(self) -> int:
        """Number of chunks that are stored. In a sharded array the index of every shard is read."""
        return array_info.n_initialized(self)

    @property
    def placement(self) -> PlacementReport:
        """Where each step of reading the array runs, and which path handles many chunks, with the reason.

        Examples
        --------
        >>> import gzarr
        >>> gzarr.zeros((5, 4), compressors=None, device="cpu").placement[0][:2]
        ('bytes', 'host')
        """
        return PlacementReport(self._io.placement())

    @property
    def info(self) -> Report:
        """A report of what the array is and how much it occupies. It lists the array's objects in the store.

        Examples
        --------
        >>> import gzarr
        >>> gzarr.zeros((200, 100), dtype="i4").info.items[2:4]
        (('Data type', 'int32'), ('Shape', '(200, 100)'))
        """
        return array_info.array_report(self)

    def info_complete(self) -> Report:
        """Return `info`, as zarr-python's method of this name does."""
        return self.info

    @property
    def xp(self) -> Any:
        """The module with the functions for what the array reads: numpy, or cupy on a GPU.

        On ``device="emulated"``, it is a module that behaves as cupy. Data types that a GPU lacks (strings, objects,
        times) are read into NumPy arrays everywhere.

        Examples
        --------
        >>> import gzarr
        >>> array = gzarr.array([1.0, 4.0], device="cpu")
        >>> array.xp.sqrt(array[:])
        array([1., 2.])
        """
        return np if isinstance(self.backend.empty((0,), self.dtype), np.ndarray) else self.backend.xp

    @property
    def config(self) -> ArrayConfig:
        """How this array object reads and writes."""
        return ArrayConfig(self.order, self.write_empty_chunks, self.read_missing_chunks)

    # -- reading -------------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> AnyArray:
        """Read a selection.

        Parameters
        ----------
        key : int, slice, Ellipsis, None, list of int, boolean array, field name or tuple of them
            What to read, as in NumPy. A list for every axis selects points; several lists beside slices are refused, as
            `vindex` and `oindex` say which of two things is meant.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device; a scalar if every axis has an integer. ``...`` gives an array even where
            there are no axes.

        Raises
        ------
        SelectionError
            If the selection does not fit the array.
        ChunkError
            If a stored chunk is damaged.
        StoreError
            If the store cannot be read.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z[1, 2:]
        array([6, 7])
        >>> z[:, -1]
        array([ 3,  7, 11])
        """
        basic = self._basic()
        read = None if basic is None else basic.read(key, self._out_dtype)
        if read is not None:
            return read
        key, fields = split_fields(key)
        return selecting.read_selection(self, normalize(key, self.metadata.shape), fields, is_whole=key is ...)

    async def aread(self, selection: Any = ...) -> AnyArray:
        """Read a selection on a thread, so that many reads wait for a store at once.

        If it is cancelled before its turn, nothing is read; if later, the result is dropped. A result on a GPU is
        ordered on the device's default stream.

        Parameters
        ----------
        selection : optional
            What ``array[selection]`` takes. By default everything.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            What ``array[selection]`` returns.

        Examples
        --------
        >>> import asyncio, gzarr
        >>> z = gzarr.array([1, 2, 3])
        >>> asyncio.run(z.aread(slice(1, 3)))
        array([2, 3])
        """
        return await run_in_thread(self.__getitem__, selection)

    def get_basic_selection(
        self, selection: Any = ..., *, out: AnyArray = None, fields: Fields = None, prototype: Any = None
    ) -> AnyArray:
        """Read integers and slices.

        Parameters
        ----------
        selection : int, slice, Ellipsis or tuple of them, optional
            One item for every axis; axes that are left out are taken whole.
        out : array, optional
            An array of the result's shape to read into, on the host or on the array's device.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device, or ``out``; a scalar if every axis has an integer.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.get_basic_selection((1, slice(0, 2)))
        array([4, 5])
        """
        is_whole = selection is ... and fields is None
        return selecting.read_selection(self, normalize_basic(selection, self.shape), fields, out, is_whole=is_whole)

    def get_orthogonal_selection(
        self, selection: Any, *, out: AnyArray = None, fields: Fields = None, prototype: Any = None
    ) -> AnyArray:
        """Read the rows and columns that a selection for each axis picks.

        Parameters
        ----------
        selection : int, slice, list of int, boolean array or tuple of them
            One item for every axis. Each selects on its own axis, whatever the others select.
        out : array, optional
            An array of the result's shape to read into, on the host or on the array's device.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device, or ``out``; a scalar if every axis has an integer.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.get_orthogonal_selection(([0, 2], [1, 3]))
        array([[ 1,  3],
               [ 9, 11]])
        """
        return selecting.read_selection(self, normalize_orthogonal(selection, self.shape), fields, out)

    def get_coordinate_selection(
        self, selection: Any, *, out: AnyArray = None, fields: Fields = None, prototype: Any = None
    ) -> AnyArray:
        """Read points by their coordinates.

        Parameters
        ----------
        selection : tuple of array-like of int
            One index array for every axis; they are broadcast together.
        out : array, optional
            An array of the result's shape to read into, on the host or on the array's device.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device, or ``out``; a scalar if every axis has an integer.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.get_coordinate_selection(([0, 2], [1, 3]))
        array([ 1, 11])
        """
        return selecting.read_selection(self, normalize_vindex(selection, self.shape), fields, out)

    def get_mask_selection(
        self, mask: Any, *, out: AnyArray = None, fields: Fields = None, prototype: Any = None
    ) -> AnyArray:
        """Read the points where a mask is true.

        Parameters
        ----------
        mask : array-like of bool
            A mask of the array's shape.
        out : array, optional
            An array of the result's shape to read into, on the host or on the array's device.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device, or ``out``; a scalar if every axis has an integer.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.get_mask_selection(z[...] > 9)
        array([10, 11])
        """
        return selecting.read_selection(self, normalize_mask(mask, self.shape), fields, out)

    def get_block_selection(
        self, selection: Any, *, out: AnyArray = None, fields: Fields = None, prototype: Any = None
    ) -> AnyArray:
        """Read whole chunks by their coordinates in the chunk grid.

        Parameters
        ----------
        selection : int, slice or tuple of them
            Coordinates of chunks in the chunk grid, one item for every axis.
        out : array, optional
            An array of the result's shape to read into, on the host or on the array's device.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Returns
        -------
        numpy.ndarray or cupy.ndarray
            A new array on the array's device, or ``out``; a scalar if every axis has an integer.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.get_block_selection((0, 1))
        array([[2, 3],
               [6, 7]])
        """
        return selecting.read_selection(self, selecting.blocks_selected(self, selection), fields, out)

    @property
    def vindex(self) -> selecting.Accessor:
        """Points by their coordinates or by a mask, to read and to write.

        One index array for every axis, broadcast together, or a boolean mask.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4))
        >>> z.vindex[[0, 2], [1, 3]]
        array([ 1, 11])
        >>> z.vindex[[0, 2], [1, 3]] = 0
        """
        return selecting.Accessor(self.get_coordinate_selection, self.set_coordinate_selection)

    @property
    def oindex(self) -> selecting.Accessor:
        """Rows and columns, to read and to write.

        An integer, slice, index list or boolean list for each axis, independently.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4))
        >>> z.oindex[[0, 2], 1:3]
        array([[ 1,  2],
               [ 9, 10]])
        >>> z.oindex[:, [0, 3]] = 0
        """
        return selecting.Accessor(self.get_orthogonal_selection, self.set_orthogonal_selection)

    @property
    def blocks(self) -> selecting.Accessor:
        """Whole chunks by their coordinates in the chunk grid, to read and to write.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> z.blocks[1, 0]
        array([[8, 9]])
        >>> z.blocks[:, 0] = 0
        """
        return selecting.Accessor(self.get_block_selection, self.set_block_selection)

    def regions(self, nbytes: int = 256 << 20, whole: Literal["shards", "chunks"] = "shards") -> Regions:
        """The array in regions that can be written at the same time, from any number of processes.

        Parameters
        ----------
        nbytes : int
            Decoded bytes of a region, at most; more if a single chunk or shard has more.
        whole : {"shards", "chunks"}
            What no two regions share. Chunks within shards may be read, but not written, apart.

        Returns
        -------
        sequence of tuple of slice
            The regions, in order, by arithmetic: ``len()``, iteration and ``at(number)`` take no memory.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((6, 4), chunks=(1, 2), shards=(2, 4), dtype="i4")
        >>> list(z.regions(nbytes=64))
        [(slice(0, 4, None), slice(0, 4, None)), (slice(4, 6, None), slice(0, 4, None))]
        """
        return regions_of(self, nbytes, whole)

    def region_writer(self, region: Any) -> RegionWriter:
        """What writes one region of whole chunks or shards, and refuses all else: for processes that share an array.

        Parameters
        ----------
        region : slice or tuple of slice
            Such as one of `regions`.

        Raises
        ------
        SelectionError
            If the region cuts a chunk or a shard.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((6, 4), chunks=(2, 4), dtype="i4")
        >>> writer = z.region_writer((slice(2, 6), slice(0, 4)))
        >>> writer[2:4] = 1
        >>> writer[0:2] = 1  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        gzarr.errors.SelectionError: ...: [0:2, 0:4] is not within [2:6, 0:4], which this writer owns
        """
        self.check_writable()
        return RegionWriter(self, region)

    @property
    def lazy(self) -> "LazyView":
        """The array as a view: selections of it are views, too, and are read when their elements are asked for.

        Examples
        --------
        >>> import gzarr, numpy as np
        >>> z = gzarr.array(np.arange(12).reshape(3, 4), chunks=(2, 2))
        >>> view = z.lazy[1:][:, ::-1]
        >>> view[0, :2].result()
        array([7, 6])
        """
        from gzarr.hierarchy.lazy_views import LazyView  # few programs ask
        from gzarr.indexing.transform import Transform

        return LazyView(self, Transform.whole(self.shape))

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
        return np.asarray(selecting.host_copy(self), self.dtype if dtype is None else dtype)

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
        data = selecting.read_selection(self, normalize_basic((), self.shape))
        tensor = data if hasattr(data, "__dlpack__") else np.asarray(data)
        # Leave out arguments that are None: not every version of the libraries takes them.
        return dlpack(tensor, **{name: value for name, value in kwargs.items() if value is not None})

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the kind and number of the device that `__dlpack__` reads to."""
        kind, number = self.backend.empty((0,), self.dtype).__dlpack_device__()
        return int(kind), int(number)

    def __iter__(self) -> Iterator[AnyArray]:
        if not self.shape:
            raise TypeError("iteration over a 0-dimensional array")
        return selecting.iterate_rows(self, 0, self.shape[0])

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
        return selecting.rows_between(self, start, end)

    def stats(
        self,
        bins: int | None = None,
        range: tuple[Any, Any] | None = None,
        *,
        skip: Any = None,
        max_nbytes: int = 256 << 20,
        progress: ProgressLike = None,
        on: Any = None,
        part: tuple[int, int] | None = None,
        notes: Any = None,
    ) -> "Stats":
        """Compute the least and the greatest element, mean and standard deviation, without loading the array.

        Chunks are read by several threads, each once; those that are not stored are counted without being read. Means
        of integers are exact before they are rounded.

        Parameters
        ----------
        bins : int, optional
            Number of bins of a histogram. By default there is none. Without ``range``, arrays of other types than
            integers of 8 and 16 bits are read twice.
        range : tuple of float, optional
            Where the first bin begins, and the last one ends; for times, also times. By default the least and the
            greatest element.
        skip : number, array of bool or False, optional
            Elements that are missing, which are left out: those that equal a number, or a mask of the array's shape, in
            memory or of gzarr. By default those that the attributes ``nodata``, ``_FillValue`` (other than zero),
            ``missing_value``, ``valid_range``, ``valid_min`` and ``valid_max`` name; False for none.
        max_nbytes : int
            Memory for decoded chunks.
        progress : bool or callable, optional
            True for a bar in the terminal; or a function of (bytes done, bytes in all, path of the array).
        on : optional
            What reads the chunks, such as a `distributed.Client`: see `gzarr.transfer`.
        part : tuple of int, optional
            Which part of the work is done here, (k, n) for one of n from 0, by processes that know nothing of each
            other but ``notes``. The part that ends last, whichever it is, returns the result; the others raise
            PartsMissingError. A part that is started again goes on. A second pass, for a histogram, is the last one's.
        notes : path, URL or Store, optional
            Where parts find each other's results, which are pickled: a folder that nobody else writes to. Several jobs
            may share it.

        Returns
        -------
        Stats
            ``count``, ``n_nan``, ``min``, ``max``, ``mean``, ``std``, ``histogram`` and ``n_missing``. NaNs count as
            ``n_nan`` only, as NaTs do, those that are missing as ``n_missing``.

        Raises
        ------
        MetadataError
            If the elements are neither real numbers nor times, or ``skip`` is given for times.
        ValueError
            If no element can be the number that is skipped, or a mask has another shape.
        ChunkError
            If a stored chunk is damaged.
        PartsMissingError
            In every part but the one that ends last.

        Examples
        --------
        >>> import gzarr
        >>> stats = gzarr.array([1, 2, 3, 6]).stats(bins=2)
        >>> stats.min, stats.max, stats.mean, stats.histogram[0]
        (1, 6, 3.0, array([3, 1]))
        """
        from gzarr.hierarchy.reductions import kept_results, state_of  # few programs ask
        from gzarr.hierarchy.stats import stats_of

        mask = skip.tobytes() if isinstance(skip, np.ndarray) else state_of(skip) if isinstance(skip, Array) else skip
        told = bins, range, max_nbytes, mask
        with kept_results(on, part, notes, lambda: (state_of(self), told)) as by:
            return stats_of(self, bins, range, max_nbytes, progress, skip, by)

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
        return array_info.digest_of(self, hashname)

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

    # -- writing -------------------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        """Write a selection.

        Parameters
        ----------
        key : int, slice, Ellipsis, None, list of int, boolean array, field name or tuple of them
            Where to write; see `__getitem__`.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape and cast as NumPy does. A value of
            xarray must have its axes where the array has those of the same names. An h5py dataset, or a gzarr array at
            another place, of the selection's shape is read in parts. Any other lazy value (of Dask or xarray, say)
            might read this array, so it is computed before anything is written: in memory or, above 256 MiB, in a
            temporary file. `gzarr.interop.dask.to_zarr` stores large Dask arrays in parts.

        Raises
        ------
        SelectionError
            If the selection does not fit the array.
        ValueError
            If the value cannot be broadcast to the selection's shape, or its axes have the names of others.
        StoreError
            If the store cannot be written, or there is no room for the temporary file.
        ReadOnlyError
            If the array was opened for reading.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((2, 3), dtype="i4")
        >>> z[0] = [1, 2, 3]
        >>> z[:, 1] = 7
        >>> z[...]
        array([[1, 7, 3],
               [0, 7, 0]], dtype=int32)
        """
        basic = self._basic()
        if basic is not None and self._out_dtype == self.metadata.data_type.dtype:
            self.check_writable()
            if basic.write(key, value, keep_empty=self.write_empty_chunks):
                return
        key, fields = split_fields(key)
        selecting.write_selection(self, normalize(key, self.metadata.shape), value, fields)

    async def awrite(self, selection: Any, value: Any) -> None:
        """Write a selection on a thread, so that many writes wait for a store at once.

        If it is cancelled before its turn, nothing is written; if later, the write goes on to its end.

        Parameters
        ----------
        selection
            What ``array[selection] = value`` takes.
        value : array-like
            Values, which must not change before the write is done. A GPU reads them in the order of its default stream:
            synchronize first if they were made on another stream.

        Examples
        --------
        >>> import asyncio, gzarr
        >>> z = gzarr.zeros(3, dtype="i4")
        >>> asyncio.run(z.awrite(slice(0, 2), [1, 2]))
        >>> z[...]
        array([1, 2, 0], dtype=int32)
        """
        await run_in_thread(self.__setitem__, selection, value)

    def set_basic_selection(self, selection: Any, value: Any, *, fields: Fields = None, prototype: Any = None) -> None:
        """Write integers and slices.

        Parameters
        ----------
        selection : int, slice, Ellipsis or tuple of them
            One item for every axis; axes that are left out are taken whole.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((3, 4), chunks=(2, 2), dtype="i4")
        >>> z.set_basic_selection((1, slice(0, 2)), [4, 5])
        >>> z[1]
        array([4, 5, 0, 0], dtype=int32)
        """
        selecting.write_selection(self, normalize_basic(selection, self.shape), value, fields)

    def set_orthogonal_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, prototype: Any = None
    ) -> None:
        """Write the rows and columns that a selection for each axis picks.

        Parameters
        ----------
        selection : int, slice, list of int, boolean array or tuple of them
            One item for every axis. Each selects on its own axis, whatever the others select.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((3, 4), chunks=(2, 2), dtype="i4")
        >>> z.set_orthogonal_selection(([0, 2], [1, 3]), [[1, 2], [3, 4]])
        >>> z[2]
        array([0, 3, 0, 4], dtype=int32)
        """
        selecting.write_selection(self, normalize_orthogonal(selection, self.shape), value, fields)

    def set_coordinate_selection(
        self, selection: Any, value: Any, *, fields: Fields = None, prototype: Any = None
    ) -> None:
        """Write points by their coordinates.

        Parameters
        ----------
        selection : tuple of array-like of int
            One index array for every axis; they are broadcast together.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((3, 4), chunks=(2, 2), dtype="i4")
        >>> z.set_coordinate_selection(([0, 2], [1, 3]), [7, 8])
        >>> z[2]
        array([0, 0, 0, 8], dtype=int32)
        """
        selecting.write_selection(self, normalize_vindex(selection, self.shape), value, fields)

    def set_mask_selection(self, mask: Any, value: Any, *, fields: Fields = None, prototype: Any = None) -> None:
        """Write the points where a mask is true.

        Parameters
        ----------
        mask : array-like of bool
            A mask of the array's shape.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((3, 4), chunks=(2, 2), dtype="i4")
        >>> z.set_mask_selection(z[...] == 0, 5)
        >>> z[0]
        array([5, 5, 5, 5], dtype=int32)
        """
        selecting.write_selection(self, normalize_mask(mask, self.shape), value, fields)

    def set_block_selection(self, selection: Any, value: Any, *, fields: Fields = None, prototype: Any = None) -> None:
        """Write whole chunks by their coordinates in the chunk grid.

        Parameters
        ----------
        selection : int, slice or tuple of them
            Coordinates of chunks in the chunk grid, one item for every axis.
        value : array-like
            Values, on the host or on a GPU; broadcast to the selection's shape.
        fields : str or list of str, optional
            Fields of a structured data type. By default all.
        prototype : optional
            Accepted for zarr-python; changes nothing: the device of the array says where results are.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros((3, 4), chunks=(2, 2), dtype="i4")
        >>> z.set_block_selection((0, 1), 5)
        >>> z[0]
        array([0, 0, 5, 5], dtype=int32)
        """
        selecting.write_selection(self, selecting.blocks_selected(self, selection), value, fields)

    def resize(self, *args: Any, new_shape: Any = None) -> None:
        """Change the shape.

        Elements outside the new shape are cleared for good, so that growing the array again shows the fill value:
        objects that lie wholly outside are deleted, and the outside part of others is overwritten. Elements that are
        added have the fill value: what a killed `append` or another library has left there is cleared.

        Parameters
        ----------
        *args : int or sequence of int
            The new extents: ``resize((20, 10))`` or ``resize(20, 10)``.
        new_shape : int or sequence of int, optional
            The same, by zarr-python's name.

        Raises
        ------
        MetadataError
            If the new shape has another number of extents, or negative ones.
        ReadOnlyError
            If the array was opened for reading, or is a view.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.array([1, 2, 3, 4])
        >>> z.resize(2)
        >>> z.resize(4)
        >>> z[...]
        array([1, 2, 0, 0])
        """
        if new_shape is not None:
            args = (*args, new_shape)
        resize_array(self, parse_shape(args[0] if len(args) == 1 else args, self.ndim))

    def append(self, data: Any, axis: int = 0) -> tuple[int, ...]:
        """Add data at the end of an axis.

        Parameters
        ----------
        data : array-like
            Data with the array's extents on all other axes, on the host or on a GPU.
        axis : int
            The axis.

        Returns
        -------
        tuple of int
            The new shape.

        Raises
        ------
        ValueError
            If the data have other extents on another axis.
        SelectionError
            If the array has no such axis.
        ReadOnlyError
            If the array was opened for reading, or is a view.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.array([[1, 2], [3, 4]])
        >>> z.append([[5, 6]])
        (3, 2)
        >>> z[-1]
        array([5, 6])
        """
        return append_to(self, data, axis)

    def refresh(self) -> Self:
        """Read the metadata from the store again.

        Returns
        -------
        Array
            The array itself.

        Raises
        ------
        ArrayNotFoundError
            If the array was deleted.
        """
        meta = read_node(self.store.live(), self.path, self.metadata.zarr_format)
        if not isinstance(meta, ArrayMeta):
            where = str(self.store_path)
            raise ArrayNotFoundError(f"no array at {where!r} any more: it was deleted or replaced by a group")
        self._take(meta, self._prepared(meta))
        return self

    # -- other ways to the same array ------------------------------------------------------------------------------

    def astype(self, dtype: Any) -> Self:
        """Return a read-only view whose reads are cast to another data type, chunk by chunk.

        Parameters
        ----------
        dtype : dtype-like
            A data type of fixed size.

        Returns
        -------
        Array
            The view.

        Raises
        ------
        MetadataError
            If the data type has a variable length.

        Examples
        --------
        >>> import gzarr
        >>> gzarr.array([1, 2, 3]).astype("f4")[1:]
        array([2., 3.], dtype=float32)
        """
        return self._with(self.metadata, read_only=True, out_dtype=casting_dtype(self, dtype), is_view=True)

    def view(
        self,
        shape: tuple[int, ...] | None = None,
        chunks: tuple[int, ...] | None = None,
        dtype: Any = None,
        fill_value: Any = None,
        read_only: bool | None = None,
    ) -> Self:
        """Return the same stored chunks under other metadata, which are not stored.

        A view cannot be resized. A view with another shape is read-only, as what it wrote at its edge would be lost, or
        hidden in the array.

        Parameters
        ----------
        shape : tuple of int, optional
            Other extents over the same chunks.
        chunks : tuple of int, optional
            Accepted for zarr 2; must be the array's.
        dtype : dtype-like, optional
            A data type of the same size and byte order, as which the bytes are taken.
        fill_value : scalar, optional
            Another fill value.
        read_only : bool, optional
            Whether writes are refused. By default as in the array.

        Returns
        -------
        Array
            The view.

        Raises
        ------
        MetadataError
            If the chunks cannot be seen that way.

        Examples
        --------
        >>> import gzarr
        >>> gzarr.array([0, -1], dtype="i2").view(dtype="u2")[...]
        array([    0, 65535], dtype=uint16)
        """
        meta = view_metadata(self, shape, chunks, dtype, fill_value, read_only=read_only)
        hides = shape is not None or (self.read_only if read_only is None else read_only)
        return self._with(meta, read_only=hides, is_view=True, out_dtype=None)

    def to(
        self, device: str | Backend, *, chunk_cache: "ChunkCache | None" = None, **options: Unpack[DeviceKeywords]
    ) -> Self:
        """Return the same array with its reads on another device.

        Parameters
        ----------
        device : str
            "auto", "cpu", "cuda" or "cuda:N".
        chunk_cache : ChunkCache, optional
            Where decoded chunks are kept; by default what the array was opened with. On the CPU only.
        **options
            ``stream``, ``max_device_nbytes``, ``strict``, ``reader``: see `gzarr.devices.backend_for`.

        Returns
        -------
        Array
            The array. Nothing is copied.

        Raises
        ------
        DeviceError
            If the device cannot be used; the message says what is missing.
        ValueError
            If an option is malformed.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.array([1, 2, 3])
        >>> z.to("cpu").device
        'cpu'
        """
        opened = self.opened_with.on(device, **options)
        return self._with(self.metadata, opened if chunk_cache is None else opened._replace(chunk_cache=chunk_cache))

    def with_config(self, config: ArrayConfig | Mapping[str, Any]) -> Self:
        """Return the same array, read and written in another way.

        Parameters
        ----------
        config : ArrayConfig or mapping
            What to change: ``write_empty_chunks``, ``read_missing_chunks``. The ``order`` of stored chunks stays.

        Returns
        -------
        Array
            The array. Nothing is copied.

        Raises
        ------
        TypeError
            If ``config`` has other names.

        Examples
        --------
        >>> import gzarr
        >>> z = gzarr.zeros(4, chunks=2)
        >>> z.with_config({"write_empty_chunks": True})[...] = 0
        >>> z.nchunks_initialized
        2
        """
        changes = given_config(config)
        changes.pop("order", None)
        return self._with(self.metadata, **changes)

    @property
    def async_array(self) -> AsyncArray:
        """The same array for callers that await."""
        return AsyncArray(self)

    # -- inside --------------------------------------------------------------------------------------------------

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

    def _repr_html_(self) -> str:
        return array_info.array_page(self)

    def require_codecs(self) -> None:
        """Raise what reading would raise if a codec is missing: UnknownCodecError or MissingExtraError."""
        _ = self._io

    def _ready(self) -> ArrayIO | None:
        """The array as the engine reads it; None where reading raises an error, which it does then."""
        try:
            return self._io if self.read_missing_chunks else None
        except GzarrError:
            return None

    def _basic(self) -> Any:
        bound = self._io if self._bound is None else self._bound
        return bound.compiled.basic() if type(bound) is ArrayIO and bound.compiled is not None else None

    def _options(self) -> dict[str, Any]:
        """Return keywords of the constructor that make an array like this one."""
        given = {"read_only": self._read_only, "write_empty_chunks": self.write_empty_chunks}
        given["read_missing_chunks"] = self.read_missing_chunks
        return {**given, "is_view": True, "out_dtype": self._out_dtype} if self.is_view else given

    def _with(self, meta: ArrayMeta, opened_with: OpenedWith | None = None, **options: Any) -> Self:
        """Return the array with other metadata or on another device."""
        options = {**self._options(), **options}
        return type(self)(self.store, self.path, meta, opened_with or self.opened_with, **options)


def _reopen(store: Store, path: str, meta: ArrayMeta | None, opened_with: OpenedWith, options: dict[str, Any]) -> Array:
    """Open a pickled array again, a view with its metadata. Raises ArrayNotFoundError or MetadataError."""
    found = expect_array(store, path, read_node(store, path) if meta is None else meta)
    return Array(store, path, found, opened_with, **options)


take_over(AsyncArray, Array)
