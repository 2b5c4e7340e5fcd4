"""The page of `sweep watch`, served in a thread of the tests' process."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from shown_experiment import subject

from sweep.page.live import LivePage, application, listening_socket

TOKEN = "secret-token"


class Served:
    """A page that is served in a thread of this process."""

    def __init__(self, *roots: Path, ask: Any = None) -> None:
        self.live = LivePage([subject(root) for root in roots])
        self.listener = listening_socket(0)
        self.port = self.listener.getsockname()[1]
        config = uvicorn.Config(
            application(self.live, TOKEN, ask), log_level="critical", lifespan="on", timeout_graceful_shutdown=1
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.listener]})
        self.thread.start()

    def close(self) -> None:
        self.server.should_exit = True
        self.thread.join()
        self.listener.close()

    def get(self, path: str, **headers: str) -> tuple[int, Mapping[str, str]]:
        """Return the status and the headers of an answer."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET", path, headers=headers)
            with closing(connection.getresponse()) as answer:
                answer.read()
                return answer.status, {name.lower(): value for name, value in answer.getheaders()}

    def post(self, body: str, path: str = "/ask", **headers: str) -> tuple[int, str]:
        """Return the status and the text of the answer to what the page's buttons send, or to other headers."""
        here = f"127.0.0.1:{self.port}"
        own = {"Host": here, "Origin": f"http://{here}", "X-Sweep-Token": TOKEN, "Sec-Fetch-Site": "same-origin"}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("POST", path, body, {name: text for name, text in (own | headers).items() if text})
            with closing(connection.getresponse()) as answer:
                return answer.status, answer.read().decode()

    def news(self, version: str) -> Generator[dict[str, Any]]:
        """Give what is sent to a browser that knows a version."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            connection.request("GET", f"/events?token={TOKEN}&version={version}")
            with closing(connection.getresponse()) as answer:
                assert answer.status == 200
                assert answer.headers["content-type"].startswith("text/event-stream")
                for line in answer:
                    if line.startswith(b"data: "):
                        yield json.loads(line[6:])


@contextmanager
def served(*roots: Path, ask: Any = None) -> Iterator[Served]:
    page = Served(*roots, ask=ask)
    try:
        yield page
    finally:
        page.close()
