"""Bridges to other libraries: Dask, JAX, PyTorch, Xarray and zarr-python. Each is imported where it is first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gzarr.interop import dask, jax, torch, xarray, zarr

__all__ = ["dask", "jax", "torch", "xarray", "zarr"]

if not TYPE_CHECKING:  # a type checker would take every name to exist

    def __getattr__(name: str) -> Any:
        if name in __all__:
            return import_module(f"gzarr.interop.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
