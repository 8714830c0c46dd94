"""An HTTP server that shows a store, for reading: objects, ranges of them, entity tags and listings of folders.

Theory of operation. A path is a key. What is no key but has something below it is a folder: it is answered with a page
of links, which fsspec and people can follow. An entity tag stands for the version of an object that the store knows; a
read is repeated if the object was replaced meanwhile, so that bytes and tag belong together. Stores without versions
have no tags. Source: RFC 9110, sections 8.8.3 (tags), 13.1 (conditions) and 14 (ranges); Fetch, section 3.2 (CORS).
"""

from __future__ import annotations

import hashlib
import html
import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

import gzarr
from gzarr.errors import GzarrError, MetadataError, NodeNotFoundError
from gzarr.hierarchy.reaching import open_store_at
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.storage.base import Buffer, Request, Store, host_view, token_of

#: How often an object is read again that is replaced while it is read.
_ATTEMPTS = 5
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_TYPES = {"zarr.json": "application/json", ".zarray": "application/json", ".zgroup": "application/json"}
_TYPES |= {".zattrs": "application/json", ".zmetadata": "application/json"}


class Span(NamedTuple):
    """A range of bytes: from the first to before the end."""

    start: int
    stop: int


def open_served(path: str) -> tuple[Store, str]:
    """Open what is served: an array or a group, or a folder of them. Returns (store, path in it)."""
    try:
        node = gzarr.open(path, mode="r", device="cpu")
    except NodeNotFoundError as error:
        store, prefix = open_store_at(path, "r")
        if not any(map(len, store.list_dir(prefix))):
            raise error from None
        return store, prefix
    return node.store.live(), node.path


