"""One page of the site per scheduler and searcher, made of its docstring."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import searchers
import sweep
from sweep import schedulers

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"

# What a class is called on its page where it has more than one name.
_PREFERRED = {"AsyncHyperBandScheduler": "ASHAScheduler"}
# What is no scheduler, and is explained with one.
_COMPANIONS = {
    "resource_changing": (
        ("sweep.schedulers.distribute", "DistributeResources"),
        ("sweep.schedulers.distribute", "DistributeResourcesToTopJob"),
    )
}
_SECTIONS = ("Args", "Attributes", "Raises", "Example")
_ENTRY = re.compile(r"(\w+(?:, \w+)*): (.*)", re.DOTALL)
_ERRORS = re.compile(r"([A-Z]\w+(?:, [A-Z]\w+)*): (.*)", re.DOTALL)
_SECOND_ENTRY = re.compile(r"(?<=[.]) (?=[a-z_]\w*(?:, [a-z_]\w*)*: )")


@dataclass(frozen=True)
class Docstring:
    """A docstring in its parts.

    Attributes:
        summary: the first line.
        text: paragraphs below it.
        arguments, attributes, errors: pairs of names, as written, and what is said of them.
        example: a session with its output; empty when there is none.
        source, departures: what follows these words; empty when they are not there.
    """

    summary: str
    text: tuple[str, ...] = ()
    arguments: tuple[tuple[str, str], ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    example: str = ""
    source: str = ""
    departures: str = ""


_ELSEWHERE = re.compile(r"(?:as for|The arguments are those of) `(\w+)`\.")


@dataclass(frozen=True)
class Algorithm:
    """A scheduler, a searcher, or what belongs to one.

    Attributes:
        kind: the class.
        page: name of its page, which is that of its module.
        aliases: its other names.
        names: what it is called in a run and on the command line.
    """

    kind: type[Any]
    page: str
    name: str
    aliases: tuple[str, ...]
    names: tuple[str, ...]
    docstring: Docstring = field(compare=False)

    @property
    def is_searcher(self) -> bool:
        """Whether it proposes configs; otherwise it belongs to the schedulers."""
        return issubclass(self.kind, searchers.Searcher)

    @property
    def path(self) -> str:
        """Where a user finds it: the shortest path that imports it."""
        for package in (sweep, schedulers, searchers):
            if self.name in package.__all__:
                return f"{package.__name__}.{self.name}"
        return f"{self.kind.__module__}.{self.name}"


# --- reading ---------------------------------------------------------------------------------------------------------


def read_docstring(text: str) -> Docstring:
    """Split a docstring in Google form into its parts."""
    summary, _, rest = inspect.cleandoc(text).partition("\n\n")
    paragraphs: list[str] = []
    sections: dict[str, str] = {}
    source = departures = ""
    for paragraph in re.split(r"\n\s*\n", rest.strip()):
        head, _, body = paragraph.partition("\n")
        if head.endswith(":") and head.removesuffix(":") in _SECTIONS:
            sections[head.removesuffix(":")] = textwrap.dedent(body).rstrip()
        elif paragraph.startswith("Source:"):
            source, _, departures = _joined(paragraph).partition("Departures")
        elif paragraph.strip():
            paragraphs.append(_joined(paragraph))
    return Docstring(
        summary=_joined(summary),
        text=tuple(paragraphs),
        arguments=tuple(_entries(sections.get("Args", ""), _ENTRY)),
        attributes=tuple(_entries(sections.get("Attributes", ""), _ENTRY)),
        errors=tuple(_entries(sections.get("Raises", ""), _ERRORS)),
        example=sections.get("Example", ""),
        source=source.removeprefix("Source:").strip(),
        departures=departures.removeprefix(":").strip(),
    )


def _joined(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def _entries(body: str, shape: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Give the entries of a section: each begins at the section's own indentation, or after another's full stop."""
    for block in re.split(r"\n(?=\S)", body) if body else ():
        for text in _SECOND_ENTRY.split(_joined(block)):
            entry = shape.fullmatch(text)
            if entry is None:
                raise ValueError(f"a section has {text!r}; expected `name: what it is`")
            yield entry[1], entry[2]


def algorithms() -> list[Algorithm]:
    """Return all schedulers, with what belongs to them, then all searchers, each in the order of their modules."""
    found = []
    for package, base in ((schedulers, schedulers.Scheduler), (searchers, searchers.Searcher)):
        for module_name in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
            module = importlib.import_module(f"{package.__name__}.{module_name}")
            kinds = [value for value in vars(module).values() if _is_algorithm(value, base, module.__name__)]
            others = [getattr(importlib.import_module(home), name) for home, name in _COMPANIONS.get(module_name, ())]
            found += [_algorithm(kind, module_name) for kind in dict.fromkeys([*kinds, *others])]
    return found


def _is_algorithm(value: Any, base: type[Any], module: str) -> bool:
    is_own = inspect.isclass(value) and value.__module__ == module and issubclass(value, base)
    return is_own and not inspect.isabstract(value) and not value.__name__.startswith("_")


def _algorithm(kind: type[Any], page: str) -> Algorithm:
    packages = (sweep, schedulers, searchers)
    known = {name for package in packages for name in package.__all__}
    same = {name for name in known if any(name in p.__all__ and getattr(p, name) is kind for p in packages)}
    preferred = _PREFERRED.get(kind.__name__, kind.__name__)
    tables: Sequence[Mapping[str, Any]] = (schedulers.SCHEDULERS, searchers.SEARCHERS)
    names = [
        name for table in tables for name, make in table.items() if kind is (make.func if _is_part(make) else make)
    ]
    return Algorithm(
        kind=kind,
        page=page,
        name=preferred,
        aliases=tuple(sorted((same | {kind.__name__}) - {preferred})),
        names=tuple(names),
        docstring=_whole(read_docstring(kind.__doc__ or ""), kind),
    )


