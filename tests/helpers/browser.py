"""A real browser without a window or a network, by Chrome's DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """One page. `errors` collects what the console says was wrong."""

    def __init__(self, connection: Any) -> None:
        self._connection, self._number, self.errors = connection, 0, []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        self._connection.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._connection.recv(timeout=20))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(message["params"]["exceptionDetails"]["text"])
            entry = message.get("params", {}).get("entry", {})
            if message.get("method") == "Log.entryAdded" and entry["level"] == "error":
                self.errors.append(entry["text"])

    def open(self, path: Path, width: int = 1100, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=path.resolve().as_uri())
        for _ in range(100):
            if self.run("document.readyState") == "complete":
                return
            time.sleep(0.1)
        raise AssertionError("the page did not load")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def move_to(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path: Path, whole: bool = True) -> None:
        found = self.call("Page.captureScreenshot", captureBeyondViewport=whole, **({} if not whole else {"clip": self._everything()}))
        path.write_bytes(base64.b64decode(found["data"]))

    def _everything(self) -> dict[str, float]:
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}


@contextlib.contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """A page of a new browser, whose files are in `folder`."""
    from websockets.sync.client import connect

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
    command += [f"--remote-debugging-port={port}", "--remote-allow-origins=*", f"--user-data-dir={folder}", "about:blank"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                pages = json.loads(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list", timeout=2).read())
                if address := next((page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page"), None):
                    break
            time.sleep(0.1)
        with connect(address, max_size=None) as connection:
            yield Page(connection)
    finally:
        process.terminate()
        process.wait(10)
