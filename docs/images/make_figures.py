"""Make plot_*.svg and plot_*.webp, the figures in docs/how-to/plot-a-sweep.md, README and tutorial, and page.webp, a
page of `sweep html`: run this file.

It takes about a minute. Real sweeps are run and recorded, and headless Chromium draws their figures: SVG, or WebP for
those that plotly draws with WebGL. They are transparent, for light pages and dark ones.

python docs/images/make_figures.py            all of them
python docs/images/make_figures.py curves     only what is named
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import shutil
import sys
import tempfile
import urllib.parse
from pathlib import Path
from typing import Any

import plotly
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

import sweep

HERE = Path(__file__).parent
WIDTH = 760
MOST_BYTES = 150_000
ON_DIGITS = ("history", "curves", "parallel", "importance", "slice", "contour", "rungs", "timeline")
ON_WEBGL = ("parallel",)
_DRAW = """
const [figure, options, done] = arguments;
Plotly.newPlot('figure', figure.data, figure.layout, {staticPlot: true})
  .then(() => Plotly.toImage('figure', options)).then(done, problem => done('error ' + problem));
"""


def digits(storage: str) -> sweep.ExperimentAnalysis:
    """Tune the model of examples/torch_digits_asha.py, with more trials than there."""
    sys.path.insert(0, str(HERE.parents[1] / "examples"))
    import torch_digits_asha as example

    return sweep.run(
        example.train,
        name="digits",
        config={
            "lr": sweep.loguniform(1e-5, 1e-1),
            "width": sweep.choice([16, 32, 64, 128, 256]),
            "dropout": sweep.uniform(0.0, 0.6),
            "weight_decay": sweep.loguniform(1e-6, 1e-2),
            "batch_size": sweep.choice([32, 64, 128]),
        },
        num_samples=40,
        metric="accuracy",
        mode="max",
        scheduler=sweep.ASHAScheduler(max_t=example.MAX_EPOCHS, grace_period=1, reduction_factor=3),
        nodes=[sweep.Node(cpus=4)],
        preload=["torch", "sklearn.datasets"],
        storage_path=storage,
        seed=0,
        verbose=0,
    )


def tutorial(storage: str) -> sweep.ExperimentAnalysis:
    """Run what docs/tutorial.md has before it interrupts its sweep, and that sweep."""
    page = (HERE.parent / "tutorial.md").read_text(encoding="utf-8").partition("## Interrupt it")[0]
    names: dict[str, Any] = {"__name__": "tutorial"}
    with contextlib.chdir(storage):
        for block in re.findall(r"^```python\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE):
            exec(block, names)
        analysis: sweep.ExperimentAnalysis = names["tune"]()
    return analysis


def sizes(storage: str) -> sweep.ExperimentAnalysis:
    """Weigh an error against a latency, both computed."""

    def costs(config: dict[str, float]) -> None:
        work = config["width"] * config["depth"]
        sweep.report(error=1 / work + 0.02 * config["noise"], latency_ms=work * config["depth"] / 10)

    return sweep.run(
        costs,
        name="sizes",
        config={"width": sweep.randint(1, 30), "depth": sweep.randint(1, 8), "noise": sweep.uniform(0, 1)},
        num_samples=80,
        metric=["error", "latency_ms"],
        mode=["min", "min"],
        storage_path=storage,
        seed=0,
        verbose=0,
    )


def population(storage: str) -> sweep.ExperimentAnalysis:
    """Let a population find a learning rate that has to fall while it trains."""

    def train(config: dict[str, float]) -> None:
        step, score = 0, 0.0
        checkpoint = sweep.get_checkpoint()
        if checkpoint is not None:
            step, score = json.loads((Path(checkpoint.path) / "state.json").read_text())
        while step < 60:
            step += 1
            ratio = config["lr"] / (0.3 * 0.92**step)
            score += (1 - score) * 0.08 * min(ratio, 1 / ratio) * (1 - abs(config["momentum"] - 0.9))
            with tempfile.TemporaryDirectory() as directory:
                (Path(directory) / "state.json").write_text(json.dumps([step, score]))
                sweep.report(accuracy=score, checkpoint=sweep.Checkpoint.from_directory(directory))

    space = {"lr": sweep.loguniform(1e-3, 1), "momentum": sweep.uniform(0.5, 1)}
    return sweep.run(
        train,
        name="population",
        config=space,
        num_samples=8,
        metric="accuracy",
        mode="max",
        scheduler=sweep.PopulationBasedTraining(
            time_attr="training_iteration", perturbation_interval=8, hyperparam_mutations=space, synch=True
        ),
        nodes=[sweep.Node(cpus=8)],
        storage_path=storage,
        seed=0,
        verbose=0,
    )


def browser() -> webdriver.Chrome:
    """Return a Chromium without a window."""
    options = Options()
    for argument in ("headless=new", "no-sandbox", "enable-unsafe-swiftshader", "force-color-profile=srgb"):
        options.add_argument(f"--{argument}")
    options.add_argument("--hide-scrollbars")
    found = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    found.set_script_timeout(60)
    return found


def page(analysis: sweep.ExperimentAnalysis) -> None:
    """Take a picture of the upper part of an experiment's page, with its best trial selected."""
    chromium = browser()
    try:
        with tempfile.TemporaryDirectory() as directory:
            chromium.get(Path(analysis.to_html(Path(directory) / "page.html")).as_uri())
            size = {"width": 1200, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
            chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            chromium.execute_script(f"window.sweepPage.experiments[0].select([{analysis.best_trial.number}])")
            chromium.execute_script("document.querySelector('[data-part=winner] dl').remove()")  # where it was stored
            chromium.execute_async_script("setTimeout(arguments[0], 3000)")  # until what can be seen is drawn
            picture = {"format": "webp", "quality": 80}
            taken = chromium.execute_cdp_cmd("Page.captureScreenshot", picture)
    finally:
        chromium.quit()
    write(HERE / "page.webp", f"data:image/webp;base64,{taken['data']}")


def pictures(figures: dict[str, Any]) -> None:
    """Draw figures by name into files beside this one."""
    chromium = browser()
    script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    try:
        with tempfile.TemporaryDirectory() as directory:
            page = Path(directory) / "page.html"
            head = f'<meta charset="utf-8"><script src="{script.as_uri()}"></script>'
            page.write_text(f'{head}<div id="figure" style="width:{WIDTH}px">')
            chromium.get(page.as_uri())
            for name, figure in figures.items():
                kind = "webp" if name in ON_WEBGL else "svg"
                size = {
                    "format": kind,
                    "width": WIDTH,
                    "height": figure.layout.height,
                    "scale": 2 if kind == "png" else 1,
                }
                found = chromium.execute_async_script(_DRAW, json.loads(figure.to_json()), size)
                write(HERE / f"plot_{name}.{kind}", found)
    finally:
        chromium.quit()


def write(file: Path, url: str) -> None:
    """Write the picture that a data URL holds; of an SVG without what only needs room."""
    head, _, data = url.partition(",")
    if not head.startswith("data:image/"):
        raise SystemExit(f"{file.name}: {url}")
    if file.suffix == ".webp":
        file.write_bytes(base64.b64decode(data))
    else:
        text = urllib.parse.unquote(data)
        text = re.sub(r"(\d+\.\d\d)\d+", r"\1", text)
        file.write_text(text + "\n", encoding="utf-8")
    print(f"{file.name}: {file.stat().st_size / 1000:.0f} kB")
    if file.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{file.name} has {file.stat().st_size} bytes, of at most {MOST_BYTES}")


def main() -> None:
    wanted = sys.argv[1:] or [*ON_DIGITS, "pareto", "population", "tutorial", "page"]
    figures = {}
    with tempfile.TemporaryDirectory() as storage:
        if set(wanted) & {*ON_DIGITS, "page"}:
            analysis = digits(storage)
            plot = analysis.plot
            if "page" in wanted:
                page(analysis)
            for name in set(wanted) & set(ON_DIGITS):
                figures[name] = plot.contour("lr", "width") if name == "contour" else getattr(plot, name)()
        if "tutorial" in wanted:
            figures["tutorial"] = tutorial(storage).plot.curves()
        if "pareto" in wanted:
            figures["pareto"] = sizes(storage).plot.pareto()
        if "population" in wanted:
            figures["population"] = population(storage).plot.population()
    pictures(figures)


if __name__ == "__main__":
    main()
