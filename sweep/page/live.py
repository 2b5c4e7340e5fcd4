"""Serve the pages of experiments on this machine, and send what changes while it is looked at."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import secrets
import socket
import traceback
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from sweep.errors import ConfigError, ExperimentError, SweepError
from sweep.page.build import page
from sweep.page.model import models_of
from sweep.page.subject import Subject
from sweep.record.reader import ExperimentReader

_HOST = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?")
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_END = object()
_REST_S = 0.5  # between two looks at the records
_BEAT_S = 15.0  # between two signs of life to a browser that nothing else is sent to


class LivePage:
    """The pages of experiments, brought up to date while somebody looks.

    Nothing is read while nobody does; a figure or a part of a sweep that runs takes 5% of one CPU at most.
    """

    def __init__(self, subjects: Sequence[Subject]) -> None:
        self.models = models_of(subjects)
        self.watching: dict[object, list[tuple[int, str]]] = {}  # who looks -> figures that are shown there

    def page(self, events: str) -> str:
        """Return the page as of now; figures that were not made before follow by `news`."""
        for model in self.models:
            model.refresh(with_figures=False)
        return page(self.models, events=events)

    def renew(self) -> Iterator[None]:
        """Bring them up to date in steps: browsers are sent what one step has found before the next."""
        wanted = [one for some in tuple(self.watching.values()) for one in some]
        for index, model in enumerate(self.models):
            model.wanted = {key for at, key in wanted if at == index}
            with contextlib.suppress(ExperimentError):  # it is just being continued, or was removed: tried again
                yield from model.renew()

    def news(self, versions: Sequence[int], wanted: Collection[tuple[int, str]] = ()) -> tuple[list[int], str]:
        """Return the versions now, and as JSON what changed since some, one for each experiment; empty: nothing did.
        Figures that are `wanted`, by index of the experiment and key, are given whether they changed or not."""
        found, now = [], []
        for index, (model, version) in enumerate(zip(self.models, versions, strict=True)):
            more = {key for at, key in wanted if at == index}
            news = model.news(version, more)
            now.append(news["version"])
            if news["version"] != version or more & news["figures"].keys():
                found.append(news | {"index": index})
        if not found:
            return now, ""
        return now, json.dumps({"version": now, "title": self.models[0].title, "experiments": found}, allow_nan=False)


def application(live: LivePage, token: str, ask: Callable[[ExperimentReader, Any], str] | None = None) -> Any:
    """Return the ASGI application: the page at `/`, what changes at `/events`; both only for who knows the token. `ask`
    does what the page's buttons post to `/ask`, and returns what came of it, or raises a SweepError; None: no buttons.
    """
    try:
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.requests import Request
        from starlette.responses import HTMLResponse, PlainTextResponse, Response, StreamingResponse
        from starlette.routing import Route
    except ImportError as error:
        raise ConfigError(
            f"sweep watch needs {error.name}, which is not installed. Run: pip install starlette uvicorn"
        ) from error

    async def whole(request: Request) -> Response:
        _refuse_strangers(request, token)
        try:
            text = await asyncio.to_thread(live.page, f"events?token={token}{'&ask=1' * (ask is not None)}")
        except ExperimentError as error:  # its directory was removed, for instance
            raise HTTPException(503, f"{error}\n", _HEADERS) from error
        return HTMLResponse(text, headers=_HEADERS)

    async def events(request: Request) -> Response:
        _refuse_strangers(request, token)
        known = request.query_params.get("version", "").split(",")
        if len(known) != len(live.models) or not all(part.isdecimal() for part in known):
            raise HTTPException(400, "version= names the version of each experiment, such as 12,7\n", _HEADERS)
        shown = [one.partition(":") for one in request.query_params.getlist("show")]
        wanted = [(int(at), key) for at, _, key in shown if at.isdecimal()]
        stream = _stream(live, [int(part) for part in known], wanted, changed)
        return StreamingResponse(stream, media_type="text/event-stream", headers=_HEADERS)

    async def asked(request: Request) -> Response:
        _refuse_strangers(request, token)
        try:
            given = await request.json()
            async with in_turn:  # what waits for a driver that does not answer holds one thread, and not all
                said = await asyncio.to_thread(ask, live.models[given["index"]].reader, given)  # type: ignore[arg-type]
        except (SweepError, ValueError, TypeError, LookupError, AttributeError) as error:
            is_ours = isinstance(error, SweepError)
            return PlainTextResponse(str(error) if is_ours else f"not understood: {error!r}", 409, _HEADERS)
        return PlainTextResponse(said, headers=_HEADERS)

    changed, in_turn = asyncio.Condition(), asyncio.Lock()
    routes = [Route("/", whole), Route("/events", events)]
    routes += [] if ask is None else [Route("/ask", asked, methods=["POST"])]

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        task = asyncio.create_task(_keep_fresh(live, changed))
        try:
            yield
        finally:
            task.cancel()

    return Starlette(routes=routes, lifespan=lifespan)


def _refuse_strangers(request: Any, token: str) -> None:
    """Raise HTTPException for a request of starlette's that does not come from who was given the token."""
    from starlette.exceptions import HTTPException

    # A page elsewhere that makes a browser ask this one by another name for 127.0.0.1 is refused.
    if not _HOST.fullmatch(request.headers.get("host", "")):
        raise HTTPException(421, "ask for 127.0.0.1 or localhost\n", _HEADERS)
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise HTTPException(403, "not for other pages\n", _HEADERS)
    given = request.query_params.get("token", "")
    if request.method == "POST":  # it changes something: only from this page's own script, no form and no link
        own = f"http://{request.headers['host']}"
        given = request.headers.get("x-sweep-token", "") if request.headers.get("origin") == own else ""
    if not secrets.compare_digest(given.encode(), token.encode()):
        raise HTTPException(403, "the token is missing or wrong: open the address that was printed\n", _HEADERS)


async def _keep_fresh(live: LivePage, changed: asyncio.Condition) -> None:
    while True:
        steps = live.renew() if live.watching else iter(())
        try:
            while await asyncio.to_thread(next, steps, _END) is not _END:
                async with changed:
                    changed.notify_all()
        except Exception:  # a fault of ours: it is said, and what can be shown goes on
            traceback.print_exc()
            await asyncio.sleep(_BEAT_S)
        await asyncio.sleep(_REST_S)


async def _stream(
    live: LivePage, versions: list[int], wanted: list[tuple[int, str]], changed: asyncio.Condition
) -> AsyncIterator[str]:
    """Give the events of one browser, at most one a second."""
    loop = asyncio.get_running_loop()
    me = object()
    live.watching[me] = missing = wanted
    try:
        yield "retry: 2000\n\n"
        sent = loop.time() - 1.0
        while True:
            versions, text = await asyncio.to_thread(live.news, versions, missing)
            missing = []
            if text:
                yield f"data: {text}\n\n"
                sent = loop.time()
            elif loop.time() - sent > _BEAT_S:
                yield ": still here\n\n"
                sent = loop.time()
            await asyncio.sleep(max(0.0, sent + 1.0 - loop.time()))
            try:
                async with changed:
                    await asyncio.wait_for(changed.wait(), _BEAT_S)
            except TimeoutError:
                continue
    finally:
        del live.watching[me]


def listening_socket(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1; port 0: any that is free."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(
            f"port {port} cannot be used: {error.strerror}. Leave --port out, or name another."
        ) from error
