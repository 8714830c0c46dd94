"""The way into Zarr that all formats share: a tree of sources, written by the engine that copies arrays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from gzarr.copying.report import TransferReport
from gzarr.copying.settings import Settings
from gzarr.copying.sources import SourceTree
from gzarr.copying.transfer import destination, transfer_tree
from gzarr.errors import CopyError

_SETTINGS = frozenset(f.name for f in fields(Settings))


def write(tree: SourceTree, dest: Any, options: Mapping[str, Any]) -> TransferReport:
    """Write a tree to a destination, with the options of `gzarr.transfer`."""
    settings = Settings(**{name: value for name, value in options.items() if name in _SETTINGS})
    keywords = {name: value for name, value in options.items() if name not in _SETTINGS and name != "path"}
    with destination(dest, options.get("path"), writable=not settings.dry_run) as (store, where, backend):
        return transfer_tree(tree, store, where, backend, settings, keywords)


@contextmanager
def replacing(path: str | os.PathLike[str], *, overwrite: bool) -> Iterator[Path]:
    """A temporary file beside a file to be written; it takes its place if all went well, else it is deleted.

    Raises: CopyError if the file is there and must not be replaced.
    """
    final = Path(path)
    if final.exists() and not overwrite:
        raise CopyError(f"the file {str(final)!r} is already there; pass overwrite=True to replace it")
    partial = final.with_name(f"{final.name}.partial-{os.getpid()}")
    try:
        yield partial
        partial.replace(final)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
