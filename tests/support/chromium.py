"""Headless Chromium, driven over its pipe in the DevTools protocol: JSON messages that end in a zero byte.

Every wait ends at a deadline. WebGL runs on the CPU (SwiftShader), so that pixels are the same on every machine.
"""

import contextlib
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Seconds that Chromium may take to start, or for any answer, on a busy machine.
PATIENCE_S = 300.0
PROGRAMS = ("chromium-headless-shell", "chromium", "google-chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",  # containers give no user namespaces
    "--disable-dev-shm-usage",  # theirs is small
    "--no-first-run",
    "--disable-background-networking",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--remote-debugging-pipe",
)


def find_chromium() -> str | None:
    """Path of a Chromium on PATH."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Browser:
    """One page of a running Chromium."""

    def __init__(self, out: int, into: int) -> None:
        self._out, self._into = out, into
        self._number, self._rest = 0, b""
        self._session: str | None = None
        self.messages: list[str] = []  # what the page wrote to its console, and its uncaught errors

    def attach(self, width: int, height: int) -> None:
        """Take the page that was opened at the start, and give it its size."""
        target = self.call("Target.createTarget", url="about:blank", width=width, height=height)["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, *, timeout_s: float = PATIENCE_S, **params: Any) -> Any:
        """Send a command and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + timeout_s
        while True:
            answer = self._receive(deadline, method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _receive(self, deadline: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._into], [], [], max(deadline - time.monotonic(), 0))
            part = os.read(self._into, 1 << 20) if ready else b""
            if not part:
                why = "ended" if ready else "did not answer in time"
                raise TimeoutError(f"Chromium {why} ({method}); its page said: {self.messages[-20:]}")
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        self._note(message)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        if message.get("method") == "Runtime.consoleAPICalled":
            self.messages.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif message.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description") or details["text"])
        elif message.get("method") == "Log.entryAdded":
            self.messages.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def open(self, url: str) -> None:
        """Load a page."""
        self.messages.clear()
        self.call("Page.navigate", url=url)
        self.run("new Promise(done => document.readyState == 'complete' ? done() : addEventListener('load', done))")

    def run(self, expression: str, timeout_s: float = PATIENCE_S) -> Any:
        """Value of a JavaScript expression, of a promise when it is kept."""
        found = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, timeout_s=timeout_s
        )
        if "exceptionDetails" in found:
            details = found["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description") or details["text"])
        return found["result"].get("value")

    def close(self) -> None:
        """Tell Chromium to end, with all its processes."""
        self._session = None
        self.call("Browser.close")


@contextlib.contextmanager
def chromium(program: str, profile: Path, width: int = 800, height: int = 600) -> Iterator[Browser]:
    """Run Chromium until the block ends."""
    inner_read, out = os.pipe()
    into, inner_write = os.pipe()
    # The browser reads commands from descriptor 3 and writes answers to 4.
    shell = ["bash", "-c", f'exec "$@" 3<&{inner_read} 4>&{inner_write}', "bash"]
    command = [*shell, program, *OPTIONS, f"--user-data-dir={profile}", f"--window-size={width},{height}"]
    with (profile.parent / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(inner_read, inner_write)
        )
    try:
        os.close(inner_read)
        os.close(inner_write)
        browser = Browser(out, into)
        browser.attach(width, height)
        yield browser
        browser.close()
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        process.kill()
        process.wait()
        os.close(out)
        os.close(into)