class StoreServer(ThreadingHTTPServer):
    """A server of one store, a thread for every connection.

    Parameters
    ----------
    store : Store
        The store.
    prefix : str
        Path in the store that becomes the root of the server.
    address : (str, int)
        Where to listen: host, and port or 0.
    origin : str
        Whose pages may read: an origin or "*".
    quiet : bool
        Whether requests are not printed.
    """

    daemon_threads = True

    def __init__(
        self, store: Store, prefix: str, address: tuple[str, int], *, origin: str = "*", quiet: bool = True
    ) -> None:
        self.store = store
        self.prefix = prefix
        self.origin = origin
        self.quiet = quiet
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        """Address of the root, which ends with a slash."""
        host, port = self.server_address[:2]
        return f"http://{'127.0.0.1' if host == '0.0.0.0' else host!s}:{port}/"  # noqa: S104 - only compared


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: StoreServer
    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True  # headers and body are two packets, and the second would wait
    wbufsize = -1
    timeout = 60

    def do_GET(self) -> None:
        """Answer with an object, a part of it, or a listing."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer as to GET, without the body."""
        self._answer()

    def do_OPTIONS(self) -> None:
        """Tell a browser that it may ask for ranges."""
        self._send(HTTPStatus.NO_CONTENT, {"Allow": "GET, HEAD, OPTIONS"})

    def log_message(self, format: str, *args: Any) -> None:
        """Print a request, unless the server is quiet."""
        if not self.server.quiet:
            super().log_message(format, *args)

    def _answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        try:
            key = join_path(self.server.prefix, normalize_path(path))
            if path.endswith("/") or not self._send_object(key):
                self._send_folder(key, path)
        except MetadataError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except (GzarrError, OSError) as error:
            if isinstance(error, ConnectionError):
                raise
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    # -- objects ---------------------------------------------------------------------------------------------------

    def _send_object(self, key: str) -> bool:
        """Answer with an object, if there is one."""
        for _ in range(_ATTEMPTS):
            token = token_of(self.server.store, key)
            size = self.server.store.getsize(key)
            if size is None:
                return False
            tag = None if token is None else f'"{hashlib.sha256(repr(token).encode()).hexdigest()[:32]}"'
            headers = {
                "Accept-Ranges": "bytes",
                "Content-Type": _TYPES.get(key.rpartition("/")[2], "application/octet-stream"),
            }
            if tag is not None:
                headers["ETag"] = tag
            refused = self._condition(tag)
            if refused is not None:
                self._send(refused, headers)
                return True
            span = self._span(size, tag)
            if span is not None and span.start >= size:
                self._send(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {**headers, "Content-Range": f"bytes */{size}"})
                return True
            body = self._read(key, span or Span(0, size))
            if body is None or (token is not None and token_of(self.server.store, key) != token):
                continue  # it was replaced or deleted meanwhile
            if span is None:
                self._send(HTTPStatus.OK, headers, body, size)
            else:
                headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{size}"
                self._send(HTTPStatus.PARTIAL_CONTENT, headers, body, span.stop - span.start)
            return True
        self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{key} is being replaced all the time")
        return True

    def _read(self, key: str, span: Span) -> Buffer | None:
        """The bytes of a range, none for HEAD; None if the object has not as many any more."""
        if self.command == "HEAD" or span.start == span.stop:
            return b""
        body = self.server.store.get_one(Request(key, span.start, span.stop - span.start))
        return None if body is None or host_view(body).nbytes != span.stop - span.start else body

    def _condition(self, tag: str | None) -> HTTPStatus | None:
        """The answer to a condition that does not hold; None to go on."""
        wanted, known = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        if wanted is not None and not _names(wanted, tag):
            return HTTPStatus.PRECONDITION_FAILED
        if known is not None and _names(known, tag):
            return HTTPStatus.NOT_MODIFIED
        return None

    def _span(self, size: int, tag: str | None) -> Span | None:
        """The range that is asked for; None for the whole object, also where several ranges are asked for."""
        match = _RANGE.fullmatch(self.headers.get("Range", "").replace(" ", ""))
        condition = self.headers.get("If-Range")
        if match is None or not any(match.groups()) or (condition is not None and condition != tag):
            return None
        first, last = match.groups()
        if not first:
            return Span(max(size - int(last), 0), size) if int(last) else Span(size, size)
        if last and int(last) < int(first):
            return None
        return Span(int(first), min(int(last) + 1, size) if last else size)

    # -- folders ---------------------------------------------------------------------------------------------------

    def _send_folder(self, key: str, path: str) -> None:
        """Answer with links to what is in a folder."""
        names, folders = self.server.store.list_dir(key)
        if not names and not folders and key != self.server.prefix:
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no {path}")
            return
        if not path.endswith("/"):
            self._send(HTTPStatus.MOVED_PERMANENTLY, {"Location": quote(path) + "/"})
            return
        entries = [*(f"{name}/" for name in folders), *names]
        links = "\n".join(f'<li><a href="{quote(entry)}">{html.escape(entry)}</a></li>' for entry in entries)
        title = html.escape(path)
        head = f"<!DOCTYPE html><meta charset=utf-8><title>{title}</title><h1>{title}</h1>"
        page = f"{head}\n<ul>\n{links}\n</ul>\n".encode()
        self._send(HTTPStatus.OK, {"Content-Type": "text/html; charset=utf-8"}, page, len(page))

    # -- answers ---------------------------------------------------------------------------------------------------

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        body = f"{reason}\n".encode()
        self._send(status, {"Content-Type": "text/plain; charset=utf-8"}, body, len(body))

    def _send(self, status: HTTPStatus, headers: dict[str, str], body: Buffer = b"", size: int = 0) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Access-Control-Allow-Origin", self.server.origin)
        self.send_header("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
        self.send_header("Access-Control-Allow-Headers", "Range, If-Match, If-None-Match, If-Range")
        self.send_header("Access-Control-Expose-Headers", "Accept-Ranges, Content-Length, Content-Range, ETag")
        self.send_header("Cache-Control", "no-cache")  # ask again whether it has changed
        if status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            self.send_header("Content-Length", str(size))
        self.end_headers()
        if self.command != "HEAD" and size:
            self.wfile.write(host_view(body))


def _names(condition: str, tag: str | None) -> bool:
    """Whether a list of entity tags names one; "*" names any object."""
    return condition.strip() == "*" or (tag is not None and tag in [part.strip() for part in condition.split(",")])
