"""A page in a real browser without a window: what it shows, what its console says, what it asks the network for."""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_INSIDE = ("data:", "blob:", "chrome:", "chrome-untrusted:")  # the last two are the browser's own first page


@contextmanager
def open_page(url: str, width: int = 1280, height: int = 900, *, dark: bool = False) -> Iterator[Any]:
    """Open a page in a headless Chromium with a profile of its own, and give selenium's driver; skip where none is.

    Names other than those of this machine cannot be resolved: a page that asks for a font or a script elsewhere has an
    error in its console.

    Args:
        url: `http://127.0.0.1:...` or `file:///...`.
        width, height: of the page itself, in CSS pixels.
        dark: the page is told that its reader prefers dark colours.
    """
    pytest.importorskip("selenium", reason="selenium is missing: pip install selenium")
    from selenium import webdriver

    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    service = shutil.which("chromedriver")
    if browser is None or service is None:
        pytest.skip(f"{'chromium' if browser is None else 'chromedriver'} is missing: it is a package of the system")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(prefix="sweep-browser-", ignore_cleanup_errors=True) as profile:
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--hide-scrollbars",
            f"--user-data-dir={profile}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
        ):
            options.add_argument(argument)
        driver = webdriver.Chrome(
            options=options, service=webdriver.ChromeService(service, env=os.environ | {"TMPDIR": profile})
        )
        try:
            resize(driver, width, height)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
            driver.get(url)
            yield driver
        finally:
            driver.quit()


def resize(driver: Any, width: int, height: int = 900) -> None:
    """Give the page another size, in CSS pixels; below the least width of a window, too."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def console_errors(driver: Any) -> list[str]:
    """Return the errors in the page's console since the last call: uncaught exceptions, what could not be loaded."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def requested_urls(driver: Any) -> list[str]:
    """Return the addresses that the page has asked for since the last call, those left out that need no network."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [message["params"]["request"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    return [request["url"] for request in sent if not request["url"].startswith(_INSIDE)]


def screenshot(driver: Any, path: str | Path, width: int = 1280) -> Path:
    """Write the whole page as a PNG, as it is at a width in CSS pixels, and return its path."""
    resize(driver, width)
    height = driver.execute_script("return Math.max(document.documentElement.scrollHeight, window.innerHeight)")
    area = {"x": 0, "y": 0, "width": width, "height": min(height, 16_000), "scale": 1}
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": area})
    file = Path(path)
    file.write_bytes(base64.b64decode(taken["data"]))
    return file
