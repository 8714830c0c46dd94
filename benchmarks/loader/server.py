"""An object store on loopback that is far away: every answer comes late, and all of them share one line.

    python -m benchmarks.loader.server FOLDER NAME DELAY_S BYTES_PER_S

Prints its port. Serves an array and its group: GET (whole objects, or one range) and HEAD over persistent connections,
out of memory. An answer is sent once the delay is over and the line has carried all that was asked for before.
`GET /.served` tells at once how many bytes were sent so far.
"""

from __future__ import annotations

import asyncio
import hashlib
import sys
from pathlib import Path

from benchmarks.cpu.server import requested_range


class Line:
    """The line to the clients: it carries so many bytes a second, in the order of the requests."""

    def __init__(self, delay_s: float, bytes_per_s: float) -> None:
        self.delay_s, self.bytes_per_s, self.free_at, self.served = delay_s, bytes_per_s, 0.0, 0

    def due(self, now: float, nbytes: int) -> float:
        """When the last of these bytes is there."""
        self.free_at = max(self.free_at, now + self.delay_s) + nbytes / self.bytes_per_s
        self.served += nbytes
        return self.free_at


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(self, objects: dict[str, bytes], tags: dict[str, str], line: Line) -> None:
        self.objects, self.tags, self.line, self.pending = objects, tags, line, b""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None

    def data_received(self, data: bytes) -> None:
        self.pending += data
        while b"\r\n\r\n" in self.pending:
            head, _, self.pending = self.pending.partition(b"\r\n\r\n")
            self._answer(head.decode())

    def _answer(self, head: str) -> None:
        request, *lines = head.split("\r\n")
        method, path, _ = request.split(" ")
        loop, key = asyncio.get_running_loop(), path.partition("?")[0].lstrip("/")
        if key == ".served":
            self._send(_reply(200, str(self.line.served).encode(), {}))
            return
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        answer = self._object(key, fields, method)
        loop.call_at(self.line.due(loop.time(), len(answer)), self._send, answer)

    def _object(self, key: str, fields: dict[str, str], method: str) -> bytes:
        content = self.objects.get(key)
        if content is None:
            return _reply(404, b"", {})
        start, stop, status = requested_range(fields.get("range"), len(content))
        headers = {"Accept-Ranges": "bytes", "ETag": self.tags[key]}
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
        return _reply(status, content[start:stop], headers, with_body=method != "HEAD")

    def _send(self, answer: bytes) -> None:
        if self.transport is not None:
            self.transport.write(answer)


def _reply(status: int, body: bytes, headers: dict[str, str], *, with_body: bool = True) -> bytes:
    headers = {"Content-Length": str(len(body)), **headers}
    lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode() + (body if with_body else b"")


async def serve(objects: dict[str, bytes], delay_s: float, bytes_per_s: float) -> None:
    """Serve until the process is ended."""
    tags = {key: f'"{hashlib.md5(content).hexdigest()}"' for key, content in objects.items()}
    line = Line(delay_s, bytes_per_s)
    server = await asyncio.get_running_loop().create_server(lambda: Connection(objects, tags, line), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Read everything, then serve it."""
    folder, (name, delay_s, bytes_per_s) = Path(sys.argv[1]), sys.argv[2:]
    files = [folder / "zarr.json", *(path for path in (folder / name).rglob("*") if path.is_file())]
    objects = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    asyncio.run(serve(objects, float(delay_s), float(bytes_per_s)))


if __name__ == "__main__":
    main()
