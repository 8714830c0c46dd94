"""``gzarr serve``, opened by what people open served data with."""

import http.client
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import gzarr
from gzarr.cli import http_server
from gzarr.cli.http_server import StoreServer, open_served
from gzarr.cli.main import main
from gzarr.storage.base import Request, Store

ROWS = np.arange(64 * 96, dtype="u2").reshape(64, 96)


@contextmanager
def running(store: Store, prefix: str = "") -> Iterator[str]:
    """The URL of a store that is served from another thread."""
    with StoreServer(store, prefix, ("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


def served(path: str, *, follow_links: bool = False) -> AbstractContextManager[str]:
    """The URL of what a path is served at."""
    return running(*open_served(path, follow_links=follow_links))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a group of two formats' arrays, sharded and not."""
    path = tmp_path_factory.mktemp("served")
    group = gzarr.open_group(path / "a.zarr", mode="w", attributes={"title": "served"})
    named: dict[str, Any] = {"dimension_names": ("y", "x"), "chunks": (16, 32)}
    group.create_array("plain", data=ROWS, **named)
    group.create_array("inner/sharded", data=ROWS, shards=(32, 96), **named)
    gzarr.consolidate_metadata(path / "a.zarr")
    gzarr.save(path / "v2.zarr", ROWS, zarr_format=2)
    gzarr.save_array(path / "b.zip", ROWS)
    return path


@pytest.fixture(scope="module")
def url(root: Path) -> Iterator[str]:
    with served(str(root)) as found:
        yield found


def ask(url: str, method: str = "GET", **headers: str) -> tuple[int, Any, bytes]:
    asked = urllib.request.Request(url, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as answer:
        with answer:
            return answer.code, answer.headers, answer.read()


def test_objects_ranges_and_heads(root: Path, url: str) -> None:
    stored = (root / "a.zarr/plain/c/0/0").read_bytes()
    at = f"{url}a.zarr/plain/c/0/0"
    status, headers, body = ask(at)
    assert (status, body, headers["Accept-Ranges"]) == (200, stored, "bytes")
    for asked, expected in {
        "bytes=2-5": stored[2:6],
        "bytes=-7": stored[-7:],
        "bytes=9-": stored[9:],
        "bytes=3-99999999": stored[3:],
    }.items():
        status, headers, body = ask(at, Range=asked)
        assert (status, body) == (206, expected)
        start = stored.index(expected) if asked != "bytes=-7" else len(stored) - 7
        assert headers["Content-Range"] == f"bytes {start}-{start + len(expected) - 1}/{len(stored)}"
    assert (ask(at, Range=f"bytes={len(stored)}-")[0], ask(at, Range="bytes=-0")[0]) == (416, 416)
    for odd in ("bytes=0-1,3-4", "bytes=-", "lines=1-2", "bytes=5-2", f"bytes={'9' * 5000}-"):
        assert ask(at, Range=odd)[::2] == (200, stored)
    status, headers, body = ask(at, "HEAD")
    assert (status, headers["Content-Length"], body) == (200, str(len(stored)), b"")


@pytest.mark.parametrize("path", ["a.zarr/plain/c/9/9", "none/", "a.zarr/.zgroup"])
def test_what_is_missing_is_404(url: str, path: str) -> None:
    for method in ("GET", "HEAD"):
        assert ask(url + path, method)[0] == 404


@pytest.mark.parametrize("path", ["..", "a.zarr/../../secret", "%2e%2e/secret", "a%00b"])
def test_nothing_outside_is_served(root: Path, url: str, path: str) -> None:
    (root.parent / "secret").write_text("secret")
    status, _, body = ask(url + path)
    assert status in (400, 404)
    assert body != b"secret"


def test_nothing_is_written(url: str) -> None:
    for method in ("PUT", "POST", "DELETE"):
        assert ask(f"{url}a.zarr/zarr.json", method)[0] == 501


def test_entity_tags_are_of_versions(tmp_path: Path) -> None:
    gzarr.save_array(tmp_path / "a.zarr", ROWS, chunks=(64, 96))
    with served(str(tmp_path / "a.zarr")) as url:
        at = f"{url}c/0/0"
        tag = ask(at)[1]["ETag"]
        assert ask(at, "HEAD")[1]["ETag"] == tag
        assert ask(at, If_None_Match=f'"other", {tag}')[::2] == (304, b"")
        assert ask(at, If_Match=tag, Range="bytes=0-1")[0] == 206
        gzarr.open_array(tmp_path / "a.zarr")[...] = 7
        assert ask(at)[1]["ETag"] != tag
        assert (ask(at, If_None_Match=tag)[0], ask(at, If_Match=tag)[0]) == (200, 412)
        assert ask(at, If_Range=tag, Range="bytes=0-1")[0] == 200


def test_pages_of_any_site_may_read(url: str) -> None:
    status, headers, _ = ask(f"{url}a.zarr/zarr.json", "OPTIONS", Origin="https://x.example")
    assert (status, headers["Access-Control-Allow-Origin"]) == (204, "*")
    assert "Range" in headers["Access-Control-Allow-Headers"]
    headers = ask(f"{url}a.zarr/zarr.json")[1]
    assert "ETag" in headers["Access-Control-Expose-Headers"]
    assert headers["Content-Type"] == "application/json"


def test_folders_are_pages_of_links(url: str) -> None:
    import fsspec

    page = ask(url)[2].decode()
    assert '<a href="a.zarr/">a.zarr/</a>' in page
    assert ask(f"{url}a.zarr")[2] == ask(f"{url}a.zarr/")[2]  # by a redirection
    files = fsspec.filesystem("http")
    listed = {name.rstrip("/").rpartition("/")[2] for name in files.ls(url, detail=False)}
    assert listed == {"a.zarr", "v2.zarr", "b.zip"}
    assert len(files.glob(f"{url}a.zarr/plain/c/0/*")) == 3


@pytest.mark.parametrize("path", ["a.zarr/plain", "a.zarr/inner/sharded", "v2.zarr"])
def test_gzarr_opens_what_is_served(url: str, path: str) -> None:
    array = gzarr.open_array(url + path, mode="r")
    np.testing.assert_array_equal(array[5:40, 30:70], ROWS[5:40, 30:70])
    np.testing.assert_array_equal(array[...], ROWS)


def test_groups_are_listed(url: str) -> None:
    group = gzarr.open_group(f"{url}a.zarr", mode="r")
    assert sorted(name for name, _ in group.members(None)) == ["inner", "inner/sharded", "plain"]
    assert group.attrs["title"] == "served"


def test_archives_and_what_is_in_a_group_are_served(root: Path) -> None:
    with served(str(root / "b.zip")) as url:
        np.testing.assert_array_equal(gzarr.open_array(url, mode="r")[...], ROWS)
    with served(str(root / "a.zarr/inner")) as url:
        assert json.loads(ask(f"{url}zarr.json")[2])["node_type"] == "group"
        assert ask(f"{url}sharded/zarr.json")[0] == 200


STORES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: gzarr.MemoryStore(),
    "sqlite": lambda path: gzarr.storage.SQLiteStore(path / "a.sqlite"),
    "zip": lambda path: gzarr.ZipStore(path / "a.zip", mode="w"),
}


@pytest.mark.parametrize("kind", STORES)
def test_every_store_can_be_served(kind: str, tmp_path: Path) -> None:
    with STORES[kind](tmp_path) as store:
        gzarr.open_group(store, mode="w").create_array("a", data=ROWS, chunks=(16, 32), shards=(32, 64))
        with running(store) as url:
            np.testing.assert_array_equal(gzarr.open_array(f"{url}a", mode="r")[3:50, 20:], ROWS[3:50, 20:])
            assert '<a href="a/">' in ask(url)[2].decode()


class Restless(gzarr.MemoryStore):
    """A store whose objects are replaced all the time."""

    @property
    def versions(self) -> Any:
        return SimpleNamespace(token=lambda key: object())


def test_bytes_and_tags_of_two_versions_are_not_mixed() -> None:
    store = Restless()
    store["a"] = b"abc"
    with running(store) as url:
        assert ask(f"{url}a")[0] == 503


def raw(url: str, *requests: bytes) -> bytes:
    """All that the server sends for bytes that it gets, until it closes the connection."""
    host, _, port = url.removeprefix("http://").rstrip("/").rpartition(":")
    with socket.create_connection((host.strip("[]"), int(port)), timeout=60) as client:
        client.sendall(b"".join(requests))
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


@pytest.mark.parametrize("verb", [b"GET", b"OPTIONS"])
@pytest.mark.parametrize("size", [b"Content-Length: 99", b"Transfer-Encoding: chunked"])
def test_a_body_is_no_request(url: str, verb: bytes, size: bytes) -> None:
    hidden = b"GET /a.zarr/zarr.json HTTP/1.1\r\nHost: a\r\n\r\n"
    answers = raw(url, verb, b" /v2.zarr/.zarray HTTP/1.1\r\nHost: a\r\n", size, b"\r\n\r\n", hidden)
    assert answers.count(b"\r\nServer: ") == 1
    assert b"node_type" not in answers


def test_objects_are_sent_in_pieces_and_end_where_they_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_PART_NBYTES", 1000)
    store = gzarr.MemoryStore()
    store["a"] = stored = bytes(range(250)) * 10
    read = store.get_one
    with running(store) as url:
        assert ask(f"{url}a")[2] == stored
        assert ask(f"{url}a", Range="bytes=7-2400")[2] == stored[7:2401]
        assert ask(f"{url}a", "HEAD")[1]["Content-Length"] == "2500"

        def replacing(request: Request) -> Any:
            if request.start:
                store["a"] = bytes(2500)
            return read(request)

        monkeypatch.setattr(store, "get_one", replacing)
        with pytest.raises(http.client.IncompleteRead) as error:
            ask(f"{url}a")
        assert error.value.partial == stored[:1000]


def test_failures_of_the_store_name_no_paths(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = gzarr.MemoryStore()
    store["a"] = b"abc"
    monkeypatch.setattr(store, "get_one", Mock(side_effect=PermissionError(13, "secret place", str(root))))
    with running(store) as at:
        status, _, body = ask(f"{at}a")
    assert status == 500
    assert str(root).encode() not in body


def test_nothing_is_added_to_an_object_that_a_client_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up, answer_to = threading.Event(), http_server._Handler.do_GET

    def impatient(handler: http_server._Handler) -> None:
        handler.connection.settimeout(0.2)  # the request has come
        try:
            answer_to(handler)
        finally:
            given_up.set()

    monkeypatch.setattr(http_server._Handler, "do_GET", impatient)
    store = gzarr.MemoryStore()
    store["a"] = bytes(16 << 20)
    with running(store) as url:
        host, port = url.removeprefix("http://").rstrip("/").split(":")
        with socket.create_connection((host, int(port)), timeout=60) as client:
            client.sendall(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            assert given_up.wait(60)
            answer = b"".join(iter(lambda: client.recv(1 << 20), b""))
    assert answer.count(b"HTTP/1.1") == 1


def test_tags_that_a_proxy_made_weak_are_known(url: str) -> None:
    tag = ask(f"{url}a.zarr/zarr.json")[1]["ETag"]
    assert ask(f"{url}a.zarr/zarr.json", If_None_Match=f"W/{tag}")[0] == 304
    assert ask(f"{url}a.zarr/zarr.json", If_Match=f"W/{tag}")[0] == 412


def test_redirections_stay_here(url: str) -> None:
    answer = raw(url, b"GET /%2fa.zarr HTTP/1.0\r\n\r\n")
    assert b"\r\nLocation: /a.zarr/\r\n" in answer


@pytest.mark.parametrize(
    ("target", "status"),
    [(b"http://elsewhere", 200), (b"HTTP://[::1/v2.zarr/.zarray?a", 200), (b"/" + b"a" * 70_000, 414)],
)
def test_every_form_of_a_target_is_answered(
    url: str, target: bytes, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert f" {status} ".encode() in raw(url, b"GET %b HTTP/1.1\r\nConnection: close\r\n\r\n" % target)[:20]
    assert "Traceback" not in capfd.readouterr().err


def test_nothing_to_serve_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(gzarr.NodeNotFoundError):
        open_served(str(tmp_path / "none"))


def test_addresses_that_cannot_be_served_are_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(root), "--port", str(port)]) == 1
    assert f"cannot listen at 127.0.0.1, port {port}: Address already in use; pass another" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["serve", str(root), "--port", "99999"])
    assert "65535" in capsys.readouterr().err


def test_the_command_serves_until_ctrl_c(root: Path) -> None:
    command = [sys.executable, "-m", "gzarr", "serve", str(root / "a.zarr"), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        url = process.stdout.readline().split()[4]
        assert ask(f"{url}zarr.json")[0] == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert process.stdout.read().endswith("stopped\n")
        assert '"GET /zarr.json HTTP/1.1" 200' in process.stderr.read()


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


HEAD = b"GET /a HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET /a HTT", HEAD])
def test_clients_that_send_no_request_are_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server._Handler, "timeout", 0.3)
    with running(gzarr.MemoryStore()) as url, connect(url) as client:
        client.sendall(sent)
        with pytest.raises(OSError) as closed:  # noqa: PT012 - whichever is the first to see that it is closed
            while client.recv(100, socket.MSG_DONTWAIT if sent else 0) and sent:
                pass
            raise ConnectionResetError
    assert not isinstance(closed.value, TimeoutError)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to see a process's memory")
