"""Write the page of one or more experiments as one file that needs nothing else."""

from __future__ import annotations

import base64
import gzip
import json
import os
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from sweep.display.formats import escaped
from sweep.errors import ConfigError
from sweep.figures.style import graph_objects
from sweep.page.model import PageModel, models_of
from sweep.page.subject import Subject
from sweep.record.files import write_atomically

_ASSETS = Path(__file__).with_name("assets")
_RULES = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src {connect}; base-uri 'none'; form-action 'none'"
)


def page(models: Sequence[PageModel], *, events: str = "") -> str:
    """Return the page of experiments that are up to date; `events` is the address that sends what changes."""
    articles = "".join(_article(model, index) for index, model in enumerate(models))
    tabs = ""
    if len(models) > 1:
        names = [f'data-article="e{index}">{escaped(model.name)}' for index, model in enumerate(models)]
        buttons = "".join(f'<button type="button" {name}</button>' for name in names)
        tabs = f'<nav aria-label="Experiments">{buttons}</nav>'
    connect = "'self'" if events else "'none'"
    title = models[0].title
    now = f"as of {time.strftime('%Y-%m-%d %H:%M:%S %Z')}" if not events and models[0].is_running else ""
    live = f'<p class="live" role="status">{now}</p>' if events or now else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_RULES.format(connect=connect)}">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>{escaped(title)}</title><style>{_asset('page.css')}</style></head><body>"
        f'<a class="skip" href="#main">Skip to the content</a>{tabs}<main id="main">{live}'
        '<p id="problem" role="alert" hidden></p><noscript><p>The figures and the table need JavaScript.</p></noscript>'
        f'{articles}</main><aside id="chosen" aria-label="Selected trials" aria-live="polite" hidden></aside>'
        f'<script type="text/plain" id="payload">{_packed(payload_of(models, events))}</script>'
        f'<script type="text/plain" id="plotly">{_bundle()}</script>'
        f"<script>{_asset('page.js')}</script></body></html>\n"
    )


def payload_of(models: Sequence[PageModel], events: str) -> str:
    """Return as JSON what the page's script is given to begin with: all but the parts, which are there already."""
    experiments = [model.news(0) | {"index": index, "parts": {}} for index, model in enumerate(models)]
    versions = [one["version"] for one in experiments]
    return json.dumps({"version": versions, "events": events, "experiments": experiments}, allow_nan=False)


def rendered(subjects: Sequence[Subject]) -> str:
    """Return the page of experiments as they are now; of several a page that compares them."""
    graph_objects()
    roots = [subject.reader.root.resolve() for subject in subjects]
    twice = next((root for root in roots if roots.count(root) > 1), None)
    if twice is not None:
        raise ConfigError(f"{twice} is there twice; a page has each experiment once.")
    models = models_of(subjects)
    for model in models:
        model.refresh()
    return page(models)


def write_page(subjects: Sequence[Subject], path: str | os.PathLike[str]) -> Path:
    """Write the page of experiments to a file, whole or not at all; return its path.

    A symbolic link stays one, and a file keeps its permissions. What is no file, such as `/dev/stdout`, is written to.
    """
    target = Path(path).expanduser()
    if target.is_dir():
        raise ConfigError(f"{target} is a directory; expected a file such as {target / 'sweep.html'}.")
    text = rendered(subjects)
    try:
        if target.exists() and not target.is_file():
            target.write_text(text, encoding="utf-8")
        else:
            mode = target.stat().st_mode & 0o777 if target.exists() else None
            write_atomically(target.resolve(), text, is_private=mode is not None)
            if mode is not None:
                target.chmod(mode)
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror or error}. Name another file.") from error
    return target


def _article(model: PageModel, index: int) -> str:
    name = f"e{index}"
    first, *others = (
        _section(name, part, title, f'data-part="{part}"', model.parts[part].text)
        for part, title in model.titles.items()
    )
    head = f'<div data-part="head">{model.parts["head"].text}</div>' if "head" in model.parts else ""
    figures = _section(name, "figures", "Figures", 'class="figures" data-figures')
    trials = _section(name, "trials", "Trials", "data-trials") if head else ""
    return (
        f'<article id="{name}"><header><h1>{escaped(model.name)}</h1>{head}</header>'
        f"{first}{figures}{trials}{''.join(others)}</article>"
    )


def _section(article: str, name: str, title: str, marks: str, body: str | None = None) -> str:
    """Return a section, hidden where its body is empty; None: the page's script fills it."""
    label, hidden = f"{article}-{name}", " hidden" if body == "" else ""
    head = f'<section aria-labelledby="{label}"{hidden}><h2 id="{label}">{title}</h2>'
    return f"{head}<div {marks}>{body or ''}</div></section>"


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@lru_cache(maxsize=1)
def _bundle() -> str:
    from plotly.offline import get_plotlyjs

    return _packed(get_plotlyjs())


@lru_cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")
