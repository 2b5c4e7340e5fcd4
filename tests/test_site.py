"""The site of the documentation: built without a warning, read from the disk, with nothing from the network."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from browser import console_errors, open_page, requested_urls

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("material") is None, reason="mkdocs-material is missing: pip install -e '.[docs]'"
    ),
]


def build(site: Path, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("built") / "site"
    ended = build(built)
    assert ended.returncode == 0, ended.stderr
    assert "WARNING" not in ended.stderr
    return built


def test_every_page_is_there_and_in_the_navigation(site):
    start = (site / "index.html").read_text(encoding="utf-8")
    for page in PAGES:
        name = (page.parent / "index.html" if page.name == "README.md" else page.with_suffix(".html")).as_posix()
        assert (site / name).is_file()
        folder = page.parent.as_posix()
        where = site / folder / "index.html" if folder == "decisions" else site / "index.html"
        if where.parent != site:
            assert Path(name).name in where.read_text(encoding="utf-8")
        elif name != "index.html":
            assert f'href="{name}"' in start


def test_no_page_asks_for_anything_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        tags = re.findall(r"<(?:script|link|img|iframe|source|object)\b[^>]*>", text)
        assert [tag for tag in tags if re.search(r"(?:src|href|data)=[\"']?(?:https?:)?//", tag)] == []
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text(encoding="utf-8"))


def test_it_is_read_and_searched_from_the_disk(site):
    with open_page((site / "index.html").as_uri()) as driver:
        from selenium.webdriver.support.ui import WebDriverWait

        driver.execute_script("document.querySelector('#__search').click()")
        WebDriverWait(driver, 20).until(
            lambda one: one.find_element("css selector", ".md-search__input").is_displayed()
        )
        driver.find_element("css selector", ".md-search__input").send_keys("asha")

        def first_result(one: Any) -> str:
            found = one.find_elements("css selector", ".md-search-result__item a")
            return found[0].get_attribute("href") if found else ""

        WebDriverWait(driver, 20).until(first_result)
        assert "/algorithms/asha.html" in first_result(driver)
        driver.get((site / "how-to" / "come-from-optuna.html").as_uri() + "#side-by-side")
        assert "Migrate from Optuna" in driver.title
        assert driver.execute_script("return window.scrollY") > 500
        assert console_errors(driver) == []
        assert [url for url in requested_urls(driver) if not url.startswith("file:")] == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[x](nope.md)", "target is not found"),
        ("[x](faq.md#nope)", "does not contain an anchor '#nope'"),
        ("[x](../nope.py)", "target is not found"),
        ("![x](images/nope.svg)", "target is not found"),
    ],
)
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path, text, why):
    root = tmp_path / "project"
    root.mkdir()
    shutil.copytree(ROOT / "docs", root / "docs")
    shutil.copytree(ROOT / "examples", root / "examples")
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        shutil.copy(ROOT / name, root)
    with (root / "docs" / "choose.md").open("a", encoding="utf-8") as page:
        page.write(f"\n{text}\n")
    ended = build(tmp_path / "site", root)
    assert ended.returncode != 0
    assert re.search(rf"choose\.md.*{why}", ended.stderr), ended.stderr
