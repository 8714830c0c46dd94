"""Copies arrays and groups between stores, to other chunks, codecs and formats, and to and from h5py."""

from gzarr.copying.stores import copy_store
from gzarr.copying.transfer import transfer
from gzarr.copying.zarr2 import copy, copy_all

__all__ = ["copy", "copy_all", "copy_store", "transfer"]
