"""The browser of the tests sees what a person would: scripts that fail, resources that lie elsewhere, dark colours."""

from __future__ import annotations

import pytest
from browser import console_errors, open_page, requested_urls, resize, screenshot

pytestmark = pytest.mark.browser

PAGE = """<!doctype html><title>a page</title><link rel="icon" href="data:,">
<style>p { width: 50vw; height: 2000px } @media (prefers-color-scheme: dark) { p { color: rgb(1, 2, 3) } }</style>
<p id="one">some text</p>"""


def test_a_harmless_page_has_no_errors_and_a_picture_of_the_width_that_was_asked_for(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(PAGE)
    with open_page(page.as_uri(), 600, dark=True) as driver:
        assert driver.title == "a page"
        one = driver.find_element("id", "one")
        assert one.size["width"] == 300
        assert one.value_of_css_property("color").replace(" ", "").startswith(("rgb(1,2,3", "rgba(1,2,3"))
        assert requested_urls(driver) == [page.as_uri()]
        picture = screenshot(driver, tmp_path / "page.png", 320).read_bytes()
        assert one.size["width"] == 160
        assert int.from_bytes(picture[16:20], "big") == 320
        assert int.from_bytes(picture[20:24], "big") > 2000
        resize(driver, 1000)
        assert one.size["width"] == 500
        assert console_errors(driver) == []


def test_a_script_that_fails_and_a_font_from_elsewhere_are_in_the_console(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(PAGE + "<link rel=stylesheet href='https://fonts.example.com/a.css'><script>missing()</script>")
    with open_page(page.as_uri()) as driver:
        assert "https://fonts.example.com/a.css" in requested_urls(driver)
        found = console_errors(driver)
        assert len(found) == 2
        assert any("ERR_NAME_NOT_RESOLVED" in one for one in found)
        assert any("missing is not defined" in one for one in found)
