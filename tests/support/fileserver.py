"""A file server for tests: GET and HEAD with ranges, suffixes, entity tags and If-Match, and directory pages.

Run as ``python fileserver.py DIRECTORY PORT DELAY_S``; every request waits for the delay, beside the others.
"""

import asyncio
import hashlib
import re
import sys
import urllib.parse
from pathlib import Path

REASONS = {
    200: "OK",
    206: "Partial Content",
    404: "Not Found",
    412: "Precondition Failed",
    416: "Range Not Satisfiable",
}

TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".mjs": "text/javascript"}
#: Pages of any origin may read everything, as in a public bucket.
SHARED = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*", "Access-Control-Expose-Headers": "*"}


def answer(root: Path, method: str, target: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body) of one request."""
    if method == "OPTIONS":
        return 200, {}, b""
    path = root / urllib.parse.unquote(target.partition("?")[0]).strip("/")
    if ".." in path.parts or not path.exists():
        return 404, {}, b""
    if path.is_dir():
        names = (entry.name + "/" * entry.is_dir() for entry in sorted(path.iterdir()))
        links = "".join(f'<a href="{urllib.parse.quote(name)}">{name}</a>\n' for name in names)
        return 200, {"Content-Type": "text/html"}, links.encode()
    body = path.read_bytes()
    tag = f'"{hashlib.md5(body).hexdigest()}"'
    found = {"ETag": tag, "Accept-Ranges": "bytes", "Last-Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
    if path.suffix in TYPES:  # browsers run nothing else
        found["Content-Type"] = TYPES[path.suffix]
    if "untagged" in path.parts:  # as some servers do
        del found["ETag"]
    elif "weak" in path.parts:
        found["ETag"] = tag = f"W/{tag}"
    if "if-match" in headers and (headers["if-match"] != tag or tag.startswith("W/")):
        return 412, found, b""
    wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", headers.get("range", ""))
    if wanted is None:
        return 200, found, body
    first, last = wanted.groups()
    begin = int(first) if first else max(len(body) - int(last), 0)
    end = min(int(last) + 1, len(body)) if first and last else len(body)
    if begin >= end:
        return 416, {**found, "Content-Range": f"bytes */{len(body)}"}, b""
    return 206, {**found, "Content-Range": f"bytes {begin}-{end - 1}/{len(body)}"}, body[begin:end]


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, root: Path, delay_s: float) -> None:
    """Answer the requests of one connection."""
    while True:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            break
        method, target, _ = lines[0].split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        await asyncio.sleep(delay_s)
        status, found, body = answer(root, method, target, headers)
        found |= SHARED | {"Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in found.items())
        writer.write(
            f"HTTP/1.1 {status} {REASONS[status]}\r\n{head}\r\n".encode() + (b"" if method == "HEAD" else body)
        )
        await writer.drain()
    writer.close()


async def main(root: Path, port: int, delay_s: float) -> None:
    """Serve a directory until killed."""
    server = await asyncio.start_server(lambda r, w: serve(r, w, root, delay_s), "127.0.0.1", port, backlog=512)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
