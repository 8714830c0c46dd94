"""An HTTP server on loopback that delays every answer by some milliseconds, like a distant store.

    python -m benchmarks.cpu.server FOLDER DELAY_S

Prints its port. Serves whole files or one byte range (also of the last bytes) over persistent connections.
"""

from __future__ import annotations

import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD for the files of a folder."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else headers and body of a small answer wait for each other
    folder: Path
    delay_s: float

    def do_GET(self) -> None:
        """Send the file or a range of it."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Send the headers only."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        time.sleep(self.delay_s)
        path = self.folder / self.path.partition("?")[0].lstrip("/")
        if ".." in path.parts or not path.is_file():
            self._send(404, b"", {"Content-Length": "0"})
            return
        size = path.stat().st_size
        start, stop, status = requested_range(self.headers.get("Range"), size)
        headers = {"Content-Length": str(stop - start), "Accept-Ranges": "bytes"}
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        body = b""
        if with_body:
            with path.open("rb") as file:
                file.seek(start)
                body = file.read(stop - start)
        self._send(status, body, headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def requested_range(header: str | None, size: int) -> tuple[int, int, int]:
    """The first byte, the one after the last, and the status of the answer."""
    match = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if match is None or size == 0:
        return 0, size, 200
    first, last = match.groups()
    if not first:
        return max(0, size - int(last or 0)), size, 206
    return int(first), min(size, int(last) + 1) if last else size, 206


class Server(ThreadingHTTPServer):
    """A thread for each connection, and a queue for many at once."""

    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that hang up."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


def main() -> None:
    """Serve until the process is ended."""
    Handler.folder, Handler.delay_s = Path(sys.argv[1]), float(sys.argv[2])
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
