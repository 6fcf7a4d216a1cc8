"""A figure beside what is to be reached."""

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.terminal.output import show_table


@dataclass(frozen=True)
class Figure:
    """`goal` is empty for a figure that is only reported."""

    what: str
    value: str
    goal: str = ""
    reached: bool = True


def at_least(what: str, value: float, goal: float, unit: str = "") -> Figure:
    return Figure(what, f"{value:.2f}{unit}", f"≥ {goal:g}{unit}", value >= goal)


def at_most(what: str, value: float, goal: float, unit: str = "") -> Figure:
    return Figure(what, f"{value:.2f}{unit}", f"≤ {goal:g}{unit}", value <= goal)


def show(figures: Iterable[Figure]) -> bool:
    """Print them; whether all goals were reached."""
    rows = list(figures)
    show_table(
        ["figure", "measured", "goal", ""],
        [[one.what, one.value, one.goal, "" if one.reached else "MISSED"] for one in rows],
    )
    return all(one.reached for one in rows)
