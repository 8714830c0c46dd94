"""Names and arguments of zarr 2 for stores of files."""

import os
import tempfile
import weakref
from shutil import rmtree
from typing import Any, Literal

from gzarr.errors import StoreError
from gzarr.storage.local import LocalStore
from gzarr.storage.rules import pickled, refuse_normalizing


class DirectoryStore(LocalStore):
    """`LocalStore` with the arguments of zarr 2. Every `LocalStore` counts as an instance of it.

    Parameters
    ----------
    path : str or os.PathLike
        The directory.
    normalize_keys : bool
        Must be False: keys are taken as they are.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        normalize_keys: bool = False,
        dimension_separator: Literal[".", "/"] | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        refuse_normalizing(type(self).__name__, normalize_keys)
        super().__init__(path, read_only)
        self.dimension_separator = dimension_separator

    @property
    def path(self) -> str:
        """Absolute path of the directory."""
        return self.root

    @classmethod
    def __subclasshook__(cls, other: type) -> bool:
        # What opening a path gives is what zarr 2 calls a DirectoryStore.
        return type.__subclasscheck__(LocalStore, other) if cls is DirectoryStore else NotImplemented


class NestedDirectoryStore(DirectoryStore):
    """A `DirectoryStore` whose new Zarr v2 arrays have chunks in directories: ``0/1`` rather than ``0.1``."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        normalize_keys: bool = False,
        dimension_separator: Literal[".", "/"] | None = "/",
        *,
        read_only: bool = False,
    ) -> None:
        if dimension_separator not in (None, "/"):
            raise StoreError(f"NestedDirectoryStore: dimension_separator must be '/', got {dimension_separator!r}")
        super().__init__(path, normalize_keys, "/", read_only=read_only)


class TempStore(DirectoryStore):
    """A `DirectoryStore` in a new temporary directory, which is deleted with the store or at the end of the program.

    Parameters
    ----------
    suffix, prefix, dir : str
        Of the name of the directory, as for `tempfile.mkdtemp`; `dir` is where it is made.
    normalize_keys : bool
        Must be False.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.

    Examples
    --------
    >>> import gzarr
    >>> z = gzarr.create_array(gzarr.TempStore(), data=[1, 2, 3])
    >>> z[1:]
    array([2, 3])
    """

    def __init__(
        self,
        suffix: str = "",
        prefix: str = "zarr",
        dir: str | None = None,
        normalize_keys: bool = False,
        dimension_separator: Literal[".", "/"] | None = None,
    ) -> None:
        path = tempfile.mkdtemp(suffix=suffix, prefix=prefix, dir=dir)
        weakref.finalize(self, rmtree, path, ignore_errors=True)
        super().__init__(path, normalize_keys, dimension_separator)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, LocalStore, self.root)  # a copy elsewhere must not delete the directory
