"""Pages in a real browser: no error, nothing asked for elsewhere, what is selected in one place is marked in all."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import console_errors, open_page, requested_urls, resize
from made_experiment import MadeExperiment
from served_page import TOKEN, served
from shown_experiment import SCRIPT, begin, shown_experiment, subject

from sweep.errors import ConfigError
from sweep.page.build import write_page
from sweep.record.reader import ExperimentReader

pytestmark = pytest.mark.browser

DRAWN = """
return window.sweepPage.experiments[0].figures.size > 3 &&
    [...window.sweepPage.experiments[0].figures.values()].every((figure) => figure.full);
"""
ABOVE = """
const figure = window.sweepPage.experiments[0].figures.get(arguments[0]);
const above = figure.plot._fullData.slice(figure.spec.data.length);
return above.map((trace) => [...trace.y].filter((y) => y !== null).length);
"""
ROWS = """
const rows = [...document.querySelectorAll('.trials tbody tr')];
return rows.map((row) => [...row.cells].map((cell) => cell.innerText));
"""


def until(asked: Callable[[], Any], timeout_s: float = 30.0) -> Any:
    """Return what is given once it is true."""
    end = time.monotonic() + timeout_s
    while not (found := asked()):
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)
    return found


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    root = shown_experiment(tmp_path_factory.mktemp("shown")).root
    path = write_page([subject(root)], root / "page.html")
    with open_page(path.as_uri()) as driver:
        until(lambda: driver.execute_script("return document.documentElement.dataset.ready"))
        driver.execute_script("window.sweepPage.experiments[0].drawAll()")
        until(lambda: driver.execute_script(DRAWN))
        yield driver
        assert console_errors(driver) == []


@pytest.fixture(autouse=True)
def unselected(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "driver" in request.fixturenames:
        request.getfixturevalue("driver").execute_script(
            "const one = window.sweepPage.experiments[0]; one.table.sort = null; one.brush(null); one.select([])"
        )


def test_it_asks_nobody_for_anything_and_no_text_is_a_script(driver: Any) -> None:
    assert [url for url in requested_urls(driver) if not url.startswith("file:")] == []
    assert driver.title == "8/10 shown"
    body = driver.find_element("tag name", "body").text
    assert SCRIPT in driver.execute_script("return document.body.textContent")
    assert "The figures and the table could not be shown" not in body


def test_a_row_that_is_clicked_is_marked_in_every_figure(driver: Any) -> None:
    driver.find_element("css selector", '.trials tr[data-trial="1"]').click()
    assert driver.find_element("css selector", '.trials tr[data-trial="1"]').get_attribute("aria-selected") == "true"
    assert until(lambda: driver.execute_script(ABOVE, "curves")) == [9]
    assert driver.execute_script(ABOVE, "history") == [1]
    assert "00001 finished" in driver.find_element("id", "chosen").text
    driver.find_element("css selector", '.trials tr[data-trial="1"]').click()
    assert driver.execute_script(ABOVE, "curves") == []
    driver.find_element("css selector", '.trials tr[data-trial="0"]').click()
    assert until(lambda: driver.execute_script(ABOVE, "history")) == [1]  # not the line of the best so far
    driver.find_element("css selector", '.trials tr[data-trial="0"]').click()
    assert not driver.find_element("id", "chosen").is_displayed()


def test_a_point_that_is_clicked_is_marked_in_the_table(driver: Any) -> None:
    emit = """
    const plot = window.sweepPage.experiments[0].figures.get("history").plot;
    plot.emit("plotly_click", { points: [{ customdata: [arguments[0]] }], event: { ctrlKey: arguments[1] } });
    """
    driver.execute_script(emit, 2, False)
    driver.execute_script(emit, 4, True)
    chosen = driver.find_elements("css selector", '.trials tr[aria-selected="true"]')
    assert [row.get_attribute("data-trial") for row in chosen] == ["2", "4"]


def test_the_table_is_sorted_filtered_and_walked_by_keys(driver: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    heads = "[...document.querySelectorAll('.trials th button')]"
    click = f"{heads}.find((one) => one.innerText.startsWith('loss')).click()"
    driver.execute_script(click)
    assert [row[0] for row in driver.execute_script(ROWS)][:4] == ["00000", "00001", "00002", "00003"]
    driver.execute_script(click)
    assert driver.execute_script(ROWS)[0][0] == "00008"
    box = driver.find_element("css selector", "input[type=search]")
    for typed, numbers in (("loss<1.2", ["00001", "00000"]), ("stopped", ["00004", "00005"]), ("nothing", [])):
        box.clear()
        box.send_keys(typed)
        assert sorted(row[0] for row in driver.execute_script(ROWS)) == sorted(numbers)
    box.clear()
    box.send_keys(" " + Keys.BACKSPACE)
    driver.execute_script("document.querySelector('.trials tbody tr').focus()")
    driver.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    assert len(driver.find_elements("css selector", '.trials tr[aria-selected="true"]')) == 1
    assert driver.switch_to.active_element.get_attribute("aria-selected") == "true"


MARKED = """
const spec = window.sweepPage.experiments[0].figures.get(arguments[0]).plot.data;
const numbers = spec.filter((one) => one.line?.shape !== "hv").flatMap((one) => one.customdata.map((row) => row[0]));
return [...new Set(numbers)].sort((a, b) => a - b);
"""
BRUSH = """
const plot = window.sweepPage.experiments[0].figures.get("parallel").plot;
plot.data[0].dimensions.at(-1).constraintrange = arguments[0];
plot.emit("plotly_restyle", [{}, [0]]);
"""
BRUSHED = (
    "return window.sweepPage.experiments[0].figures.get('parallel').plot.data[0].dimensions.at(-1).constraintrange"
)


@pytest.mark.parametrize(
    ("typed", "numbers", "wrong"),
    [
        ("loss<1.3 lr<0.05", [1, 2], ""),
        ("loss < 1.3 and lr<0.05", [1, 2], ""),
        ("state=stopped early lr<=1e-5 gelu", [], ""),
        ("state=stopped early act=gelu", [5], ""),
        ('state!="failed" relu loss>1.1', [2, 4, 8], ""),
        ("stopped early", [4, 5], ""),
        ("lr<abc", range(10), "lr<abc: expected a number after <"),
        ("loss<1.3 lr<", range(10), "lr< what?"),
        ("lrr<1", range(10), 'there is no column "lrr"; there are trial, state, step, loss'),
        ("<1", range(10), '"<1" has no column before it, as in lr<0.01'),
        ("lr<1 or loss<1", range(10), 'conditions are combined with "and"; "or" is not known'),
    ],
)
def test_the_conditions_of_the_filter_all_hold_in_the_table_and_in_the_figures(driver, typed, numbers, wrong):
    box = driver.find_element("css selector", "input[type=search]")
    box.send_keys(typed)
    assert wrong in driver.find_element("css selector", ".wrong").text
    assert (wrong == "") == (driver.find_element("css selector", ".wrong").text == "")
    if not wrong:
        assert sorted(int(row[0]) for row in driver.execute_script(ROWS)) == list(numbers)
        until(lambda: driver.execute_script(MARKED, "timeline") == list(numbers))
        assert set(driver.execute_script(MARKED, "curves")) <= set(numbers)
    driver.execute_script("arguments[0].value = ''; arguments[0].dispatchEvent(new Event('input'))", box)
    until(lambda: len(driver.execute_script(MARKED, "timeline")) == 10)


CHOOSE = """
const [name, at, value] = arguments;
const select = window.sweepPage.experiments[0].figures.get(name).tools.querySelectorAll("select")[at];
select.value = value;
select.dispatchEvent(new Event("change"));
"""
AXES = """
const { xaxis, yaxis } = window.sweepPage.experiments[0].figures.get(arguments[0]).plot.layout;
return [xaxis.title.text ?? xaxis.title, yaxis.title.text ?? yaxis.title];
"""


def test_a_figure_is_drawn_with_another_metric_and_x_axis_when_it_is_chosen(driver: Any) -> None:
    driver.execute_script(CHOOSE, "curves", 0, "eval/acc")
    driver.execute_script(CHOOSE, "curves", 1, "time_total_s")
    until(lambda: driver.execute_script(AXES, "curves") == ["time_total_s", "eval/acc"])
    driver.execute_script(CHOOSE, "history", 0, "time")
    until(lambda: driver.execute_script(AXES, "history") == ["seconds of driving", "loss"])
    driver.execute_script(CHOOSE, "history", 0, "trials")
    driver.execute_script(CHOOSE, "curves", 0, "loss")
    driver.execute_script(CHOOSE, "curves", 1, "training_iteration")
    until(lambda: driver.execute_script(AXES, "curves") == ["training_iteration", "loss"])


def test_ranges_that_are_brushed_filter_the_table_and_the_other_figures(driver: Any) -> None:
    driver.execute_script(BRUSH, [1.05, 1.3])
    assert [int(row[0]) for row in driver.execute_script(ROWS)] == [1, 2]
    until(lambda: driver.execute_script(MARKED, "curves") == [1, 2])
    driver.execute_script("window.sweepPage.experiments[0].figures.get('parallel').highlight()")
    assert driver.execute_script(BRUSHED) == [1.05, 1.3]  # it stays through whatever is drawn again
    button = next(
        one for one in driver.find_elements("css selector", ".tools button") if "clear the brushed" in one.text
    )
    button.click()
    assert len(driver.execute_script(ROWS)) == 10
    assert driver.execute_script(BRUSHED) is None
    assert not button.is_displayed()


def test_the_best_are_starred_and_first_after_those_that_run(driver: Any) -> None:
    rows = driver.execute_script(ROWS)
    assert [row[0] for row in rows][:5] == ["00008", "00000", "00001", "00002", "00003"]
    assert driver.execute_script("return [...document.querySelectorAll('.best')].map((one) => one.innerText)") == [
        "00000"
    ]
    caption = driver.find_element("css selector", ".trials caption").text
    assert caption == "10 trials; running ones first, then the best first"
    head = "return getComputedStyle(document.querySelector('.trials thead th')).position"
    assert driver.execute_script(head) == "sticky"


def test_titles_have_the_room_of_the_figure_and_its_place_has_its_height_before_it_is_drawn(driver: Any) -> None:
    for script in (
        "return figure.title.textContent.length > 0 && figure.plot.layout.title === undefined;",
        "return figure.plot.offsetHeight - parseFloat(figure.plot.style.minHeight) < 2;",
    ):
        loop = f"[...window.sweepPage.experiments[0].figures.values()].every((figure) => {{ {script} }})"
        assert driver.execute_script(f"return {loop}")


def test_columns_of_one_name_are_told_apart_and_a_short_number_has_the_whole_as_its_title(tmp_path: Path) -> None:
    made = MadeExperiment(tmp_path)
    for number in range(3):
        trial = made.trial({"lr": number, "seed": 123456780 + number, "state": f"s{number}"})
        made.report(trial, {"loss": 1.0, "lr": 9.0 - number, "config/lr": 0.5 * number, "step": 7 + number})
        made.end(trial)
    path = write_page([subject(made.close())], tmp_path / "page.html")
    with open_page(path.as_uri()) as driver:
        until(lambda: driver.execute_script("return document.documentElement.dataset.ready"))
        heads = driver.execute_script("return [...document.querySelectorAll('.trials th')].map((one) => one.innerText)")
        assert heads[0].startswith("trial")
        assert heads[1:] == [
            *("state", "step", "lr", "metric/config/lr", "metric/step", "config/lr", "seed", "config/state"),
            "reason",
        ]
        box = driver.find_element("css selector", "input[type=search]")
        for typed, numbers in (
            *(("lr=9", [0]), ("config/lr=2", [2]), ("metric/config/lr=0.5", [1]), ("metric/step>8", [2])),
            *(("config/state=s1", [1]), ("step=1", [0, 1, 2]), ("config/seed=123456781", [1])),
        ):
            box.clear()
            box.send_keys(typed)
            assert [int(row[0]) for row in driver.execute_script(ROWS)] == numbers, typed
        title = "return document.querySelector('.trials tbody tr').cells[7].title"
        assert driver.execute_script(title) == "123456781"
        assert console_errors(driver) == []


def test_a_figure_that_is_old_says_as_of_when_until_it_is_drawn_again(driver: Any) -> None:
    age = "return window.sweepPage.experiments[0].figures.get('curves').age.innerText"
    driver.execute_script("window.sweepPage.experiments[0].apply({ old: { curves: [86400 * 365, 31] } })")
    assert re.fullmatch(r"as of \d\d:\d\d:\d\d, 31 trials", driver.execute_script(age))
    driver.execute_script("const one = window.sweepPage.experiments[0].figures.get('curves'); one.set(one.spec)")
    assert driver.execute_script(age) == ""
    until(lambda: driver.execute_script(DRAWN))


def test_nothing_sticks_out_at_400_pixels(driver: Any) -> None:
    resize(driver, 400)
    try:
        until(lambda: driver.execute_script("return document.documentElement.scrollWidth") <= 400)
    finally:
        resize(driver, 1280)


def test_dark_and_print_are_legible(driver: Any) -> None:
    ink = "return getComputedStyle(document.body).color"
    light = driver.execute_script(ink)
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    assert driver.execute_script(ink) != light
    until(lambda: driver.execute_script(DRAWN))
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", dark | {"media": "print"})
    assert driver.execute_script(ink) == "rgb(0, 0, 0)"
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [], "media": ""})


def test_several_experiments_are_tabs(tmp_path: Path) -> None:
    roots = [shown_experiment(tmp_path, name).root for name in ("one", "other")]
    path = write_page([subject(root) for root in roots], tmp_path / "compared.html")
    with open_page(path.as_uri()) as driver:
        until(lambda: driver.execute_script("return document.documentElement.dataset.ready"))
        tabs = driver.find_elements("css selector", "nav button")
        assert [tab.text for tab in tabs] == ["compared", "one", "other"]
        assert [one.is_displayed() for one in driver.find_elements("tag name", "article")] == [True, False, False]
        tabs[2].click()
        assert [one.is_displayed() for one in driver.find_elements("tag name", "article")] == [False, False, True]
        assert console_errors(driver) == []


def test_a_trial_that_begins_is_seen_while_one_looks(tmp_path: Path) -> None:
    made: MadeExperiment = shown_experiment(tmp_path)
    address = f"/?token={TOKEN}"
    with served(made.root) as page, open_page(f"http://127.0.0.1:{page.port}{address}") as driver:
        until(lambda: driver.find_element("css selector", ".live").text == "live")
        until(lambda: len(driver.find_elements("css selector", "figure")) > 3)
        trial = begin(made, 10, at=20.0)
        made.report(trial, {"loss": 0.5}, at=21.0)
        made.commit()
        until(lambda: driver.find_elements("css selector", '.trials tr[data-trial="10"]'))
        until(lambda: "loss = 0.5" in driver.find_element("css selector", '[data-part="winner"]').text)
        driver.execute_script(CHOOSE, "curves", 0, "eval/acc")
        driver.execute_script("window.sweepPage.experiments[0].drawAll()")
        until(lambda: driver.execute_script(AXES, "curves") == ["training_iteration", "eval/acc"])
        assert console_errors(driver) == []


def pressed(driver: Any, where: str, label: str) -> None:
    next(one for one in driver.find_elements("css selector", f"{where} button") if one.text == label).click()


def test_buttons_ask_and_show_what_came_of_it(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def ask(reader: ExperimentReader, given: dict[str, Any]) -> str:
        asked.append({name: value for name, value in given.items() if name != "index"})
        if given["verb"] == "retry" or given.get("typed", {}).get("trials") == "0":
            raise ConfigError(f"no <b>{given['verb']}</b> now")
        return "lr=0.5 act=relu" if given["verb"] == "config" else "done"

    made: MadeExperiment = shown_experiment(tmp_path)
    with served(made.root, ask=ask) as page, open_page(f"http://127.0.0.1:{page.port}/?token={TOKEN}") as driver:

        def said() -> str:
            return until(
                lambda: driver.execute_script("const p = document.getElementById('said'); return p?.textContent")
            )

        until(lambda: driver.find_element("css selector", ".live").text == "live")
        labels = [one.text for one in driver.find_elements("css selector", "header button")]
        assert labels == ["stop", "cancel", "pause", "resume", "retry failed", "enqueue …", "edit …"]
        pressed(driver, "header", "pause")
        until(lambda: said() == "pause the sweep: done")
        pressed(driver, "header", "retry failed")
        until(lambda: said() == "retry the sweep: no <b>retry</b> now")
        assert driver.find_element("id", "said").get_attribute("class") == "wrong"
        driver.find_element("id", "said").click()
        assert not driver.find_element("id", "said").is_displayed()
        pressed(driver, "header", "cancel")
        driver.switch_to.alert.dismiss()
        pressed(driver, "header", "edit …")
        boxes = driver.find_elements("css selector", "dialog input")
        boxes[0].send_keys("0\n")
        until(lambda: driver.find_element("css selector", "dialog .wrong").text == "no <b>edit</b> now")
        boxes[0].clear()
        boxes[0].send_keys("+5\n")
        until(lambda: said() == "edit: done")
        assert not driver.find_elements("tag name", "dialog")

        driver.find_element("css selector", '.trials tr[data-trial="1"]').click()
        driver.execute_script("window.sweepPage.experiments[0].select([4], true)")
        kept = driver.find_element("css selector", "#chosen .tools")
        trial = begin(made, 10, at=20.0)
        made.report(trial, {"loss": 0.5}, at=21.0)
        made.commit()
        until(lambda: driver.find_elements("css selector", '.trials tr[data-trial="10"]'))
        assert kept.is_displayed()  # what is sent does not take a button away that is being pressed
        pressed(driver, "#chosen", "stop")
        assert driver.switch_to.alert.text == "stop trial 00001, 00004?"
        driver.switch_to.alert.accept()
        until(lambda: said() == "stop trial 00001, 00004: done")
        pressed(driver, "#chosen", "enqueue …")
        until(lambda: driver.find_elements("css selector", "dialog input"))
        box = driver.find_element("css selector", "dialog input")
        assert box.get_attribute("value") == "lr=0.5 act=relu"
        box.send_keys(" x=1\n")
        until(lambda: said() == "enqueue: done")
        resize(driver, 400)
        until(lambda: driver.execute_script("return document.documentElement.scrollWidth") <= 400)
        refused = [error for error in console_errors(driver) if "/ask - Failed to load resource" not in error]
        assert refused == []
    edits = [{"verb": "edit", "typed": {"trials": count, "time": "", "concurrency": ""}} for count in ("0", "+5")]
    assert asked == [
        *({"verb": "pause"}, {"verb": "retry"}, *edits),
        *({"verb": "stop", "trials": [1, 4]}, {"verb": "config", "trials": [1, 4]}),
        {"verb": "enqueue", "typed": {"config": "lr=0.5 act=relu x=1"}},
    ]


def test_a_file_and_a_page_that_only_reads_have_no_buttons(driver: Any, tmp_path: Path) -> None:
    heads = "return document.querySelectorAll('header button').length"
    assert driver.execute_script(heads) == 0
    root = shown_experiment(tmp_path).root
    with served(root) as page, open_page(f"http://127.0.0.1:{page.port}/?token={TOKEN}") as other:
        until(lambda: other.find_element("css selector", ".live").text == "live")
        assert other.execute_script(heads) == 0
        other.find_element("css selector", '.trials tr[data-trial="1"]').click()
        labels = [one.text for one in other.find_elements("css selector", "#chosen button")]
        assert labels == ["to the table", "clear selection"]
