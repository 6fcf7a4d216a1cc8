"""How a plot looks, and how it is saved: the same bytes for the same numbers."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

#: Told apart by all eyes, and with the styles below also without colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#444444")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
_STYLE: Any = {
    "axes.grid": True,
    "axes.prop_cycle": cycler(color=COLOURS, linestyle=STYLES),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9,
    "grid.alpha": 0.3,
    "grid.linestyle": "-",
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "lines.linewidth": 1.8,
    # The reader's own font draws the text, so that a plot is small and can be searched.
    "svg.fonttype": "none",
    "svg.hashsalt": "penstock",
    "xtick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.major.size": 0,
}
#: With room for a legend beside it.
_PANEL_INCHES = (7.2, 3.0)
_TAG = re.compile(r"<[^>]*>")
_NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d{3,}")


@contextmanager
def panels(
    path: Path, columns: int = 1, rows: int = 1, size: tuple[float, float] = _PANEL_INCHES
) -> Iterator[Sequence[Axes]]:
    """Axes to draw on, row by row; saved as SVG when the block ends well."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure.subplots(rows, columns, squeeze=False).flatten().tolist()
        drawn = StringIO()
        figure.savefig(drawn, format="svg", facecolor="white", metadata={"Date": None})
    path.write_text(_TAG.sub(_with_short_numbers, drawn.getvalue()), encoding="utf-8")


def _with_short_numbers(tag: re.Match[str]) -> str:
    """Hundredths of a point are finer than any screen."""
    return _NUMBER.sub(lambda one: f"{float(one[0]):.2f}".rstrip("0").rstrip("."), tag[0])


def shares(steps: int) -> list[float]:
    """From 0 to 1."""
    return [step / steps for step in range(steps + 1)]


def label(axes: Axes, x: str, y: str, title: str = "") -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    if title:
        axes.set_title(title, fontsize=9)


def legend_beside(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
