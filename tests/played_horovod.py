"""A package `horovod` that only plays: a rendezvous server with the classes of Horovod's, and a framework whose `init`
puts a key there, whose `shutdown` takes it away."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

_SERVER = """
import socketserver
from http.server import HTTPServer, SimpleHTTPRequestHandler


class RendezvousHandler(SimpleHTTPRequestHandler):
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.cache_lock:
            self.server.cache[self.path] = body
        self.answer(200, b"")

    def do_GET(self):
        with self.server.cache_lock:
            body = self.server.cache.get(self.path)
        self.answer(404 if body is None else 200, body or b"")

    def do_DELETE(self):
        with self.server.cache_lock:
            found = self.server.cache.pop(self.path, None)
        self.answer(404 if found is None else 200, b"")

    def answer(self, code, body):
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


class RendezvousHTTPServer(socketserver.ThreadingMixIn, HTTPServer):
    def __init__(self, addr, handler, verbose):
        super().__init__(addr, handler)
        import threading

        self.cache_lock = threading.Lock()
        self.cache = {}
        self.verbose = verbose
"""

_FRAMEWORK = """
import http.client
import os

_is_in = False


def ask(method, path, body=None):
    address = (os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"]))
    connection = http.client.HTTPConnection(*address, timeout=20)
    connection.request(method, path, body)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def init():
    global _is_in
    _is_in = True
    assert ask("PUT", "/global/" + os.environ["HOROVOD_RANK"], os.environ["HOROVOD_HOSTNAME"])[0] == 200


def is_initialized():
    return _is_in


def shutdown():
    global _is_in
    _is_in = False
    status, _ = ask("DELETE", "/global/" + os.environ["HOROVOD_RANK"])
    with open("left" + os.environ["HOROVOD_RANK"], "w") as file:
        file.write(str(status))
"""


def install(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the package below a directory and make it importable, here and in what a sweep starts."""
    home = directory / "played" / "horovod"
    (home / "runner" / "http").mkdir(parents=True)
    (home / "torch").mkdir()
    for package in (home, home / "runner", home / "runner" / "http"):
        (package / "__init__.py").write_text("")
    (home / "runner" / "http" / "http_server.py").write_text(_SERVER)
    (home / "torch" / "__init__.py").write_text(_FRAMEWORK)
    forget(monkeypatch)
    monkeypatch.syspath_prepend(str(home.parent))


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drop what is loaded of any `horovod`."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "horovod"]:
        monkeypatch.delitem(sys.modules, name)
