"""A store that serves the metadata of a consolidated hierarchy from one document, and passes everything else on.

What it answers is never older than the document, as far as it can be known: before each answer it asks whether the
document is still the one that was read (`gzarr.metadata.consolidated.state_of`). Where the store has no tokens, or
asking for them is a round trip to a server, it sees the changes of this process only; those of others it sees when it
is opened again.
"""

import marshal
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from gzarr.errors import MetadataError, ReadOnlyError
from gzarr.errors.escaping import escaped
from gzarr.indexing.keys import join_path
from gzarr.metadata import consolidated, v3
from gzarr.metadata.documents import read_node
from gzarr.metadata.fields import dump_json, parse_json
from gzarr.metadata.model import GroupMeta, NodeMeta, ZarrFormat
from gzarr.storage.base import Buffer, Request, Store
from gzarr.storage.rules import DOCUMENTS, cut, is_allowed
from gzarr.storage.wrappers import WrapperStore

#: Documents of which text is kept.
_MAX_TEXTS = 256
#: Names of the documents that are served.
_SERVED = DOCUMENTS - {consolidated.DEFAULT_KEY}


class _Loaded(NamedTuple):
    """A consolidated document as it was read.

    Attributes
    ----------
    documents
        Those in it; None if it was not consolidated.
    children
        Names of the members of groups.
    state
        The state before reading; None if it is not known.
    texts
        Some of the documents as text, by their values: most arrays of a hierarchy have equal ones.
    """

    documents: consolidated.Documents | None
    children: dict[str, list[str]]
    state: consolidated.State | None
    texts: dict[bytes, bytes]

    def text(self, key: str) -> bytes | None:
        """A document as compact text, which is made and parsed in a fifth of the time of indented text."""
        document = (self.documents or {}).get(key)
        if document is None:
            return None
        try:
            value = marshal.dumps(document, 0)  # a tenth of the time of JSON; in this version, equal values are equal
        except ValueError:  # nested too deep
            return dump_json(document, None, key)
        text = self.texts.get(value)
        if text is None:
            text = dump_json(document, None, key)
            if len(self.texts) < _MAX_TEXTS:
                self.texts[value] = text
        return text


