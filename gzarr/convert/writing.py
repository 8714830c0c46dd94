"""Writes a tree of sources of any format to Zarr, and replaces files when they are complete."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import partial, wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, Unpack, cast

from numpy.typing import NDArray

from gzarr.api.consolidated import consolidate_metadata
from gzarr.api.open import open as open_node
from gzarr.copying.arrays import BUDGET_NBYTES, CopyBlock, Route, copy_regions, decoding_route
from gzarr.copying.planning import CopyKeywords, Settings, TransferKeywords, check_copy
from gzarr.copying.report import TransferReport
from gzarr.copying.sources import Source, SourceTree, from_array, from_group, of_file, on_host, regular_grid
from gzarr.copying.transfer import destination, transfer_tree
from gzarr.errors import OVERWRITE, CopyError, GzarrError
from gzarr.hierarchy.array import Array
from gzarr.hierarchy.group import Group
from gzarr.indexing.regions import Region
from gzarr.metadata.conventions import MASK, decode_mask
from gzarr.virtual.opening import open_virtual
from gzarr.virtual.store import Chunks, Contents, VirtualStore

#: With less space left, the disk counts as full; libraries say only that something failed.
_FULL_NBYTES = 1 << 20
F = TypeVar("F", bound=Callable[..., Any])

_SETTINGS = frozenset(f.name for f in fields(Settings))


class _On(NamedTuple):
    """What runs a conversion elsewhere, and the conversion without its destination, which opens the file."""

    engine: Any
    again: Callable[[Any], object]


class _Taking(NamedTuple):
    """In place of a destination: takes what a file holds while it is open."""

    take: Callable[[SourceTree], object]


class _OpenedAgain(NamedTuple):
    """Copies blocks of an array in a file, which workers open themselves."""

    again: Callable[[Any], object]
    name: str
    source: Source
    dest: Callable[[], Array]
    route: Route
    resuming: bool

    def __call__(self, number: int) -> Any:
        """Copy one block."""
        self.unit(range(number, number + 1))

    def unit(self, numbers: range) -> list[Any]:
        """Copy some blocks."""

        def take(tree: SourceTree) -> None:
            block = CopyBlock(of_file(tree.arrays[self.name]), self.dest, self.route, resuming=self.resuming)
            for number in numbers:
                block(number)

        self.again(_Taking(take))
        return [None] * len(numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        bare = replace(self.source, read=_nothing, data=None, block=None)
        return _OpenedAgain, (self.again, self.name, bare, *self[3:])


def _nothing(_: Region) -> None:
    pass


def of_files(convert: F) -> F:
    """Let workers of ``on=`` call a conversion again, to open its file by themselves."""

    @wraps(convert)
    def converted(source: Any, dest: Any, **given: Any) -> Any:
        if given.get("on") is not None and isinstance(source, (str, os.PathLike)):
            kept = {name: value for name, value in given.items() if name not in TransferKeywords.__annotations__}
            given["on"] = _On(given["on"], partial(converted, source, **kept))
        return convert(source, dest, **given)

    return cast("F", converted)


def write(tree: SourceTree, dest: Any, /, **options: Unpack[TransferKeywords]) -> TransferReport:
    """Write a tree to a destination, with the keywords of `gzarr.transfer`, and consolidate the metadata of a group."""
    if isinstance(dest, _Taking):
        dest.take(tree)
        return TransferReport((), 0, 0, dry_run=False)
    tree = replace(tree, arrays={name: of_file(source) for name, source in tree.arrays.items()})
    keywords: dict[str, Any] = dict(options)
    path, each = keywords.pop("path", None), keywords.pop("each", None) or {}
    check_copy(keywords, TransferKeywords, write)
    for of_one in each.values():
        check_copy(of_one, CopyKeywords, write)
    given = {name: keywords.pop(name) for name in _SETTINGS & keywords.keys()}
    if isinstance(given.get("on"), _On):
        given["on"], again = given["on"]
        each_block: dict[str, Callable[..., Any]] = {name: partial(_OpenedAgain, again, name) for name in tree.arrays}
        tree = replace(tree, arrays={name: replace(one, block=each_block[name]) for name, one in tree.arrays.items()})
    settings = Settings(**given)
    with destination(dest, path, writable=not settings.dry_run) as to:
        report = transfer_tree(tree, to, settings, keywords, each)
        if tree.groups and not settings.dry_run and report.is_complete and to.store.zarr_format is None:
            consolidate_metadata(to.store, path=to.path)
        return report


@contextmanager
def in_place(path: str | os.PathLike[str], format: str) -> Iterator[SourceTree]:
    """What a file holds that is read in place, to be encoded anew. Raises: CopyError, also for what Zarr lacks."""
    name = os.fspath(path)
    store = open_virtual(name)
    if not isinstance(store, VirtualStore):
        raise CopyError(f"cannot read {name!r} as {format}: it begins otherwise, or it is cut off")
    with store:
        for why in store.contents.unreadable.values():
            raise CopyError(f"{name}: {why}")
        node = open_node(store, mode="r", device="cpu")
        tree = from_group(node) if isinstance(node, Group) else SourceTree(name, {}, {"": from_array(node)})
        arrays = {at: _anew(source, store.contents.arrays) for at, source in tree.arrays.items()}
        yield SourceTree(name, tree.groups, arrays, files=[name])


def _anew(source: Source, chunks: Mapping[str, Chunks]) -> Source:
    """A source that is decoded when it is copied, as its chunks and codecs are those of another format."""
    array, attributes = source.array, dict(source.attributes)
    if array is None:
        return source
    mask = attributes.pop(MASK, None)
    options: dict[str, Any] = {}
    if not chunks[array.path].padded_nbytes:
        options["chunks"] = array.chunks
    text = array.metadata.data_type.variable == "string"
    if not text:
        options["fill_value"] = array.fill_value
    return replace(
        source,
        array=None,
        dtype="string" if text else array.dtype.newbyteorder("="),
        attributes=attributes,
        options=options,
        mask_value=mask if mask is None or text else decode_mask(mask, array.dtype),
    )


def node_of(source: Any, path: str | os.PathLike[str]) -> Array | Group:
    """The array or group that is written to a file: itself, or what is stored at a path.

    Raises CopyError if it is read from that very file in place.
    """
    node = source if isinstance(source, (Array, Group)) else open_node(source, mode="r")
    contents = node.store.contents if isinstance(node.store, VirtualStore) else Contents({}, {}, ())
    for array in contents.arrays if isinstance(node, Group) else (node.path,):
        contents.arrays.get(array)  # some files are listed when the table is made that leads to them
    for store, key in contents.objects:
        place = None if store.files is None else store.files.path(key)
        if place is not None and os.path.exists(path) and os.path.samefile(place, path):  # noqa: PTH110, PTH121
            raise CopyError(f"the source is the file {os.fspath(path)!r} itself; name another file")
    return node


def write_regions(
    source: Source, put: Callable[[Region, NDArray[Any]], None], chunks: tuple[int, ...] | None = None
) -> None:
    """Read an array in bounded memory, and put every region of it into a file. chunks: that the file writes whole."""
    route = decoding_route(source, regular_grid(source.shape, chunks), BUDGET_NBYTES)
    copy_regions(source, lambda region, data: put(region, on_host(data)), route)


@contextmanager
def replacing(path: str | os.PathLike[str], *, overwrite: bool) -> Iterator[Path]:
    """A temporary file beside the final one, which it replaces on success; on failure it is deleted.

    Raises CopyError if the file exists and must not be replaced, or what writes it fails, whose errors are of many
    kinds.
    """
    final = Path(path)
    if final.exists() and not overwrite:
        raise CopyError(f"the file {str(final)!r} exists; pass {OVERWRITE} to replace it")
    # In a folder of its own: nobody else can have put a link where libraries write.
    with tempfile.TemporaryDirectory(prefix=f".{final.name}.partial-", dir=final.parent) as folder:
        partial = Path(folder, final.name)
        try:
            yield partial
            partial.replace(final)
        except CopyError:
            raise
        except (GzarrError, OSError, ValueError, TypeError, KeyError, RuntimeError, ImportError) as error:
            full = "; the disk is full" if shutil.disk_usage(folder).free < _FULL_NBYTES else ""
            raise CopyError(f"cannot write {os.fspath(path)!r}: {error}{full}; no file was made") from error
