"""What an array is and occupies: its properties, its report and its page in a notebook."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, Literal

import numpy as np

from gzarr.chunk_io.array_io import ArrayIO
from gzarr.codecs.spec import CodecSpec
from gzarr.codecs.v2 import to_numcodecs
from gzarr.concurrency import new_lock
from gzarr.display.info import PlacementReport, Report, human_size, size_text
from gzarr.errors import ChunkError, CodecError, GzarrError
from gzarr.hierarchy.node import Node
from gzarr.hierarchy.resizing import objects_stored
from gzarr.indexing.grid import Grid, RegularAxis, is_regular, nchunks
from gzarr.metadata.model import ArrayMeta
from gzarr.metadata.parts import split_codecs
from gzarr.storage.wrappers import full_type_name, type_name

#: Arrays are bound one after another.
_binding = new_lock()


class ArrayInfo(Node[ArrayMeta]):
    """The properties of an array."""

    __slots__ = ("_bound", "_out_dtype")
    _bound: ArrayIO | GzarrError | None  # None until it is needed, as most of many arrays are opened in vain
    _out_dtype: np.dtype[Any]

    @property
    def _io(self) -> ArrayIO:
        """The array as the engine reads and writes it. Raises UnknownCodecError or MissingExtraError."""
        bound = self._bound
        if isinstance(bound, ArrayIO):
            return bound
        if bound is None:
            self._bind()
            return self._io
        raise type(bound)(str(bound))

    def _bind(self) -> None:
        """Prepare the array for reading and writing, unless that is done."""
        with _binding:
            if self._bound is None:
                io = self._prepared(self.metadata)
                if self._bound is None:  # else foreign code has used the array meanwhile
                    self._bound = io

    def _rebind(self, io: ArrayIO) -> None:
        """Go on with the array opened in another way."""
        self._bind()  # else another thread that does so could undo this
        self._bound = io

    @abstractmethod
    def _prepared(self, meta: ArrayMeta) -> ArrayIO:
        """The array with some metadata, as the engine reads and writes it."""

    @abstractmethod
    def resize(self, *args: Any) -> None:
        """Change the shape."""

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
        return _sizes(self.metadata.chunk_grid)

    @property
    def read_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """`chunk_sizes`, by zarr-python's name."""
        return self.chunk_sizes

    @property
    def write_chunk_sizes(self) -> tuple[tuple[int, ...], ...]:
        """Lengths along every axis of what is stored as one object, within the array: of shards, or of chunks."""
        return _sizes(self.metadata.grid)

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
        filters = split_codecs(self.metadata)[0]
        if self.metadata.zarr_format == 2:
            return [to_numcodecs(f) for f in filters] or None
        return filters

    @property
    def serializer(self) -> CodecSpec | None:
        """The codec that turns the array into bytes; None in v2."""
        return split_codecs(self.metadata)[1]

    @property
    def compressors(self) -> tuple[Any, ...]:
        """Codecs from bytes to bytes: numcodecs objects in v2, specs in v3."""
        compressors = split_codecs(self.metadata)[2]
        return tuple(map(to_numcodecs, compressors)) if self.metadata.zarr_format == 2 else compressors

    @property
    def compressor(self) -> Any:
        """The compressor as a numcodecs object, or None.

        In v3 it may also be a codec that turns the array into bytes by itself, as image codecs do. TypeError is raised
        if the array has several compressors.
        """
        _, serializer, compressors = split_codecs(self.metadata)
        if not compressors and serializer is not None and serializer.kind == "any":
            compressors = (serializer,)
        if len(compressors) > 1:
            raise TypeError(f"{self.store_path} has several compressors; use array.compressors")
        return to_numcodecs(compressors[0]) if compressors else None

    @property
    def nbytes_stored(self) -> int:
        """Bytes that the array occupies in its store, metadata included."""
        return self.store.nbytes_stored(self.path)

    @property
    def nchunks_initialized(self) -> int:
        """Number of chunks that are stored. In a sharded array the index of every shard is read."""
        layout, total = self._io.layout, 0
        for coords in objects_stored(self.metadata, self.store, self.path):
            try:
                total += layout.initialized(self.store, coords)
            except CodecError as error:
                key = layout.key(coords)
                raise ChunkError(str(error), path=str(self.store_path), key=key, codec=error.codec) from error
        return total

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
        return array_report(self)

    def info_complete(self) -> Report:
        """Return `info`, as zarr-python's method of this name does."""
        return self.info

    def _edges(self) -> list[Sequence[int]]:
        return _boundaries(self.metadata.chunk_grid)

    def _repr_html_(self) -> str:
        return array_page(self)


