"""An S3 server on the loopback interface, as far away as a real one: late first bytes, slow connections, counts.

    python -m benchmarks.s3.server FOLDER DELAY_S RATE [PORT]

Prints its port, a free one if none is given. The bucket "bench" has what FOLDER holds; what is written stays in memory.
``GET /-/counts`` tells what was asked for since it was asked last. One thread and one event loop answer all
connections.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self, cast

from benchmarks.s3.objects import Answer, Objects, Request, parsed

BUCKET = "bench"
CONTROL = "/-/counts"
PIECE = 1 << 18  # bytes sent at a time over a connection of limited speed


class S3Server:
    """Serves objects in a thread of its own while a ``with`` block runs.

    Parameters
    ----------
    objects : Objects
        The objects.
    delay_s : float
        Time to the first byte of every answer.
    rate : float
        Bytes per second that a connection carries; 0 if they are not limited.
    hook : callable, optional
        Takes a request and the answer to it, and gives the answer that is sent: tests inject faults with it.

    Attributes
    ----------
    counts : collections.Counter
        Requests by method; ``bytes_sent`` and ``bytes_received`` in bodies; ``most_at_once``, the requests under way.
    """

    def __init__(
        self,
        objects: Objects,
        delay_s: float = 0.0,
        rate: float = 0.0,
        hook: Callable[[Request, Answer], Answer] | None = None,
    ) -> None:
        self.objects, self.delay_s, self.rate, self.hook = objects, delay_s, rate, hook
        self.counts: Counter[str] = Counter()
        self.under_way = 0
        self.port = 0
        self.open: set[asyncio.Transport] = set()
        self._end: Callable[[], object] = lambda: None
        self._thread: threading.Thread | None = None

    @property
    def endpoint(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.port}"

    async def listen(self, port: int = 0) -> asyncio.Server:
        """Accept connections on a port; 0: on a free one."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", port, backlog=1024)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def answer(self, request: Request) -> Answer:
        """Carry a request out and count it."""
        answer = self.objects.answer(request)
        if self.hook is not None:
            answer = self.hook(request, answer)
        self.counts[request.method] += 1
        self.counts["bytes_received"] += len(request.body)
        self.counts["bytes_sent"] += len(answer.body) if request.method != "HEAD" else 0
        return answer

    def told(self) -> dict[str, int]:
        """The counts, which start again."""
        told, self.counts = dict(self.counts), Counter()
        return told

    def __enter__(self) -> Self:
        ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(ready)), daemon=True)
        self._thread.start()
        ready.wait()
        return self

    async def _run(self, ready: threading.Event) -> None:
        accepting, ended, loop = await self.listen(), asyncio.Event(), asyncio.get_running_loop()
        self._end = lambda: loop.call_soon_threadsafe(ended.set)
        ready.set()
        await ended.wait()
        accepting.close()
        while self.open:
            for transport in self.open:
                transport.abort()
            await asyncio.sleep(0)

    def __exit__(self, *exc: object) -> None:
        self._end()
        if self._thread is not None:
            self._thread.join()


class _Connection(asyncio.BufferedProtocol):
    """Reads requests from one client, one after the other, and sends the answers in pieces.

    Bodies are received where they are kept, since servers share the cores with what is measured.
    """

    _transport: asyncio.Transport

    def __init__(self, server: S3Server) -> None:
        self._server, self._loop = server, asyncio.get_running_loop()
        self._buffer = memoryview(bytearray(1 << 16))
        self._received = b""  # up to the end of a head, and perhaps beyond
        self._head: tuple[str, str, Mapping[str, str]] | None = None  # method, target, headers; None until complete
        self._body = bytearray()
        self._filled = 0  # bytes of the body
        self._busy = False
        self._since = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._server.open.add(self._transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._server.open.discard(self._transport)

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer if self._head is None else memoryview(self._body)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._head is None:
            self._received += self._buffer[:nbytes]
        else:
            self._filled += nbytes
        self._advance()

    def _advance(self) -> None:
        if self._head is None and not self._busy:
            self._read_head()
        if self._head is not None and self._filled == len(self._body):
            head, self._head = self._head, None
            self._answer(*head, self._body)

    def _read_head(self) -> None:
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        self._since = self._loop.time()
        first, *lines = self._received[:end].decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        pairs = (line.partition(":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        self._head, nbytes = (method, target, headers), int(headers.get("content-length", 0))
        begun = self._received[end + 4 : end + 4 + nbytes]
        self._received = self._received[end + 4 + nbytes :]
        self._body, self._filled = bytearray(nbytes), len(begun)
        self._body[: len(begun)] = begun
        if headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes | bytearray) -> None:
        if target == CONTROL:
            self._send(method, Answer(200, json.dumps(self._server.told()).encode()))
            return
        server = self._server
        if "aws-chunked" in headers.get("content-encoding", ""):
            body = unchunked(body)
        self._busy = True
        server.under_way += 1
        server.counts["most_at_once"] = max(server.counts["most_at_once"], server.under_way)
        answer = server.answer(parsed(method, target, headers, body))
        arrived = self._since + len(body) / server.rate if server.rate else 0.0
        start = max(self._loop.time(), arrived) + server.delay_s + answer.delay_s
        if server.delay_s or server.rate or answer.delay_s:
            self._loop.call_at(start, self._send, method, answer, start)
        else:
            self._send(method, answer)

    def _send(self, method: str, answer: Answer, start: float = 0.0) -> None:
        """Send the head, and the body from then on. start: the time of the first byte."""
        if self._transport.is_closing():
            self._done()
            return
        nbytes = len(answer.body)
        headers = {"Content-Length": str(nbytes), "x-amz-request-id": "0", "Server": "benchmark", **answer.headers}
        if answer.status in {204, 304}:
            del headers["Content-Length"]
        lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        body = memoryview(answer.body)[: answer.cut] if method != "HEAD" else memoryview(b"")
        if answer.cut is not None:
            self._transport.write(head + body if answer.cut >= 0 else b"")
            self._loop.call_later(0.01, self._transport.abort)
            self._done()
        elif len(body) <= PIECE:
            self._transport.write(head + body)
            self._done()
        else:
            self._transport.write(head)
            self._send_piece(body, 0, start)

    def _send_piece(self, body: memoryview, at: int, start: float) -> None:
        rate = self._server.rate
        nbytes = PIECE if rate else len(body)
        if self._transport.is_closing():
            self._done()
            return
        self._transport.write(body[at : at + nbytes])
        if at + nbytes >= len(body):
            self._done()
        else:
            self._loop.call_at(start + (at + nbytes) / rate, self._send_piece, body, at + nbytes, start)

    def _done(self) -> None:
        self._server.under_way -= self._busy
        self._busy = False
        if self._received:
            self._advance()


def unchunked(body: bytes | bytearray) -> bytes:
    """The data of a body in chunks, each after its size in hexadecimal and perhaps a signature."""
    parts: list[bytes | bytearray] = []
    at = 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].partition(b";")[0], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2


async def serve(folder: Path, delay_s: float, rate: float, port: int = 0) -> Any:
    """Serve until the process is ended."""
    server = S3Server(Objects({BUCKET: {}}, folder), delay_s, rate)
    accepting = await server.listen(port)
    print(server.port, flush=True)
    await accepting.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), *map(int, sys.argv[4:])))
