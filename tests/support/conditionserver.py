"""An S3 server that knows conditions, for tests: objects in a dict, replaced under a lock if their entity tag is right.

rclone's server, which the other tests use, ignores If-Match and If-None-Match. This one has what a store asks for to
read, write, delete and list objects; it shows that the client's requests are what the store means, and counts them.

Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-writes.html
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class ConditionServer(ThreadingHTTPServer):
    """Serves objects that live in memory; a bucket is the first part of their names.

    Attributes
    ----------
    requests : collections.Counter
        How many requests were made, by method.
    refusal : str, optional
        What every request with a condition is refused with.
    error : tuple of (int, str), optional
        The status and body of every answer.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, refusal: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.objects: dict[str, tuple[str, bytes]] = {}
        self.lock = threading.Lock()
        self.requests: Counter[str] = Counter()
        self.refusal = refusal
        self.error: tuple[int, str] | None = None
        self._n_tags = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def options(self) -> dict[str, object]:
        """Options with which `gzarr.open` finds it."""
        client = {"endpoint_url": f"http://127.0.0.1:{self.server_address[1]}", "region_name": "us-east-1"}
        return {"key": "x", "secret": "x", "client_kwargs": client}

    def put(self, key: str, data: bytes) -> str:
        self._n_tags += 1
        self.objects[key] = f'"{self._n_tags}"', data
        return self.objects[key][0]

    def listed(self, bucket: str, query: dict[str, list[str]]) -> str:
        prefix, delimiter = query.get("prefix", [""])[0], query.get("delimiter", [""])[0]
        names, folders = [], set()
        for key in sorted(self.objects):
            name = key.removeprefix(f"{bucket}/")
            if not name.startswith(prefix):
                continue
            head, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            if found:
                folders.add(prefix + head + delimiter)
            else:
                names.append((name, *self.objects[key]))
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(tag)}</ETag><Size>{len(data)}</Size></Contents>"
            for name, tag, data in names
        )
        common = "".join(f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in sorted(folders))
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}{common}</ListBucketResult>"


class _Request(BaseHTTPRequestHandler):
    """Answers one client."""

    server: ConditionServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        wanted, absent = self.headers.get("If-Match"), self.headers.get("If-None-Match")
        if self.server.refusal and (wanted or absent):
            return self._answer(501, self.server.refusal.encode())
        with self._locked() as key:
            tag = self.server.objects.get(key, (None,))[0]
            if wanted is not None and tag is None:
                return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            if (wanted is not None and tag != wanted) or (absent == "*" and tag is not None):
                return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return self._answer(200, tag=self.server.put(key, data))

    def do_GET(self) -> None:
        if self.server.error:
            return self._answer(self.server.error[0], self.server.error[1].encode())
        query = parse_qs(urlsplit(self.path).query)
        with self._locked() as key:
            if "list-type" in query:
                return self._answer(200, self.server.listed(key.strip("/"), query).encode())
            found = self.server.objects.get(key)
        if found is None:
            return self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        tag, data = found
        if self.headers.get("If-Match", tag) != tag:
            return self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if not asked:
            return self._answer(200, data, tag)
        first, last = asked[1], asked[2]
        start = int(first) if first else max(len(data) - int(last), 0)
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        return self._answer(206, data[start:end], tag, f"bytes {start}-{end - 1}/{len(data)}")

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        with self._locked() as key:
            self.server.objects.pop(key, None)
        self._answer(204)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        with self._locked() as key:
            names = re.findall("<Key>(.*?)</Key>", body)
            for name in names:
                self.server.objects.pop(f"{key.strip('/')}/{name}", None)
        deleted = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _locked(self) -> _Locked:
        return _Locked(self.server, self.command, unquote(urlsplit(self.path).path).lstrip("/"))

    def _answer(self, status: int, body: bytes = b"", tag: str | None = None, part: str | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Length": len(body), "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        headers |= {"ETag": tag} if tag else {}
        headers |= {"Content-Range": part} if part else {}
        for name, value in headers.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Locked:
    """Holds the server's lock, counts a request, and gives its key."""

    def __init__(self, server: ConditionServer, method: str, key: str) -> None:
        self.server, self.method, self.key = server, method, key

    def __enter__(self) -> str:
        self.server.lock.acquire()
        self.server.requests[self.method] += 1
        return self.key

    def __exit__(self, *exc: object) -> None:
        self.server.lock.release()