def _whole(own: Docstring, kind: type[Any]) -> Docstring:
    """Return a docstring with the arguments for which it refers to another class."""
    said = [*own.text, *(what for names, what in own.arguments if names == "others")]
    found = next(filter(None, (_ELSEWHERE.search(text) for text in said)), None)
    if found is None:
        return own
    listed = [(names, what) for names, what in own.arguments if names != "others"]
    mine = {name for names, _ in listed for name in names.split(", ")}
    for names, what in read_docstring(getattr(schedulers, found[1]).__doc__).arguments:
        taken = [name for name in names.split(", ") if name in _parameters(kind) and name not in mine]
        listed += [(", ".join(taken), what)] if taken else []
    order = list(_parameters(kind))
    listed.sort(key=lambda entry: order.index(entry[0].partition(", ")[0]))
    return replace(own, arguments=tuple(listed))


def _is_part(make: Any) -> bool:
    return isinstance(make, partial)


def undocumented(algorithm: Algorithm) -> list[str]:
    """Return the parameters that the docstring says nothing of, neither in a list nor within its text."""
    whole = algorithm.kind.__doc__ or ""
    listed = {name for names, _ in algorithm.docstring.arguments for name in names.split(", ")}
    return [name for name in _parameters(algorithm.kind) if name not in listed and f"`{name}`" not in whole]


def _parameters(kind: type[Any]) -> dict[str, inspect.Parameter]:
    return {name: one for name, one in inspect.signature(kind).parameters.items() if name != "self"}


# --- writing ---------------------------------------------------------------------------------------------------------


def pages(found: Sequence[Algorithm]) -> dict[str, str]:
    """Return the text of every page by file name, the index among them."""
    written = {"README.md": _index(found)}
    for name in dict.fromkeys(one.page for one in found):
        of_page = [one for one in found if one.page == name]
        written[f"{name}.md"] = "\n".join(_page(of_page)) + "\n"
    return written


def _index(found: Sequence[Algorithm]) -> str:
    lines = [
        "# Algorithms",
        "",
        "Each scheduler and searcher has a page with its arguments, errors and source, and the differences from it.",
        "[Choose](../../choose.md) helps you pick one. [Schedulers](../schedulers.md) and [Searchers](../searchers.md)",
        "list what all of them guarantee.",
    ]
    for title, is_searcher in (("Schedulers", False), ("Searchers", True)):
        lines += ["", f"## {title}", "", "| class | name in a run | what it does |", "| --- | --- | --- |"]
        for one in found:
            if one.is_searcher == is_searcher:
                anchor = "" if one.name == _title(found, one.page) else f"#{one.name.lower()}"
                link = f"[`{one.name}`]({one.page}.md{anchor})"
                lines.append(f"| {link} | {_codes(one.names)} | {_cell(one.docstring.summary)} |")
    return "\n".join(lines) + "\n"


def _title(found: Sequence[Algorithm], page: str) -> str:
    return next(one.name for one in found if one.page == page)


def _page(of_page: Sequence[Algorithm]) -> Iterator[str]:
    for number, one in enumerate(of_page):
        level = "##" if number else "#"
        if number:
            yield ""
        yield f"{level} {one.name}"
        yield from _described(one, level)
        if not number:
            yield from _more(one)


def _described(one: Algorithm, level: str) -> Iterator[str]:
    text = one.docstring
    yield from ("", text.summary)
    for paragraph in text.text:
        yield from ("", paragraph)
    yield from ("", _where(one), "", "```text", *_signature(one), "```")
    for title, entries, shape in (
        ("Arguments", text.arguments, "argument"),
        ("Attributes", text.attributes, "attribute"),
        ("Errors", text.errors, "error"),
    ):
        if entries:
            yield from ("", f"{level}# {title}", "", f"| {shape} | meaning |", "| --- | --- |")
            yield from (f"| {_codes(names.split(', '))} | {_cell(what)} |" for names, what in entries)
    if text.example:
        yield from ("", f"{level}# Example", "", "```pycon", *text.example.splitlines(), "```")
    if text.source:
        yield from ("", f"{level}# Source", "", text.source)
    if text.departures:
        yield from ("", f"{level}# Departures", "", text.departures[0].upper() + text.departures[1:])


def _where(one: Algorithm) -> str:
    places = [f"`{one.path}`"]
    if one.aliases:
        places.append(f"also called {_codes(one.aliases)}")
    if one.names:
        argument = "search_alg" if one.is_searcher else "scheduler"
        spelled = [f'`{argument}="{name}"`' for name in one.names]
        places.append(f"in a run {' or '.join(spelled)}")
    return "; ".join(places) + "."


def _signature(one: Algorithm) -> list[str]:
    """Return the signature, a parameter per line, with types as the code writes them."""
    parameters = list(_parameters(one.kind).values())
    if not parameters:
        return [f"{one.name}()"]
    lines, is_keyword = [f"{one.name}("], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            lines.append("    *,")
            is_keyword = True
        annotation = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"    {parameter.name}{annotation}{default},")
    return [*lines, ")"]


def _more(one: Algorithm) -> Iterator[str]:
    """Link to what the reference has besides."""
    place = "searchers.md" if one.is_searcher else "schedulers.md"
    if re.search(rf"^## {one.name}$", (REFERENCE / place).read_text(encoding="utf-8"), flags=re.M):
        yield from ("", f"More about it: [{place.removesuffix('.md').title()}](../{place}#{one.name.lower()}).")


def _codes(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
