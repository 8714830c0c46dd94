"""Passwords and tokens: they reach the servers, and nothing that is logged, shown or raised."""

import logging
import pickle
import re
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import gzarr
from gzarr.cli.main import main
from gzarr.errors import GzarrError, StoreError
from gzarr.storage import FsspecStore, StoreURL, open_store
from gzarr.storage.credentials import shown_cause, without_user, without_users
from gzarr.storage.rules import without_secrets

pytest.importorskip("obstore")
pytest.importorskip("aiohttp")

SECRET = "hunter2"
BASIC = "Basic dXNlcjpodW50ZXIy"  # user:hunter2
NO_RETRY = {"retry_config": {"max_retries": 0}}


class _Server(ThreadingHTTPServer):
    """Answers a name that ends in ok, and a ZIP archive; says no to others."""

    def __init__(self, archive: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.archive = archive
        self.asked: list[tuple[str, str | None]] = []


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        name = self.path.partition("?")[0]
        body = {"ok": b"abc", "ip": self.server.archive}.get(name[-2:], b"")
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        total = len(body)
        if asked:
            body = body[int(asked[1]) : int(asked[2]) + 1]
        self.send_response((206 if asked else 200) if body else 404 if "zarr" in name else 403)
        if asked:
            self.send_header("Content-Range", f"bytes {asked[1]}-{int(asked[1]) + len(body) - 1}/{total}")
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Server]:
    path = tmp_path_factory.mktemp("archive") / "a.zip"
    gzarr.save_array(path, [1, 2, 3])
    with _Server(path.read_bytes()) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()


@pytest.fixture
def records() -> Iterator[list[str]]:
    """What is logged under any name and at any level, as a file would have it."""
    lines: list[str] = []
    root = logging.getLogger()
    level, handler = root.level, logging.Handler(0)
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    root.addHandler(handler)
    root.setLevel(1)
    try:
        yield lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


URLS = ("http://user:hunter2@{at}/x", "http://{at}/x?token=hunter2")


def _opened(url: str) -> Any:
    return open_store(url, read_only=True, storage_options=NO_RETRY)[0]


