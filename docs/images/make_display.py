"""Make live_display.svg, the picture of a running sweep in the README: run this file, which takes about half a minute.

A real sweep runs on a terminal of 100 columns, and the picture is a frame that was on it. Its trials sleep in place of
training, and its four GPUs are declared, so that the script runs anywhere.

python docs/images/make_display.py
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import io
import math
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

PICTURE = Path(__file__).with_name("live_display.svg")
NAME = "widths"
COLUMNS, ROWS = 100, 24
AFTER_S = 10.0  # the display is looked at from then on ...
AT_MOST_S = 90.0  # ... until then, for a frame that shows everything
# A gang, a share of a GPU, a trial that waits and why, a failed one, the best of those so far, when it will end.
WANTED = (
    r"running x2 +\d+/27",
    r"(running +[2-9]/27 .*\n.*){3}",
    r"waiting .*gpu=2.*held by",
    r"^failed +\d{5}",
    r"^best ",
    r"stopped early [1-9]",
    r"failed [12]$",
    r"ETA ~\w+",
)
# What is tried first, so that all of this is seen soon: lr and width. TPE proposes the others.
FIRST = (
    *((0.017, 256), (0.0015, 64), (0.25, 64), (0.02, 512)),
    *((0.012, 128), (0.009, 256), (0.04, 128), (0.03, 512)),
    *((0.015, 256), (0.03, 256), (0.011, 128), (0.025, 512)),
)

_REDRAWN = re.compile(r"(?:\x1b\[(?:\d*[ABJK]|\?25[lh])|\x1b[78]|\r)+")  # the cursor moves, lines are erased
_FONTS = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", "Liberation Mono", monospace'


def tune() -> None:
    """Run the sweep that the picture shows."""
    import sweep

    def train(config: dict[str, float]) -> None:
        distance = abs(math.log(config["lr"] / 0.02)) + max(0, math.log2(256 / config["width"]))
        for step in range(1, 28):
            time.sleep(0.4 + 0.08 * distance + config["width"] / 2500)
            if config["lr"] > 0.2 and step == 4:
                raise FloatingPointError("the loss is nan after 500 batches")
            sweep.report(loss=0.04 + 0.1 * distance + 1.5 / step)

    def request(config: dict[str, float]) -> sweep.PlacementGroupFactory:
        if config["width"] == 512:  # two workers, each with a GPU of its own: both are granted, or neither
            return sweep.PlacementGroupFactory([{"CPU": 1, "GPU": 1}] * 2)
        return sweep.PlacementGroupFactory([{"CPU": 1, "GPU": 0.5}])

    sweep.init(num_cpus=8, num_gpus=4)
    sweep.run(
        sweep.with_resources(train, request),
        name=NAME,
        config={"lr": sweep.loguniform(1e-3, 0.3), "width": sweep.choice([64, 128, 256, 512])},
        num_samples=24,
        metric="loss",
        mode="min",
        stop={"training_iteration": 27},
        search_alg=sweep.OptunaSearch(points_to_evaluate=[{"lr": lr, "width": width} for lr, width in FIRST]),
        scheduler=sweep.ASHAScheduler(max_t=27, grace_period=6, reduction_factor=3),
        seed=1,
    )


def frames() -> Iterator[str]:
    """Give what is on the terminal, escape sequences of colours included, each time that it has been redrawn."""
    with tempfile.TemporaryDirectory() as directory:
        terminal, own_end = pty.openpty()
        fcntl.ioctl(own_end, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        environment.pop("NO_COLOR", None)
        process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--tune"],
            stdin=own_end, stdout=own_end, stderr=own_end, cwd=directory, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(own_end)
        begun, written = time.monotonic(), b""
        try:
            while time.monotonic() - begun < AT_MOST_S:
                try:
                    written = (written + os.read(terminal, 65536))[-200_000:]
                except OSError:  # the sweep has ended
                    return
                *_, whole, _ = ["", *_REDRAWN.split(written.decode("utf-8", "replace").replace("\r\n", "\n"))]
                if time.monotonic() - begun > AFTER_S:
                    yield whole
        finally:
            with contextlib.suppress(ProcessLookupError):
                for _ in range(2):  # the second kills
                    process.send_signal(signal.SIGINT)
                    time.sleep(0.5)
            os.close(terminal)
            process.wait(timeout=30)


def draw(frame: str) -> str:
    """Return a frame as an SVG that fetches nothing, in the fonts that its reader has."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(frame.strip("\n")), highlight=False)
    picture = console.export_svg(title="python train.py", unique_id="sweep")
    picture = re.sub(r"@font-face \{.*?\}\n", "", picture, flags=re.DOTALL)
    return picture.replace("Fira Code, monospace", _FONTS)


def main() -> None:
    for frame in frames():
        plain = re.sub(r"\x1b\[[\d;]*m", "", frame)
        if all(re.search(one, plain, flags=re.M) for one in WANTED):
            PICTURE.write_text(draw(frame), encoding="utf-8")
            print(plain)
            return
    raise SystemExit(f"no frame showed all of {WANTED}; the last one was\n{plain}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tune", action="store_true", help="run the sweep on this terminal, without a picture")
    tune() if parser.parse_args().tune else main()
