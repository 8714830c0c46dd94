"""The same stored chunks in another way: other data types, extents or fill values, another device, other settings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, Unpack

import numpy as np

from gzarr.backend import Backend
from gzarr.dtypes import cast_fill, parse_dtype
from gzarr.errors import MetadataError
from gzarr.hierarchy.array_config import ArrayConfig, given_config
from gzarr.hierarchy.array_resizing import ResizableArray
from gzarr.hierarchy.keywords import DeviceKeywords
from gzarr.hierarchy.open_options import OpenedWith
from gzarr.indexing.chunking import parse_shape
from gzarr.metadata.model import ArrayMeta


class ViewableArray(ResizableArray):
    """The methods of an array that return it in another way, and copy nothing."""

    __slots__ = ()

    @abstractmethod
    def _with(self, meta: ArrayMeta, opened_with: OpenedWith | None = None, **options: Any) -> Self:
        """Return the array with other metadata or on another device."""

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
        wanted = parse_dtype(dtype)
        if wanted.variable != self.metadata.data_type.variable:
            raise MetadataError(f"{self.store_path}: cannot cast {self.dtype} to {dtype!r}; give a dtype of fixed size")
        return self._with(self.metadata, read_only=True, out_dtype=wanted.dtype, is_view=True)

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
        meta = self.metadata
        if shape is not None:
            if read_only is False:
                raise MetadataError(
                    f"{self.store_path}: a view with another shape is read-only; resize the array, or leave shape out"
                )
            read_only = True
        if chunks is not None and tuple(chunks) != self.chunks:
            raise MetadataError(
                f"{self.store_path}: a view cannot have chunks {tuple(chunks)} instead of {self.chunks}; copy the array"
            )
        if shape is not None:
            meta = meta.resized(parse_shape(shape, self.ndim))
        if dtype is not None:
            data_type = parse_dtype(dtype)
            if data_type.dtype.itemsize != self.itemsize or data_type.dtype.hasobject != self.dtype.hasobject:
                raise MetadataError(
                    f"{self.store_path}: a view needs a dtype of {self.itemsize} bytes, got {data_type.dtype}"
                )
            if data_type.dtype.isnative != self.dtype.isnative and self.itemsize > 1:
                raise MetadataError(
                    f"{self.store_path}: a view needs the byte order of {self.dtype}, got {data_type.dtype}"
                )
            fill = fill_value
            if fill is None and meta.fill_value is not None:
                fill = np.asarray(meta.fill_value, meta.data_type.dtype).view(data_type.dtype)[()]
            meta = replace(meta, data_type=data_type, fill_value=fill)
        if fill_value is not None:
            meta = replace(meta, fill_value=cast_fill(fill_value, meta.data_type))
        read_only = self.read_only if read_only is None else read_only
        return self._with(meta, read_only=read_only, is_view=True, out_dtype=None)

    def to(self, device: str | Backend, **options: Unpack[DeviceKeywords]) -> Self:
        """Return the same array with its reads on another device.

        Parameters
        ----------
        device : str
            "auto", "cpu", "cuda" or "cuda:N".
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
        return self._with(self.metadata, self.opened_with.on(device, **options))

    @property
    def config(self) -> ArrayConfig:
        """How this array object reads and writes."""
        return ArrayConfig(self.order, self.write_empty_chunks, self.read_missing_chunks)

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
