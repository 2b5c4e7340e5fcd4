"""Print the quality tables of searchers and schedulers: `python benchmarks/quality/run.py [PART ...] [--seeds N]`.

Parts: searching (regret over trials), fidelity (early stopping), bohb, population. All of them take about
three quarters of an hour on two cores; everything is deterministic, so the figures are the same anywhere.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from pathlib import Path

PARTS = ("searching", "fidelity", "bohb", "population")


def main() -> None:
    """Print one table per part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=PARTS, metavar="PART", help=f"one of {', '.join(PARTS)}")
    parser.add_argument("--seeds", type=int, help="fewer seeds than the tasks ask for, for a quick look")
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    for part in given.parts or PARTS:
        began = time.perf_counter()
        lines = importlib.import_module(part).main(given.seeds)
        print(f"## {part} ({time.perf_counter() - began:.0f} s)\n", *lines, "", sep="\n", flush=True)


if __name__ == "__main__":
    main()
