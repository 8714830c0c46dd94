"""Stores by URL: which kind of store each scheme means, and how options reach it.

Buckets (``s3:// gs:// az:// abfs://``) and HTTP servers are read through obstore where that is installed and knows all
the options, else through fsspec. Everything else that fsspec knows, with chains (``zip::s3://...``), goes to fsspec.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

from gzarr.errors import MissingExtraError, ReadOnlyError, StoreError
from gzarr.storage.base import Store
from gzarr.storage.credentials import guard_logs, shown_cause, without_user
from gzarr.storage.extras import have, require
from gzarr.storage.fsspec import EXTRAS, FsspecStore
from gzarr.storage.objects import ObjectStore
from gzarr.storage.rules import listing, pickled, without_secrets

#: Schemes of buckets, and what obstore calls them.
_BUCKETS = {**{name: name for name in ("s3", "gs", "az", "abfs")}, "s3a": "s3", "gcs": "gs", "abfss": "abfs"}

#: Names that fsspec's file systems (s3fs, gcsfs, adlfs) give options, where obstore has others for the same.
_OPTIONS = {
    "anon": "skip_signature",
    "key": "access_key_id",
    "secret": "secret_access_key",
    "endpoint_url": "endpoint",
    "region_name": "region",
    "sas_token": "sas_key",
}

#: What an HTTP client waits for: an available server answers sooner.
_CLIENT = {"connect_timeout": "5 seconds", "timeout": "60 seconds"}
#: Options of obstore's HTTP client (ClientConfig). obstore panics if it finds them among those of the store.
_CLIENT_OPTIONS = frozenset(
    (
        *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type"),
        *("default_headers", "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout"),
        *("http2_keep_alive_while_idle", "http2_only", "pool_idle_timeout", "pool_max_idle_per_host"),
        *("proxy_ca_certificate", "proxy_excludes", "proxy_url", "randomize_addresses"),
        *("read_timeout", "root_certificate", "timeout", "user_agent"),
    )
)
#: (server or bucket, path) of a URL whose path can be a part of keys: nothing in it is written otherwise in requests.
_PLAIN_URL = re.compile(r"(\w+://[^/?#]+)/([\w-][\w.-]*(?:/[\w-][\w.-]*)*)", re.ASCII)
#: An address of IPv6 in a URL, whose colons chain nothing.
_ADDRESS = re.compile(r"\[[\da-f:.%]*\]", re.IGNORECASE)
#: Cached clients of servers and buckets: making one takes 3 to 7 ms, to read certificates, and each connection takes
#: round trips before the first request.
_CLIENTS_KEPT = 64
#: How the variables of the environment begin that clients are made of: credentials, proxies, certificates.
_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "SERVICE_ACCOUNT", "IDENTITY_", "HTTP", "ALL_PROXY", "NO_PROXY", "SSL_CERT_")
_GOOGLE_FILES = ("~/.config/gcloud/application_default_credentials.json",)
#: A hiccup is tried again; an outage is reported.
_RETRIES: dict[str, Any] = {
    "max_retries": 2,
    "retry_timeout": 15.0,
    "backoff": {"init_backoff": 0.1, "max_backoff": 1.0},
}


@dataclass(frozen=True, slots=True)
class StoreURL(os.PathLike[str]):
    """A URL with the options that its server needs, to be passed wherever a path is taken.

    Attributes
    ----------
    url : str
        The URL.
    options : mapping
        As in fsspec's ``storage_options``.
    """

    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"StoreURL({without_secrets(self.url)!r})"  # options may be secrets too

    def __fspath__(self) -> str:
        return self.url


def open_url(url: str, options: Mapping[str, Any], *, read_only: bool) -> Store:
    """Return the store that a URL names.

    Parameters
    ----------
    url : str
        A URL with a scheme that is not gzarr's own (``file://``, ``memory://``), or a chain.
    options : mapping
        What the file system or server needs.
    read_only : bool
        Whether to return a store that refuses changes.

    Returns
    -------
    Store
        The store.

    Raises
    ------
    MissingExtraError
        If the extra that reaches the server is not installed.
    StoreError
        If something is wrong with the URL; the message says what.
    """
    scheme = re.split("://|::", url, maxsplit=1)[0].lower()
    is_chain = "::" in _ADDRESS.sub("", url)
    if not is_chain and url.lower().rstrip("/").endswith((".zip", ".ozx")):
        if not read_only:
            raise StoreError(
                f"{without_secrets(url)!r}: archives across a network can be read only; open it with mode='r'"
            )
        return FsspecStore.from_url(f"zip::{url}", {scheme: dict(options)} if options else {}, True)
    if not is_chain and scheme in _BUCKETS:
        return _open_bucket(url, scheme, options, read_only)
    if not is_chain and scheme in ("http", "https"):
        return _open_http(url, options)
    _check_scheme(url, scheme)
    return FsspecStore.from_url(url, options, read_only)


def _open_bucket(url: str, scheme: str, options: Mapping[str, Any], read_only: bool) -> Store:
    name = _BUCKETS[scheme]
    rest = url.partition("://")[2]
    if not rest.partition("/")[0]:
        raise StoreError(f"{without_secrets(url)!r} names no bucket; expected {scheme}://bucket/path")
    translated = to_obstore(options)
    if have("obstore") and translated is not None:
        bucket, path = _plain(f"{name}://{rest.rstrip('/')}")
        made = _client(bucket, translated)
        if made is not None:
            return ObjectStore(made, read_only=read_only, url=url.rstrip("/"), path=path)
    if not have("fsspec"):
        if have("obstore"):
            raise StoreError(
                f"{without_secrets(url)!r}: obstore does not know all of the options {sorted(options)}, and fsspec is"
                " not installed: pip install 'gzarr[fsspec]', with s3fs, gcsfs or adlfs"
            )
        raise MissingExtraError(f"{without_secrets(url)!r} needs a client: pip install 'gzarr[{EXTRAS[name]}]'")
    return FsspecStore.from_url(url, options, read_only)


def _obstore_store(url: str, options: Mapping[str, Any]) -> Any | None:
    """A store of obstore; None if it does not know one of the options."""
    stores = require("obstore.store", "s3", url)
    errors = require("obstore.exceptions", "s3", url)
    given = dict(options)
    apart = {name: given.pop(name) for name in _CLIENT_OPTIONS & given.keys()}
    client = {**_CLIENT, **apart, **given.pop("client_options", {})}
    endpoint = str(given.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL") or "")
    if endpoint.startswith("http://"):
        client.setdefault("allow_http", True)
    retry = given.pop("retry_config", _RETRIES)
    try:
        return stores.from_url(url, client_options=client, retry_config=_with_durations(retry), **given)
    except (errors.BaseError, ValueError, TypeError) as error:
        if isinstance(error, errors.UnknownConfigurationKeyError) and have("fsspec"):
            return None
        said = without_secrets(str(error).partition(chr(10))[0])
        raise StoreError(f"cannot open {without_secrets(url)!r}: {said}") from shown_cause(error)


def _with_durations(value: Any) -> Any:
    """Seconds as the durations that obstore wants."""
    if isinstance(value, Mapping):
        return {name: _with_durations(one) for name, one in value.items()}
    return timedelta(seconds=value) if isinstance(value, float) else value


def to_obstore(options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Translate fsspec's options to obstore's, which pass unchanged. None if an option has no translation."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if name == "client_kwargs":
            inner = to_obstore(value)
            if inner is None:
                return None
            found |= inner
        elif name == "connection_string":
            found |= _from_connection_string(value)
        elif name == "token" and value == "anon":  # gcsfs
            found["skip_signature"] = True
        elif name in ("use_ssl", "use_listings_cache", "asynchronous", "project"):
            continue  # the endpoint's scheme says the first, and the others mean nothing to obstore
        elif name in ("profile", "fs", "session", "config_kwargs", "s3_additional_kwargs", "requester_pays"):
            return None
        elif value is not None:
            found[_OPTIONS.get(name, name)] = value
    return found


def _from_connection_string(text: str) -> dict[str, Any]:
    """The options of obstore for an Azure connection string."""
    parts = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    names = {
        "AccountName": "account_name",
        "AccountKey": "account_key",
        "BlobEndpoint": "endpoint",
        "SharedAccessSignature": "sas_key",
    }
    return {names[k]: v for k, v in parts.items() if k in names}


def _open_http(url: str, options: Mapping[str, Any]) -> Store:
    if have("obstore") and not set(options) - {"client_options", "retry_config", "headers"}:
        given = dict(options)
        url, user = without_user(url)
        headers = {**user, **(given.pop("headers", None) or {})}
        if headers:
            given["client_options"] = {**given.get("client_options", {}), "default_headers": headers}
        given["client_options"] = {"allow_http": True, **given.get("client_options", {})}
        url = url.rstrip("/")
        server, path = _plain(url)
        return HTTPStore(_client(server, given), url=url, path=path)
    if not have("fsspec"):
        raise MissingExtraError(f"{without_secrets(url)!r} needs an HTTP client: pip install 'gzarr[http]'")
    return FsspecStore.from_url(url, options, True)


def _plain(url: str) -> tuple[str, str]:
    """The server or bucket of a URL, and the path there; if the path cannot be a part of keys, the URL and no path."""
    plain = _PLAIN_URL.fullmatch(url)
    return (plain[1], plain[2]) if plain else (url, "")


def _client(url: str, options: Mapping[str, Any]) -> Any | None:
    """An obstore store for a server or bucket, reused with its open connections if nothing differs."""
    try:
        said = json.dumps(options, sort_keys=True)
    except TypeError:  # durations, or functions that give credentials
        return _obstore_store(url, options)
    environment = tuple(item for item in os.environ.items() if item[0].upper().startswith(_VARIABLES))
    values = (*options.values(), *dict(environment).values(), *(_GOOGLE_FILES if url.startswith("gs:") else ()))
    return _kept_client(url, said, environment, tuple(_changed(value) for value in values if _is_path(value)))


def _is_path(value: object) -> bool:
    return isinstance(value, str) and (os.sep in value or "." in value) and "://" not in value


def _changed(path: str) -> int | None:
    """When a file of credentials was changed last: clients read them only once. None if there is no such file."""
    try:
        # A quarter of the time of `Path`, for each time that an array is opened.
        return os.stat(path if path[0] != "~" else os.path.expanduser(path)).st_mtime_ns  # noqa: PTH111, PTH116
    except (OSError, ValueError):
        return None


@lru_cache(maxsize=_CLIENTS_KEPT)
def _kept_client(
    url: str, options: str, environment: tuple[tuple[str, str], ...], files: tuple[int | None, ...]
) -> Any | None:
    return _obstore_store(url, json.loads(options))


def _check_scheme(url: str, scheme: str) -> None:
    fsspec = require("fsspec", "fsspec", f"{without_secrets(url)!r}")
    schemes = [part.split("://")[0].lower() for part in url.split("::") if "://" in part or part.isidentifier()]
    unknown = [name for name in schemes if name not in fsspec.available_protocols()]
    if unknown:
        raise StoreError(
            f"cannot open {without_secrets(url)!r}: nothing reads {unknown[0]!r}; expected a path, file://, memory://,"
            " zip://, s3://, gs://, az://, http(s)://, or another scheme of fsspec"
        )


# -- HTTP servers ------------------------------------------------------------------------------------------------------


class HTTPStore(ObjectStore):
    """What a plain HTTP server has below a URL; only for reading.

    Servers without entity tags are read without them: then whole shards are read. Listing needs `fsspec`, which reads
    the links of directory pages; most servers of data have none, but what is asked for by name is always found.

    Parameters
    ----------
    store : obstore.store.HTTPStore
        The store.
    read_only : bool
        Ignored: the store is read-only.
    url : str, optional
        What to call the store, and where directory pages are.
    path : str
        Where this store is in `store`, which may be one of the whole server, so that its connections are shared.
    """

    versions = ObjectStore.versions

    def __init__(self, store: Any, *, read_only: bool = True, url: str | None = None, path: str = "") -> None:
        if path and url is None:
            url = f"{str(store.url).rstrip('/')}/{path}"
        super().__init__(store, read_only=True, url=url, path=path)
        sent = (getattr(store, "client_options", None) or {}).get("default_headers", {})
        self._headers = {name: bytes(value).decode() for name, value in sent.items()}
        # Others may be shown other objects.
        self._place = (self._place, hashlib.sha256(repr(sorted(self._headers.items())).encode()).digest())

    def check_writable(self) -> None:
        """Raise `ReadOnlyError`."""
        raise ReadOnlyError(f"store {self} is read-only: gzarr does not write to HTTP servers; write a copy elsewhere")

    def _listed(self, path: str) -> Sequence[tuple[str, int | None]]:
        objects, paths = self.list_dir(path)
        start = f"{path}/" if path else ""
        return [(start + name, None) for name in objects] + [o for name in paths for o in self._listed(start + name)]

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path, sorted: (objects, sub-paths). Raises: StoreError if there is no such page."""
        fsspec = require("fsspec", "http", "listing what an HTTP server has")
        require("aiohttp", "http", "listing what an HTTP server has")
        root = (self._url or self._name).rstrip("/")
        url = f"{root}/{path}/" if path else f"{root}/"
        try:
            guard_logs()
            fs = fsspec.filesystem("http", use_listings_cache=False, skip_instance_cache=True, headers=self._headers)
            entries = fs.ls(url, detail=True)
            url = unquote(url)
        except FileNotFoundError:
            return [], []
        except Exception as error:  # noqa: BLE001 - fsspec raises many
            said = without_secrets(str(error))
            raise StoreError(
                f"store {self}: cannot list {path!r}: the server gives no directory page ({said}); open arrays and"
                " groups by their path, or open consolidated metadata"
            ) from shown_cause(error)
        objects: set[str] = set()
        paths: set[str] = set()
        for entry in entries:
            link = unquote(entry["name"])
            name = link[len(url) :] if link.startswith(url) else ""
            (paths if name.endswith("/") else objects).add(name.partition("/")[0])
        return listing(objects - {""}, paths - {""})

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(self, HTTPStore, self.store, url=self._url, path=self._path)
