"""The button that stops a sweep from the output of a notebook's cell."""

from __future__ import annotations

import html
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from browser import open_page

from sweep.core.plan import Plan
from sweep.core.resources import Resources
from sweep.core.trial import Status, Trial
from sweep.display.button import button_html, kernel_id, stop_button
from sweep.display.ending import Ending
from sweep.display.progress import Progress
from sweep.display.screens import Notebook

KERNEL = "0f9b46ee-9e05-4224-9a14-84628c990f74"
TRIAL = Trial("abcde_00000", {"lr": 1}, Resources(), Status.RUNNING, attempt=1)


def connected(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Let this process be a kernel whose connection is described in a file."""
    monkeypatch.setitem(sys.modules, "ipykernel.connect", SimpleNamespace(get_connection_file=lambda: path))


def shown(**info: Any) -> tuple[Progress, list[str]]:
    """Return a display in a notebook, and the pages that it has shown."""
    progress, pages = Progress(style="notebook", has_thread=False), []
    progress.setup(experiment_dir="/r/<b>", plan=Plan(metric="loss"), num_trials=2, name="<b>", **info)
    assert isinstance(progress._screen, Notebook)
    progress._screen._handle = SimpleNamespace(update=lambda page: pages.append(page.data))
    progress.on_step({TRIAL.id: TRIAL}, 1.0, [TRIAL.id])
    return progress, pages


@pytest.mark.parametrize(
    "name",
    [
        "tmpa_ykbnse.json",  # of nbclient
        "kernel-12345.json",  # of a console
        f"kernel-v3{KERNEL.replace('-', '')}1234567.json",
        f"kernel-{KERNEL[:-1]}.json",
        f"kernel-{KERNEL[:-1]}'.json",
        f'kernel-{KERNEL[:-6]}"><b>.json',
        f"kernel-{KERNEL}.json\n",
    ],
)
def test_what_is_not_named_after_a_kernel_of_a_server_has_no_button(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    pytest.importorskip("IPython")
    connected(monkeypatch, f"/run/{name}")
    assert kernel_id() == ""
    progress, pages = shown(ending=Ending())
    progress.refresh()
    progress.on_experiment_end([TRIAL])
    assert not any("<button" in page for page in pages)
    assert "Interrupt the kernel once: stop" in pages[0]


def test_outside_of_a_kernel_and_on_another_thread_which_hears_no_interrupt_there_is_none(monkeypatch):
    monkeypatch.delitem(sys.modules, "ipykernel.connect", raising=False)
    assert stop_button(Ending()) is None

    def fail() -> str:
        raise RuntimeError("app not specified, and not in a running Kernel")

    monkeypatch.setitem(sys.modules, "ipykernel.connect", SimpleNamespace(get_connection_file=fail))
    assert stop_button(Ending()) is None
    connected(monkeypatch, f"/run/user/1000/jupyter/kernel-{KERNEL}.json")
    assert kernel_id() == KERNEL
    found = [stop_button(Ending())]
    thread = threading.Thread(target=lambda: found.append(stop_button(Ending())))
    thread.start()
    thread.join()
    assert [one is None for one in found] == [False, True]


def test_it_is_there_while_the_sweep_runs_and_offers_no_more_than_to_kill_the_trials(monkeypatch):
    pytest.importorskip("IPython")
    connected(monkeypatch, f"kernel-{KERNEL}.json")
    ending = Ending()
    progress, pages = shown(ending=ending)
    progress.refresh()
    for times in (1, 2):
        ending.hear(times)
        progress.refresh()
    progress.on_experiment_end([TRIAL])
    assert ["<button" in page for page in pages] == [True, True, False, False]
    assert [f'data-kernel="{KERNEL}"' in page for page in pages] == [True, True, False, False]
    assert "Stop, to be resumed" in pages[0]
    assert "click again to kill what still runs" in pages[1]
    assert "&lt;b&gt;" in pages[0]
    assert "<b>" not in pages[0]
    unkillable = Ending(can_kill=False)  # trials of this process
    assert "Stop, to be resumed" in button_html(KERNEL, unkillable, "run")
    unkillable.hear(1)
    assert button_html(KERNEL, unkillable, "run") == ""
    progress, pages = shown(ending=Ending())
    progress.refresh()
    progress.leave()  # without a last frame
    assert ["<button" in page for page in pages] == [True, False]


@contextmanager
def server(page: str, asked: list[tuple[str, str | None]], status: list[int]) -> Iterator[str]:
    """Serve a page below /base/ as Jupyter does, and note who asks for what, with which token."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200 if self.path == "/base/lab" else 404, page.encode())

        def do_POST(self) -> None:
            asked.append((self.path, self.headers["X-XSRFToken"]))
            self.answer(status.pop(0), b"")

        def answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Set-Cookie", "_xsrf=2|abc|def; Path=/base/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

    serving = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}/base/lab"
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()


@pytest.mark.browser
def test_a_click_asks_the_server_to_interrupt_and_says_so_when_that_fails() -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.support.ui import WebDriverWait

    ending = Ending()
    config = '<script id="jupyter-config-data" type="application/json">{"baseUrl": "/base/"}</script>'
    asked: list[tuple[str, str | None]] = []
    address = f"/base/api/kernels/{KERNEL}/interrupt"
    with (
        server(
            f"<!doctype html>{config}<body><div>{button_html(KERNEL, ending, 'run')}</div>", asked, [403, 204, 204]
        ) as url,
        open_page(url) as driver,
    ):

        def said() -> str:
            words = "const of = document.querySelector('button'); return [of.innerText, getComputedStyle(of, '::after')"
            return "".join(driver.execute_script(f"{words}.content]"))

        def show() -> None:
            driver.execute_script(
                "document.querySelector('div').innerHTML = arguments[0]", button_html(KERNEL, ending, "run")
            )

        def press() -> ActionChains:
            return ActionChains(driver).click_and_hold(driver.find_element("css selector", "button"))

        press().perform()
        show()  # before it is let go of
        ActionChains(driver).release().perform()
        WebDriverWait(driver, 20).until(lambda _: "could not be stopped from here" in said())
        show()
        assert "use the notebook's own interrupt button" in html.unescape(said())
        press().release().click().perform()  # twice
        WebDriverWait(driver, 20).until(lambda _: len(asked) == 2)
        assert "stopping" in said()
        ending.hear(1)
        show()
        assert "click again to kill" in said()
        driver.execute_script("Date.now = () => 1e15; document.querySelector('button').focus()")
        ActionChains(driver).send_keys(" ").perform()
        WebDriverWait(driver, 20).until(lambda _: len(asked) == 3)
        assert "killing" in said()
    assert asked == [(address, "2|abc|def")] * 3
