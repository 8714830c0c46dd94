"""An HTTP server that shows a store, for reading: objects, ranges of them, entity tags and listings of folders.

Theory of operation. A path is a key. What is no key but has something below it is a folder: it is answered with a page
of links, which fsspec and people can follow. An entity tag stands for the version of an object that the store knows; a
read is repeated if the object was replaced meanwhile, so that bytes and tag belong together. Stores without versions
have no tags. What is large is read and sent in parts; if it is replaced between two of them, the connection is closed,
so that the client misses bytes. Source: RFC 9110, sections 8.8.3 (tags), 13.1 (conditions) and 14 (ranges); RFC 9112,
section 6 (lengths of bodies); Fetch, section 3.2 (CORS).

It is for viewers and colleagues, not for the open internet: a web server in front of it bounds what clients can take.
"""

import hashlib
import re
import socket
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import gzarr
from gzarr.errors import GzarrError, MetadataError, NodeNotFoundError
from gzarr.errors.escaping import escaped, in_html
from gzarr.hierarchy.reaching import open_store_at
from gzarr.indexing.keys import join_path, normalize_path
from gzarr.storage.base import Buffer, Request, Store, host_view, token_of
from gzarr.storage.local import LocalStore
from gzarr.storage.n5 import N5Store
from gzarr.storage.rules import DOCUMENTS, TEMPORARY_PREFIX

#: How often an object is read again that is replaced while it is read.
_ATTEMPTS = 5
#: How many bytes are read and sent at once, each within the limit of time, so that slow clients get large objects too.
_PART_NBYTES = 256 << 10
_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


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
    request_queue_size = 128  # clients open many connections at once

    def __init__(
        self, store: Store, prefix: str, address: tuple[str, int], *, origin: str = "*", quiet: bool = True
    ) -> None:
        self.store = store
        self.prefix = prefix
        self.origin = origin
        self.quiet = quiet
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    @property
    def url(self) -> str:
        """Address of the root, which ends with a slash."""
        host, port = self.server_address[:2]
        name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(str(host), str(host))  # noqa: S104 - only compared
        return f"http://{f'[{name}]' if ':' in name else name}:{port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print what went wrong, unless it is a client that has gone or does not read."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    server: StoreServer
    protocol_version = "HTTP/1.1"  # connections stay open
    disable_nagle_algorithm = True  # headers and body are two packets, and the second would wait
    timeout = 60  # for each of the parts that are sent, and of idle connections

    def do_GET(self) -> None:
        """Answer with an object, a part of it, or a listing."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer as to GET, without the body."""
        self._answer()

    def do_OPTIONS(self) -> None:
        """Tell a browser that it may ask for ranges."""
        self._close_after_body()
        self._send(HTTPStatus.NO_CONTENT, {"Allow": "GET, HEAD, OPTIONS"})

    def log_message(self, format: str, *args: Any) -> None:
        """Print a request, unless the server is quiet."""
        if not self.server.quiet:
            super().log_message("%s", escaped(format % args))

    def _answer(self) -> None:
        self._close_after_body()
        self._began = False
        target = re.sub("^https?://[^/?#]*", "", self.path, flags=re.IGNORECASE)  # as a proxy asks
        path = unquote(re.split("[?#]", target)[0] or "/", errors="surrogateescape")
        missing = f"there is no {path}"
        try:
            key = join_path(self.server.prefix, normalize_path(path))
            if f"/{TEMPORARY_PREFIX}" in f"/{key}":
                self._refuse(HTTPStatus.NOT_FOUND, missing)
            elif path.endswith("/") or not self._send_object(key):
                self._send_folder(key, path)
        except MetadataError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except (NodeNotFoundError, UnicodeError) as error:  # clients need not know where a link leads
            self.log_message("%s", error)
            self._refuse(HTTPStatus.NOT_FOUND, missing)
        except (GzarrError, OSError) as error:
            if self._began:  # what follows would be taken for the object
                raise
            self.log_error("%s", error)  # not to the client: it names paths of this machine
            self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, "the store failed; the server has printed why")

    def _close_after_body(self) -> None:
        """Close the connection after the answer if the request has a body: nobody reads it as the next request."""
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            self.close_connection = True

    # -- objects ---------------------------------------------------------------------------------------------------

    def _send_object(self, key: str) -> bool:
        """Answer with an object, if there is one."""
        for _ in range(_ATTEMPTS):
            token = token_of(self.server.store, key)
            size = self.server.store.getsize(key)
            if size is None:
                return False
            tag = None if token is None else f'"{hashlib.sha256(repr(token).encode()).hexdigest()[:32]}"'
            is_json = key.rpartition("/")[2] in DOCUMENTS
            kind = "application/json" if is_json else "application/octet-stream"
            headers = {"Accept-Ranges": "bytes", "Content-Type": kind}
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
            wanted = range(size) if span is None else span
            body = self._read(key, wanted[:_PART_NBYTES], token)
            if body is None:
                continue  # it was replaced or deleted meanwhile
            if span is not None:
                headers["Content-Range"] = f"bytes {span.start}-{span.stop - 1}/{size}"
            status = HTTPStatus.OK if span is None else HTTPStatus.PARTIAL_CONTENT
            self._send(status, headers, body, len(wanted))
            if self.command != "HEAD":
                self._send_rest(key, wanted[_PART_NBYTES:], token)
            return True
        self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{key} is being replaced all the time")
        return True

    def _send_rest(self, key: str, span: range, token: Any) -> None:
        """Send what follows the first part of an object."""
        for start in range(0, len(span), _PART_NBYTES):
            body = self._read(key, span[start : start + _PART_NBYTES], token)
            if body is None:
                self.log_error("%s was replaced while it was sent", key)
                self.close_connection = True
                return
            self.wfile.write(host_view(body))

    def _read(self, key: str, span: range, token: Any) -> Buffer | None:
        """The bytes of a range, none for HEAD; None if the object has not as many any more or is another version."""
        if self.command == "HEAD" or not span:
            return b""
        body = self.server.store.get_one(Request(key, span.start, len(span)))
        if body is None or host_view(body).nbytes != len(span):
            return None
        return None if token is not None and token_of(self.server.store, key) != token else body

    def _condition(self, tag: str | None) -> HTTPStatus | None:
        """The answer to a condition that does not hold; None to go on."""
        wanted, known = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        if wanted is not None and not _names(wanted, tag):
            return HTTPStatus.PRECONDITION_FAILED
        if known is not None and _names(known.replace("W/", ""), tag):  # a proxy that compresses makes tags weak
            return HTTPStatus.NOT_MODIFIED
        return None

    def _span(self, size: int, tag: str | None) -> range | None:
        """The range that is asked for; None for the whole object, also where several ranges are asked for."""
        match = _RANGE.fullmatch(self.headers.get("Range", "").replace(" ", ""))
        condition = self.headers.get("If-Range")
        if match is None or not any(match.groups()) or (condition is not None and condition != tag):
            return None
        first, last = match.groups()
        if not first:
            return range(max(size - int(last), 0) if int(last) else size, size)
        if last and int(last) < int(first):
            return None
        return range(int(first), min(int(last) + 1, size) if last else size)

    # -- folders ---------------------------------------------------------------------------------------------------

    def _send_folder(self, key: str, path: str) -> None:
        """Answer with links to what is in a folder."""
        names, folders = self.server.store.list_dir(key)
        if not names and not folders and key != self.server.prefix:
            self._refuse(HTTPStatus.NOT_FOUND, f"there is no {path}")
            return
        if not path.endswith("/"):
            self._send(HTTPStatus.MOVED_PERMANENTLY, {"Location": f"/{_quoted(path.lstrip('/'))}/"})
            return
        entries = [*(f"{name}/" for name in folders), *names]
        links = "\n".join(f'<li><a href="{_quoted(entry)}">{in_html(entry)}</a></li>' for entry in entries)
        title = in_html(path)
        head = f"<!DOCTYPE html><meta charset=utf-8><title>{title}</title><h1>{title}</h1>"
        page = f"{head}\n<ul>\n{links}\n</ul>\n".encode()
        self._send(HTTPStatus.OK, {"Content-Type": "text/html; charset=utf-8"}, page, len(page))

    # -- answers ---------------------------------------------------------------------------------------------------

    def _refuse(self, status: HTTPStatus, reason: str) -> None:
        body = f"{escaped(reason)}\n".encode()
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
        if self.close_connection:
            self.send_header("Connection", "close")
        self._began = True
        self.end_headers()
        if self.command != "HEAD" and size:
            self.wfile.write(host_view(body))


