"""A figure beside what is to be reached."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from penstock.backends.terminal.output import show_table


@dataclass(frozen=True)
class Figure:
    """`goal` is empty for a figure that is only reported."""

    what: str
    value: str
    goal: str = ""
    reached: bool = True


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a figure has to reach, declared before it is measured: one of both bounds."""

    what: str
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""

    def __str__(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:,g}{self.unit}"
        return f"≤ {self.at_most:,g}{self.unit}"

    def is_reached(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def figure(self, value: float, detail: str = "") -> Figure:
        """`detail` says of what, where a measurement has several such figures."""
        what = f"{self.what}, {detail}" if detail else self.what
        return Figure(what, f"{short(value)}{self.unit}", str(self), self.is_reached(value))

    def figure_of_rounds(self, values: Sequence[float], detail: str = "") -> Figure:
        """The median counts, and its spread is told."""
        figure = self.figure(median(values), detail)
        return Figure(figure.what, spread(values, self.unit), figure.goal, figure.reached)


def at_least(what: str, value: float, goal: float, unit: str = "") -> Figure:
    return Goal(what=what, at_least=goal, unit=unit).figure(value)


def at_most(what: str, value: float, goal: float, unit: str = "") -> Figure:
    return Goal(what=what, at_most=goal, unit=unit).figure(value)


def spread(values: Sequence[float], unit: str = "") -> str:
    """The median, and from the least to the most."""
    return f"{short(median(values))}{unit} ({short(min(values))} to {short(max(values))})"


def short(value: float) -> str:
    """As many digits as a busy machine deserves."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.4f}"


def show(figures: Iterable[Figure]) -> bool:
    """Print them; whether all goals were reached."""
    rows = list(figures)
    show_table(
        ["figure", "measured", "goal", ""],
        [[one.what, one.value, one.goal, "" if one.reached else "MISSED"] for one in rows],
    )
    return all(one.reached for one in rows)