ATTEMPTS: dict[str, Callable[[str], Any]] = {
    "obstore": lambda url: (_opened(url), _opened(url).get("ok")),
    "obstore, refused": lambda url: _opened(url).get("no"),
    "obstore, a range": lambda url: _opened(url).get_one(gzarr.storage.base.Request("no", 3, 4)),
    "obstore, a version": lambda url: _opened(url).versions.token("no"),
    "a listing": lambda url: _opened(url).list_dir("no"),
    "fsspec": lambda url: (FsspecStore.from_url(url), FsspecStore.from_url(url).get("ok")),
    "fsspec, refused": lambda url: FsspecStore.from_url(url).get("no"),
    "fsspec, sizes": lambda url: FsspecStore.from_url(url).getsize("no"),
    "fsspec, a listing": lambda url: FsspecStore.from_url(url).list_dir("no"),
    "a cache": lambda url: open_store(f"simplecache::{url}", read_only=True)[0].get("ok"),
    "an archive": lambda url: open_store(url.replace("/x", "/x/a.zip"), read_only=True)[0],
    "a chain": lambda url: open_store("zip::" + url.replace("/x", "/x/a.zip"), read_only=True)[0],
    "no archive": lambda url: open_store("zip::" + url.replace("/x", "/x/no"), read_only=True)[0],
    "gzarr.open": lambda url: gzarr.open(url, mode="r"),
    "another scheme": lambda url: gzarr.open("nosuch" + url[4:], mode="r"),
    "a bucket": lambda url: gzarr.open("az" + url[4:], mode="r"),
    "a URL with options": lambda url: StoreURL(url, {"token": SECRET}),
    "verify": gzarr.verify,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("url", URLS, ids=["password", "token"])
@pytest.mark.parametrize("alive", [True, False], ids=["answering", "dead"])
def test_no_secret_of_a_url_is_logged_shown_or_raised(
    url: str, alive: bool, server: _Server, records: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gzarr.storage.urls._RETRIES", {"max_retries": 0})
    here = url.format(at=f"127.0.0.1:{server.server_address[1] if alive else 1}")
    for what, attempt in ATTEMPTS.items():
        records.clear()
        try:
            shown = repr(attempt(here))
        except (GzarrError, OSError) as error:
            shown = "".join(traceback.format_exception(error, limit=0)) + repr(error)
        told = "\n".join(records) + shown
        assert SECRET not in told, (what, told)
        assert BASIC.split()[1] not in told, (what, told)


def test_a_password_reaches_the_server_whoever_asks(server: _Server) -> None:
    url = URLS[0].format(at=f"127.0.0.1:{server.server_address[1]}")
    for what in ("obstore", "fsspec", "an archive", "a chain", "a listing"):
        server.asked.clear()
        try:
            ATTEMPTS[what](url)
        except GzarrError:
            assert what == "a listing"  # the server has no such pages
        assert {header for _, header in server.asked} == {BASIC}, what
    assert gzarr.open_array(url.replace("/x", "/x/a.zip"), mode="r")[:].tolist() == [1, 2, 3]


def test_headers_of_the_caller_are_sent_with_listings_too(server: _Server) -> None:
    store: Any = open_store(
        f"http://127.0.0.1:{server.server_address[1]}/x", storage_options={"headers": {"Authorization": "Mine"}}
    )[0]
    server.asked.clear()
    with pytest.raises(StoreError):
        store.list_dir("no")
    assert {header for _, header in server.asked} == {"Mine"}


def test_stores_of_two_users_differ_and_are_pickled_with_their_passwords(server: _Server) -> None:
    url = URLS[0].format(at=f"127.0.0.1:{server.server_address[1]}")
    store: Any = open_store(url, read_only=True)[0]
    assert store != open_store(url.replace(SECRET, "other"), read_only=True)[0]
    again = pickle.loads(pickle.dumps(store))
    assert again == store
    server.asked.clear()
    assert bytes(again.get("ok")) == b"abc"
    assert server.asked[0][1] == BASIC


def test_commands_show_no_secrets(server: _Server, capsys: pytest.CaptureFixture[str]) -> None:
    at = f"127.0.0.1:{server.server_address[1]}"
    for command in (["info"], ["tree"], ["ls"], ["stats"], ["verify"], ["serve"], ["copy", "{}", "x"], ["compare"]):
        for url in (*URLS, "http://user:hunter2@{at}/x/a.zip"):
            named = url.format(at=at)
            if command[0] == "serve" and url.endswith("zip"):
                continue
            rest = [named, named] if command[0] == "compare" else [named]
            with suppress(SystemExit):
                main([*command, *rest] if "{}" not in command else [command[0], named, "/nonexistent/x.tif"])
            printed = capsys.readouterr()
            assert SECRET not in printed.out + printed.err, command


def test_users_become_headers() -> None:
    assert without_user("https://a%40b:c%3Ad@h/x@y") == ("https://h/x@y", {"Authorization": "Basic YUBiOmM6ZA=="})
    assert without_user("HTTP://u@h") == ("HTTP://h", {"Authorization": "Basic dTo="})
    for url in ("http://h/a@b", "s3://bucket/a@b", "abfs://container@account/x", "/a/b@c"):
        assert without_user(url) == (url, {})
    url, options = without_users("zip://a::https://u:p@h/x.zip", {"https": {"headers": {"X": "1"}}, "zip": {}})
    assert url == "zip://a::https://h/x.zip"
    assert options == {"https": {"headers": {"Authorization": "Basic dTpw", "X": "1"}}, "zip": {}}
    assert without_users("http://u:p@h/x", {"headers": {"Authorization": "own"}})[1]["headers"] == {
        "Authorization": "own"
    }


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://KEY:ab/cd+ef@bucket/a", "s3://bucket/a"),
        ("http://u:p/w@h:80/a", "http://h:80/a"),
        ("store 'ftp://u:p/w@h/a': no 'b@c'", "store 'ftp://h/a': no 'b@c'"),
        *((url, url) for url in ("http://h:80/a@b", "http://[::1]:80/a@b", "zip://a::http://h/b@c", "s3://b: no a@b")),
    ],
)
def test_passwords_with_slashes_are_not_shown(url: str, shown: str) -> None:
    assert without_secrets(url) == shown


def test_causes_with_controls_are_left_out() -> None:
    assert shown_cause(OSError("a\x1b[31m")) is None
    assert shown_cause(OSError("two\nlines")) is not None


def test_causes_without_secrets_stay() -> None:
    plain, leaking = OSError("no route to host"), OSError("GET http://u:p@h/")
    assert shown_cause(plain) is plain
    assert shown_cause(leaking) is None
    plain.__cause__ = leaking
    assert shown_cause(plain) is None
