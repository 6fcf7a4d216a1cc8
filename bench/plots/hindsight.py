"""Draws verdicts beside what users met, from a lake such as the demo's:

python -m bench.plots.hindsight penstock-demo --definition demo"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from bench.plots.drawing import COLOURS, panels

FILE = Path(__file__).parents[2] / "docs" / "gate" / "hindsight.svg"
#: Online metrics that are drawn, if a pair has them.
_ONLINE_MAX = 3


def main() -> None:
    data, *options = sys.argv[1:]
    asked = ["-m", "penstock", "gate", "hindsight", "--json", "--data", data, *options]
    told = subprocess.run([sys.executable, *asked], capture_output=True, check=True).stdout
    draw(json.loads(told), FILE)


def draw(answer: dict[str, Any], path: Path) -> None:
    pairs = [pair for pair in answer["pairs"] if pair["online"]]
    found = [each for each in answer["metrics"] if each["offline"].endswith(" score")]
    with panels(path, columns=min(len(found), _ONLINE_MAX), size=(3.4, 3.0)) as axes:
        for one, each in zip(axes, found, strict=False):
            _draw_pairs(one, pairs, each["offline"], each["online"])


def _draw_pairs(axes: Axes, pairs: list[dict[str, Any]], offline: str, online: str) -> None:
    for pair in pairs:
        if online in pair["online"] and offline in pair["offline"]:
            x, y = pair["offline"][offline]["gain"], pair["online"][online]
            passed = pair["outcome"] == "PASS"
            axes.errorbar(
                x["value"],
                y["value"],
                xerr=_reach(x),
                yerr=_reach(y),
                fmt="o" if passed else "s",
                color=COLOURS[0] if passed else COLOURS[1],
                elinewidth=0.8,
            )
            axes.annotate(
                pair["candidate"],
                (x["value"], y["value"]),
                (4, 4),
                textcoords="offset points",
                fontsize=7,
            )
    axes.axhline(0, color=COLOURS[5], linewidth=0.8, linestyle="-")
    axes.axvline(0, color=COLOURS[5], linewidth=0.8, linestyle="-")
    axes.set_xlabel(f"gain of {offline}")
    axes.set_ylabel(f"gain of {online}")


def _reach(gain: dict[str, Any]) -> list[list[float]]:
    """The distances to both bounds; none where they are unknown."""
    ends = (gain["lower"], gain["upper"])
    return [[0.0 if end is None else abs(gain["value"] - end)] for end in ends]


if __name__ == "__main__":
    main()
