"""Objects as blobs of an Azure container, through the client that Azure's own package gives.

``az://`` URLs go another way (`gzarr.storage.objects`); this store is for programs that have a ``ContainerClient``.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

from gzarr.errors import StoreError
from gzarr.storage.credentials import shown_cause
from gzarr.storage.extras import require
from gzarr.storage.forks import ForkGuard
from gzarr.storage.remote import Answer, EntityTags, TaggedStore, TaggedWrites
from gzarr.storage.rules import check_key, check_path, listing

#: Seconds to wait for a connection, and how often to try again: enough for a hiccup, and an error comes soon.
_CLIENT_OPTIONS = {"connection_timeout": 5, "retry_total": 2, "retry_backoff_factor": 0.2}


class ABSStore(TaggedStore):
    """A store in a container of Azure Blob Storage; needs ``pip install 'gzarr[azure]'``.

    Parameters
    ----------
    container : str, optional
        Name of the container, without `client`.
    prefix : str
        Path within the container.
    account_name, account_key : str, optional
        Credentials, without `client`.
    blob_service_kwargs : dict, optional
        Arguments for the client, without `client`.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    client : azure.storage.blob.ContainerClient
        A client, with its own timeouts and retries, instead of the parameters above.
    read_only : bool
        Whether to refuse changes.

    Raises
    ------
    MissingExtraError
        If the extra is not installed.
    StoreError
        If neither a client nor a container and an account are given.
    """

    def __init__(
        self,
        container: str | None = None,
        prefix: str = "",
        account_name: str | None = None,
        account_key: str | None = None,
        blob_service_kwargs: dict[str, Any] | None = None,
        dimension_separator: Literal[".", "/"] | None = None,
        client: Any = None,
        *,
        read_only: bool = False,
    ) -> None:
        blob = require("azure.storage.blob", "azure", "ABSStore")
        azure = require("azure.core", "azure", "ABSStore")
        self._exceptions = require("azure.core.exceptions", "azure", "ABSStore")
        self._errors = self._exceptions.AzureError
        self._unmodified, self._absent = azure.MatchConditions.IfNotModified, azure.MatchConditions.IfMissing
        if client is None:
            if container is None or account_name is None:
                raise StoreError("ABSStore: pass client=, or container= and account_name=")
            url = f"https://{account_name}.blob.core.windows.net/"
            options = {**_CLIENT_OPTIONS, **(blob_service_kwargs or {})}
            client = blob.ContainerClient(url, container, credential=account_key, **options)
        self.client = client
        self._forks = ForkGuard("its client")
        self.prefix = prefix.strip("/")
        check_path(self.prefix)
        self.dimension_separator = dimension_separator
        self.read_only = read_only
        self._name = "/".join(filter(None, (f"abs://{client.account_name}/{client.container_name}", self.prefix)))
        self._endpoint = client.primary_hostname

    def _blob(self, key: str) -> Any:
        return self._container().get_blob_client(self._path(key))

    def _container(self) -> Any:
        self._forks.check(self)
        return self.client

    def _path(self, key: str) -> str:
        return f"{self.prefix}/{key}" if self.prefix else key

    def _failed(self, what: str, error: Exception) -> StoreError:
        text = str(error).partition("\n")[0]
        remedy = "is the server reachable, and are account and container right?"
        if getattr(error, "status_code", None) in (401, 403):
            remedy = "the account requires credentials, or rejects those given: pass them to the client"
        return StoreError(f"store {self} at {self._endpoint}: cannot {what}: {text[:600]}; {remedy}")

    def _is_missing(self, error: Exception) -> bool:
        # Only what is missing in a container that is there: a wrong container is an error, not an empty array.
        return isinstance(error, self._exceptions.ResourceNotFoundError) and "ContainerNotFound" not in str(
            getattr(error, "error_code", "")
        )

    def _is_replaced(self, error: Exception) -> bool:
        return isinstance(error, self._exceptions.ResourceModifiedError)

    def _request(self, key: str, start: int | None, length: int | None, version: object | None) -> Answer:
        options: dict[str, Any] = {}
        if start is not None:
            if start < 0 or length is None:
                raise self._exceptions.AzureError("Azure has no suffixes")  # the caller then asks for the size
            options = {"offset": start, "length": length}
        if version is not None:
            options |= {"etag": version, "match_condition": self._unmodified}
        found = self._blob(key).download_blob(max_concurrency=1, **options)
        return Answer(bytes(found.readall()), str(found.properties.etag))

    def _look_up(self, key: str) -> tuple[int, object | None] | None:
        found = self._asked("look up", key, lambda: self._blob(key).get_blob_properties()) if key else None
        return None if found is None else (int(found.size), str(found.etag))

    @property
    def versions(self) -> EntityTags | None:
        """The entity tags, which the service changes with every write."""
        return EntityTags(self)

    @property
    def conditional(self) -> TaggedWrites | None:
        """Changes on the condition that a blob still has its entity tag."""
        return TaggedWrites(self, deletes=True)

    def _put_if(self, key: str, data: bytes | memoryview | None, tag: object | None) -> bool:
        condition = {"etag": tag, "match_condition": self._unmodified}
        if tag is None:
            condition = {"match_condition": self._absent}
        try:
            if data is None:
                self._blob(key).delete_blob(**condition)
            else:
                self._blob(key).upload_blob(bytes(data), overwrite=True, max_concurrency=1, **condition)
        except (self._exceptions.ResourceModifiedError, self._exceptions.ResourceExistsError):
            return False
        except self._errors as error:
            if tag is not None and self._is_missing(error):
                return False
            raise self._failed(f"write {key!r}", error) from shown_cause(error)
        return True

    def _start(self, path: str) -> str:
        check_path(path)
        start = self._path(path).strip("/")
        return f"{start}/" if start else ""

    def _listed(self, path: str) -> Sequence[tuple[str, int | None]]:
        nskip = len(self._path("x")) - 1
        with self._failures(f"list {path!r}"):
            blobs = self._container().list_blobs(name_starts_with=self._start(path) or None)
            return [(blob.name[nskip:], blob.size) for blob in blobs]

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths)."""
        start = self._start(path)
        objects: set[str] = set()
        paths: set[str] = set()
        with self._failures(f"list {path!r}"):
            for item in self._container().walk_blobs(name_starts_with=start or None, delimiter="/"):
                name = item.name[len(start) :]
                (paths if name.endswith("/") else objects).add(name.rstrip("/"))
        return listing(objects - {""}, paths)

    def lock_name(self, key: str) -> Hashable:
        """Server, container and path."""
        return self._endpoint, self.client.container_name, self._path(key)

    def _put(self, key: str, data: bytes | memoryview) -> None:
        check_key(key)
        with self._failures(f"write {key!r}"):
            self._blob(key).upload_blob(bytes(data), overwrite=True, max_concurrency=1)

    def _remove(self, key: str) -> None:
        check_key(key)
        self._asked("delete", key, lambda: self._blob(key).delete_blob())

    def close(self) -> None:
        """Do nothing: whoever made the client closes it."""