class ConsolidatedStore(WrapperStore):
    """Serve the documents of a node and of everything below it from consolidated metadata.

    Parameters
    ----------
    store : Store
        The store.
    path : str
        The consolidated node in it.
    key : str
        The document, ``path/zarr.json`` or ``path/.zmetadata``.
    frozen : bool
        Refuse every change of metadata; chunks stay writable.
    """

    transparent = True
    # Only chunks are reached this way; documents never are: changes of them ask `live`.
    files, versions, conditional = WrapperStore.files, WrapperStore.versions, WrapperStore.conditional
    tables = WrapperStore.tables

    def __init__(self, store: Store, path: str, key: str, *, frozen: bool) -> None:
        super().__init__(store)
        self._path = path
        self._prefix = f"{path}/" if path else ""
        self._key = key
        self._frozen = frozen
        self._loaded = _Loaded(None, {}, None, {})

    def load(self, data: Buffer | None, before: consolidated.State | None) -> bool:
        """Use the document as it was read after the state `before`; with None, read it again when it is needed.

        Returns: whether it is consolidated.
        """
        documents = None if data is None else self._parsed(data)
        children: dict[str, set[str]] = {}
        for key in filter(is_allowed, documents or ()):
            node = key.rpartition("/")[0]
            children.setdefault(node, set())
            while node:
                parent, _, name = node.rpartition("/")
                children.setdefault(parent, set()).add(name)
                node = parent
        self._loaded = _Loaded(documents, {node: sorted(names) for node, names in children.items()}, before, {})
        return documents is not None

    def with_documents(self, meta: NodeMeta | None) -> NodeMeta | None:
        """The metadata of the node, with what is consolidated there."""
        return replace(meta, consolidated_metadata=self._loaded.documents) if isinstance(meta, GroupMeta) else meta

    def _parsed(self, data: Buffer) -> consolidated.Documents | None:
        what = f"{self._store}: {escaped(self._key)}"
        if not self._key.endswith("zarr.json"):
            return consolidated.parse_zmetadata(data, what)
        document = parse_json(data, what)
        if document.get("node_type") == "array":
            return {"zarr.json": document}
        return consolidated.find_documents(document, what)

    def _current(self) -> _Loaded:
        """The document as it is now. Threads that find it changed at the same time all read it: none waits."""
        before, loaded = consolidated.state_of(self._store, self._key), self._loaded
        if before != loaded.state:
            self.load(self._store.get_one(Request(self._key)), before)
            loaded = self._loaded
        return loaded

    def _inner(self, key: str) -> str | None:
        """A key relative to the consolidated node; None if it lies elsewhere."""
        return key[len(self._prefix) :] if f"{key}/".startswith(self._prefix) else None

    # -- reading -------------------------------------------------------------------------------------------------

    def get_many(self, requests: Sequence[Request]) -> list[Buffer | None]:
        """Fetch every request, in order; documents come from the consolidated ones."""
        served = [self._served(request[0]) for request in requests]
        loaded = self._current() if any(served) else None
        if loaded is None or loaded.documents is None:
            return self._store.get_many(requests)
        others = [request for request, inner in zip(requests, served, strict=True) if inner is None]
        rest = iter(self._store.get_many(others) if others else ())
        return [
            next(rest) if inner is None else (text := loaded.text(inner)) and cut(text, *request[1:])
            for request, inner in zip(requests, served, strict=True)
        ]

    def contains_many(self, keys: Sequence[str]) -> list[bool]:
        """Whether an object exists for each key; for documents, whether the consolidated metadata contain it."""
        served = [self._served(key) for key in keys]
        documents = self._current().documents if any(served) else None
        if documents is None:
            return self._store.contains_many(keys)
        others = [key for key, inner in zip(keys, served, strict=True) if inner is None]
        rest = iter(self._store.contains_many(others) if others else ())
        return [next(rest) if inner is None else inner in documents for inner in served]

    def _served(self, key: str) -> str | None:
        """The key of a document that is served, relative to the consolidated node; None for other keys."""
        is_document = key[key.rfind("/") + 1 :] in _SERVED
        return key[len(self._prefix) :] if is_document and key.startswith(self._prefix) else None

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths); for consolidated groups, of their members."""
        node = self._inner(path)
        if node is None:
            return self._store.list_dir(path)
        documents, children = self._current()[:2]
        if documents is None or not consolidated.is_group(documents, node):
            return self._store.list_dir(path)
        names = sorted(name for name in DOCUMENTS if join_path(node, name) in documents)
        return names, list(children.get(node, ()))

    def live(self) -> Store:
        """The store below."""
        return self._store.live()

    # -- changes -------------------------------------------------------------------------------------------------

    def check_metadata_writable(self) -> None:
        """Raise `ReadOnlyError` if the metadata were opened for reading only, or the store was."""
        super().check_metadata_writable()
        if self._frozen:
            raise ReadOnlyError(
                f"{join_path(str(self), self._path)}: metadata opened with open_consolidated is read-only; "
                "use open_group(..., mode='r+') to change it"
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ConsolidatedStore, frozen=self._frozen), (self._store, self._path, self._key)


def open_consolidated_node(
    store: Store,
    path: str,
    zarr_format: ZarrFormat | None,
    key: str = consolidated.DEFAULT_KEY,
    *,
    frozen: bool = False,
) -> tuple[Store, NodeMeta | None]:
    """Read the node at a path, with a store that serves its consolidated metadata if it has any.

    One fetch if it is of format 3, two of format 2 that is not said to be it.

    Returns: (store for the node and all below it, its metadata). The store is the one given if nothing is consolidated.
    Raises: MetadataError.
    """
    for name, of in (("zarr.json", 3), (key, 2)):
        if zarr_format not in (None, of):
            continue
        document = join_path(path, name)
        before = consolidated.state_of(store, document)
        data = store.get_one(Request(document))
        if data is None:
            continue
        if name != "zarr.json" or consolidated.FIELD.encode() in bytes(data) or frozen:
            view = ConsolidatedStore(store, path, document, frozen=frozen)
            if view.load(data, before):
                return view, view.with_documents(read_node(view, path, zarr_format))
        if name == "zarr.json":
            what = f"{store}: {escaped(document)}"
            return store, v3.parse(parse_json(data, what), what)
    return store, None if zarr_format == 3 else read_node(store, path, 2)


def require_consolidated(store: Store, meta: NodeMeta | None, where: str) -> None:
    """Raise MetadataError if a node that was opened by `open_consolidated_node` is not consolidated."""
    if meta is not None and not isinstance(store, ConsolidatedStore):
        raise MetadataError(
            f"{where} has no consolidated metadata; make them with consolidate_metadata, or open it with open_group"
        )


def may_be_consolidated(meta: NodeMeta) -> bool:
    """Whether a group may have consolidated metadata beside its own document. The document of a v3 group says so."""
    return meta.zarr_format == 2 or meta.extra.get(consolidated.FIELD) is not None