def _names(condition: str, tag: str | None) -> bool:
    """Whether a list of entity tags names one; "*" names any object."""
    return condition.strip() == "*" or (tag is not None and tag in [part.strip() for part in condition.split(",")])


def _quoted(path: str) -> str:
    return quote(path, errors="surrogateescape")


# -- what is served ----------------------------------------------------------------------------------------------------


class _ContainedStore(LocalStore):
    """A folder in which links that lead out of a part of it lead nowhere."""

    versions = LocalStore.versions

    def __init__(self, root: str, path: str) -> None:
        super().__init__(root, read_only=True)
        self._inside = Path(root, path).resolve()

    def _path(self, key: str) -> str:
        if not Path(str(self.lock_name(key))).is_relative_to(self._inside):  # which is the real path
            raise NodeNotFoundError(f"{key!r} leads out of {str(self._inside)!r}; --follow-links follows it")
        return super()._path(key)

    def list_dir(self, path: str = "") -> tuple[list[str], list[str]]:
        """Names directly under a path that is inside, sorted: (objects, sub-paths)."""
        if path:
            self._path(path)
        return super().list_dir(path)


def open_served(path: str, *, follow_links: bool = False) -> tuple[Store, str]:
    """Open what is served: an array or a group, or a folder of them. Returns (store, path in it).

    follow_links: whether symbolic links that lead out of a folder are followed.
    """
    try:
        node = gzarr.open(path, mode="r", device="cpu")
        store, prefix = node.store.live(), node.path
    except NodeNotFoundError as error:
        store, prefix = open_store_at(path, "r")
        if not any(map(len, store.list_dir(prefix))):
            raise error from None
    if isinstance(store, LocalStore) and not follow_links:
        store = _ContainedStore(store.root, prefix)
    elif isinstance(store, N5Store) and Path(store.path).is_dir() and not follow_links:
        store = N5Store(_ContainedStore(store.path, prefix))
    return store, prefix