def test_clients_that_do_not_read_take_little_memory_and_nobodys_turn(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(48 << 20))
    command = [sys.executable, "-m", "gzarr", "serve", str(tmp_path), "--port", "0", "--quiet"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[4]
        clients = [connect(url) for _ in range(60)]
        try:
            for client in clients:
                client.sendall(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n")
            for client in clients:
                assert client.recv(12) == b"HTTP/1.1 200"
            assert len(ask(f"{url}big")[2]) == 48 << 20
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            for client in clients:
                client.close()
            process.send_signal(signal.SIGINT)
            process.wait(60)
    peak_kib = int(status.partition("VmHWM:")[2].split()[0])
    assert peak_kib < 200 << 10  # 8 MiB each would be 480 MiB


def test_temporary_files_are_not_there(tmp_path: Path) -> None:
    gzarr.save_array(tmp_path / "a.zarr", ROWS)
    for path in (".__gzarr_tmp_x", "a.zarr/.__gzarr_tmp_x", ".__gzarr_tmp_tree/zarr.json"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("half")
    with served(str(tmp_path)) as url:
        for path in (".__gzarr_tmp_x", "a.zarr/.__gzarr_tmp_x", "%2e__gzarr_tmp_x", ".__gzarr_tmp_tree/zarr.json"):
            assert ask(url + path)[0] == 404
        assert ask(f"{url}.__gzarr_tmp_tree/")[0] == 404
        assert "tmp" not in ask(url)[2].decode()


def test_links_out_of_the_folder_are_followed_only_if_wanted(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gzarr.save_array(tmp_path / "out/secret.zarr", ROWS)
    inside = tmp_path / "in"
    gzarr.open_group(inside, mode="w")["b"] = ROWS
    (inside / "array").symlink_to("../out/secret.zarr")
    (inside / "file").symlink_to("../out/secret.zarr/zarr.json")
    (inside / "again").symlink_to("array")
    (inside / "here").symlink_to("b/zarr.json")
    (tmp_path / "door").symlink_to("in")
    outside = ("array/zarr.json", "array/", "array", "file", "again/zarr.json", "array/c/0/0")
    with served(str(inside)) as url, served(str(tmp_path / "door")) as through:
        for path in outside:
            assert ask(url + path)[0] == ask(url + path, "HEAD")[0] == ask(through + path)[0] == 404
        assert ask(f"{url}here")[0] == ask(f"{through}b/zarr.json")[0] == 200
    with served(str(inside), follow_links=True) as url:
        assert all(ask(url + path)[0] == 200 for path in outside)
    with StoreServer(*open_served(str(inside)), ("127.0.0.1", 0), quiet=False) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        assert b"follow" not in ask(f"{server.url}array/zarr.json")[2]
        server.shutdown()
    assert re.search("'array/zarr.json' leads out of .*--follow-links follows it", capfd.readouterr().err)


def test_no_name_of_a_link_widens_what_is_served(tmp_path: Path) -> None:
    gzarr.save_array(tmp_path / "out/secret.zarr", ROWS)
    gzarr.save_array(tmp_path / "in/a.zarr", ROWS)
    (tmp_path / "in/x").symlink_to("../out")
    with served(str(tmp_path / "in")) as url:
        assert (ask(f"{url}x/secret.zarr/zarr.json")[0], ask(f"{url}a.zarr/zarr.json")[0]) == (404, 200)


def test_links_out_of_an_n5_container_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "a.n5/b/0").mkdir(parents=True)
    document = '{"n5": "2.0.0", "dimensions": [3, 2], "blockSize": [3, 2], "dataType": "uint8"}'
    (tmp_path / "a.n5/b/attributes.json").write_text(document)
    (tmp_path / "block").write_bytes(b"\0\0\0\2\0\0\0\3\0\0\0\2abcdef")
    (tmp_path / "a.n5/b/0/0").symlink_to(tmp_path / "block")
    with served(str(tmp_path / "a.n5")) as url:
        assert (ask(f"{url}b/.zarray")[0], ask(f"{url}b/0.0")[0]) == (200, 404)
    with served(str(tmp_path / "a.n5"), follow_links=True) as url:
        assert ask(f"{url}b/0.0")[0] == 200
