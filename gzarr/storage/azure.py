"""Blobs on Azure by Azure's own client, under the name of zarr 2. URLs (``az://``) are read by obstore."""

from collections.abc import Hashable, Iterable
from contextlib import suppress
from typing import Any, Literal

from gzarr.errors import StoreError
from gzarr.storage.capabilities import Buffer
from gzarr.storage.databases import DatabaseStore
from gzarr.storage.extras import require


class ABSStore(DatabaseStore):
    """A store of blobs on Azure by its own client; needs ``pip install 'gzarr[azure]'``; ``az://`` is faster.

    Parameters
    ----------
    container : str, optional
        Name of the container.
    prefix : str
        Path below which the objects are.
    account_name, account_key : str, optional
        The account.
    blob_service_kwargs : dict, optional
        Arguments for the client.
    dimension_separator : {".", "/"}, optional
        For new Zarr v2 arrays that name none.
    client : azure.storage.blob.ContainerClient
        A client instead of the parameters above.
    read_only : bool
        Whether to refuse changes.
    """

    concurrency = 64

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
        exceptions = require("azure.core.exceptions", "azure", "ABSStore")
        self._errors, self._missing = exceptions.AzureError, exceptions.ResourceNotFoundError
        if client is None:
            if container is None or account_name is None:
                raise StoreError("ABSStore: pass client=, or container= and account_name=")
            url = f"https://{account_name}.blob.core.windows.net/"
            client = blob.ContainerClient(url, container, credential=account_key, **(blob_service_kwargs or {}))
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._container = client
        name = f"abs://{client.account_name}/{client.container_name}/{self._prefix}".rstrip("/")
        super().__init__(name, dimension_separator, read_only, options={})

    def _open(self) -> Any:
        return self._container

    def _get(self, key: str) -> bytes | None:
        if ".." in key.split("/"):  # no object has such a key, and the server would leave the prefix
            return None
        try:
            return bytes(self.client.download_blob(self._prefix + key).readall())
        except self._missing as error:
            if "ContainerNotFound" in str(getattr(error, "error_code", "")):
                raise
            return None

    def _put(self, key: str, value: Buffer) -> None:
        self.client.upload_blob(self._prefix + key, bytes(value), overwrite=True)

    def _drop(self, key: str) -> None:
        with suppress(self._missing):
            self.client.delete_blob(self._prefix + key)

    def _keys(self, path: str) -> list[str]:
        names: Iterable[Any] = self.client.list_blobs(
            name_starts_with=self._prefix + (f"{path}/" if path else "") or None
        )
        return [blob.name[len(self._prefix) :] for blob in names]

    def close(self) -> None:
        """Do nothing: whoever made the client closes it."""

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("an ABSStore cannot be pickled: its client holds credentials; use az://container/path")

    def lock_name(self, key: str) -> Hashable:
        """Server, container and path."""
        return self._container.primary_hostname, self._container.container_name, self._prefix + key
