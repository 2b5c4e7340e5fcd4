"""What makes a site of pages that know nothing of one: navigation, anchors as on GitHub, links, pages of algorithms."""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))
from algorithm_pages import algorithms, pages

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
ALGORITHMS = "reference/algorithms"  # of the site: pages that are made of docstrings
PACKAGES = ("searchers", "schedulers")  # whose modules have such a page
PAGES = {
    "README.md": "about.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "benchmark-results.md",
}
"""Pages above docs/ -> their names in the site."""

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_ITEM = re.compile(r"- \[([^\]]+)\]\(([^)#\s]+)\)")
_DIAGRAM = re.compile(r"^```mermaid\nstateDiagram[^\n]*\n(.*?)^```$", re.M | re.S)
_ARROW = re.compile(r"(\S+) --> (\S+): (.+)")
_FENCE = re.compile(r"^\s*(```+|~~~+)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from docs/README.md, and make anchors as GitHub does."""
    config.nav = [{"Start": "README.md"}, *_navigation()]
    config.mdx_configs.setdefault("toc", {})["slugify"] = lambda text, separator: github_slug(text)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page per algorithm, the pages above docs/, and the files there to which a page links."""
    for name, text in _algorithms().items():
        files.append(File.generated(config, f"{ALGORITHMS}/{name}", content=text))
    for name, place in PAGES.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / name)))
    sources = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    linked = {target for path in sources for target in _targets(path)}
    for target in sorted(linked):
        name = target.relative_to(ROOT).as_posix()
        if target.is_file() and not target.is_relative_to(DOCS) and name not in PAGES:
            files.append(File.generated(config, name, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of a page to where their targets are in the site; what is not there is no link."""
    source = Path(page.file.abs_src_path or DOCS / page.file.src_uri)
    here = posixpath.dirname(page.file.src_uri)

    def moved(match: re.Match[str]) -> str:
        sign, text, link = match.groups()
        anchor = link.partition("#")[2]
        target = _target(source, link)
        if target is None or not target.exists():
            return match[0]  # elsewhere, or a broken link, which the build refuses
        is_inside = target.is_relative_to(DOCS)
        if target.is_dir():
            if not is_inside or not (target / "README.md").is_file():
                return text
            target /= "README.md"
        name = target.relative_to(ROOT).as_posix()
        if target.suffix == ".py" and f"{target.stem}.md" in _algorithms() and target.parent.name in PACKAGES:
            return f"{sign}[{text}]({posixpath.relpath(f'{ALGORITHMS}/{target.stem}.md', here or '.')})"
        place = target.relative_to(DOCS).as_posix() if is_inside else PAGES.get(name, name)
        new = posixpath.relpath(place, here or ".")
        return f"{sign}[{text}]({new}{f'#{anchor}' if anchor else ''})"

    return _in_prose(_DIAGRAM.sub(_as_table, markdown), lambda line: _LINK.sub(moved, line))


def _as_table(diagram: re.Match[str]) -> str:
    """Return the arrows of a state diagram as a table: what draws it would have to come from the network."""
    rows = [f"| {one} | {other} | {why} |" for one, other, why in _ARROW.findall(diagram[1].replace("[*]", "(new)"))]
    return "\n".join(["| from | to | when |", "| --- | --- | --- |", *rows, ""])


def github_slug(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@cache
def _algorithms() -> dict[str, str]:
    return pages(algorithms())


def _navigation() -> Iterator[dict[str, Any]]:
    """Yield the sections of docs/README.md with their pages; a page that leads a folder has the others below it."""
    parts = re.split(r"^\*\*(.+)\*\*$", (DOCS / "README.md").read_text(encoding="utf-8"), flags=re.M)
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        found: list[Any] = []
        for name, link in _ITEM.findall(text):
            target = (DOCS / link).resolve()
            if not target.is_relative_to(DOCS):
                found.append({name: PAGES[target.relative_to(ROOT).as_posix()]})
            elif target.name == "README.md":
                others = sorted(path.relative_to(DOCS).as_posix() for path in target.parent.glob("*.md"))
                found.append({name: sorted(others, key=lambda other: other != link)})
            else:
                found.append({name: link})
            if link == "reference/schedulers.md":
                others = sorted(_algorithms(), key=lambda page: page != "README.md")
                found.append({"Algorithms": [f"{ALGORITHMS}/{page}" for page in others]})
        yield {title: found}
    yield {
        "Project": [
            {"Read me": PAGES["README.md"]},
            {"Changes": PAGES["CHANGELOG.md"]},
            {"Measured": PAGES["benchmarks/RESULTS.md"]},
        ]
    }


def _target(source: Path, link: str) -> Path | None:
    """Return the file or directory to which a link leads; None: it stays on the page, or leads elsewhere."""
    path = link.partition("#")[0]
    if not path or re.match(r"[a-z][a-z+.-]*:", link):
        return None
    target = Path(os.path.normpath(source.parent / path))
    return target if target.is_relative_to(ROOT) else None


def _targets(source: Path) -> Iterator[Path]:
    found: list[Path] = []

    def note(line: str) -> str:
        found.extend(target for match in _LINK.finditer(line) if (target := _target(source, match[3])) is not None)
        return line

    _in_prose(source.read_text(encoding="utf-8"), note)
    yield from found


def _in_prose(text: str, change: Callable[[str], str]) -> str:
    """Return a page with its lines changed, those of code blocks excepted."""
    lines = []
    fence = ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if match and (not fence or line.strip().startswith(fence)):
            fence = "" if fence else match[1]
            lines.append(line)
        else:
            lines.append(line if fence else change(line))
    return "\n".join(lines)