def array_report(array: ArrayInfo) -> Report:
    """Return the report that ``array.info`` shows."""
    meta = array.metadata
    filters, serializer, compressors = split_codecs(meta)
    as_shown = to_numcodecs if meta.zarr_format == 2 else (lambda codec: codec)
    stored = array.nbytes_stored
    return Report(
        [
            *([("Name", f"/{array.path}")] if array.path else []),
            ("Type", "gzarr.Array"),
            ("Zarr format", str(meta.zarr_format)),
            ("Data type", str(array.dtype)),
            ("Shape", str(array.shape)),
            ("Chunk shape", str(array.chunks if is_regular(meta.grid) else array.chunk_sizes)),
            *([("Shard shape", str(array.shards))] if array.shards else []),
            ("Order", array.order),
            ("Read-only", str(array.read_only)),
            *((f"Filter [{i}]", repr(as_shown(f))) for i, f in enumerate(filters)),
            *([("Serializer", repr(serializer))] if serializer is not None else []),
            *(("Compressor", repr(as_shown(c))) for c in compressors),
            ("Store type", full_type_name(array.store)),
            ("No. bytes", human_size(array.nbytes)),
            ("No. bytes stored", human_size(stored)),
            ("Storage ratio", f"{array.nbytes / stored:.1f}" if stored else "inf"),
            ("Chunks initialized", f"{array.nchunks_initialized}/{array.nchunks}"),
        ]
    )


def array_page(array: ArrayInfo) -> str:
    """Return what a notebook shows of an array, as HTML. Asks nothing of the store."""
    from gzarr.display.drawing import draw_grid  # few programs show pages
    from gzarr.display.notebook import array_html

    meta = array.metadata
    filters, serializer, compressors = split_codecs(meta)
    codecs = [*filters, *([] if serializer is None else [serializer]), *compressors]
    parts = [("Array", array.shape, 1), ("Chunk", array.chunks, array.nchunks)]
    if array.shards is not None:
        parts.append(("Shard", array.shards, nchunks(meta.grid)))
    one_shape = is_regular(meta.grid)
    shapes = [str(shape) if name == "Array" or one_shape else "several" for name, shape, _ in parts]
    nbytes = [prod(shape) * array.itemsize for _, shape, _ in parts]
    sizes = [size_text(n) if one_shape or i == 0 else "" for i, n in enumerate(nbytes)]
    facts = [
        ("Data type", str(array.dtype)),
        ("Fill value", str(array.fill_value)),
        ("Codecs", ", ".join(map(repr, codecs)) or "none"),
        ("Device", array.device),
        ("Store", f"{type_name(array.store)}{', read-only' if array.read_only else ''}"),
        ("Format", f"Zarr v{meta.zarr_format}"),
        *([("Axes", ", ".join(map(str, array.dimension_names)))] if array.dimension_names else []),
        *([("Attributes", ", ".join(array.attrs))] if array.attrs else []),
    ]
    rows = [("Shape", *shapes), ("Size", *sizes), ("Count", *(str(count) for _, _, count in parts))]
    objects = _boundaries(meta.grid) if array.shards else ()
    drawing = draw_grid(array.shape, _boundaries(meta.chunk_grid), objects)
    return array_html(str(array.store_path), [name for name, _, _ in parts], rows, facts, drawing)


def _sizes(grid: Grid) -> tuple[tuple[int, ...], ...]:
    """Return the lengths of the chunks along every axis, within the array."""
    return tuple(tuple(b - a for a, b in pairwise(axis.edges())) for axis in grid)


def _boundaries(grid: Grid) -> list[Sequence[int]]:
    """Return the chunk boundaries of every axis, from 0 to the extent or past it: ranges if chunks are regular."""
    return [
        range(0, axis.nchunks * axis.length + 1, axis.length) if isinstance(axis, RegularAxis) else axis.edges()
        for axis in grid
    ]
