"""What `make bench` runs: one shape for every measurement."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.figures import Figure, Goal


@dataclass(frozen=True)
class Size:
    """How much is measured. Goals are set for `WHOLE`; less says whether a figure is near."""

    name: str
    share: float
    #: How often contenders take turns.
    rounds: int

    def of(self, whole: int, least: int = 1) -> int:
        """This size's share of a number of the whole."""
        return max(least, round(self.share * whole))


WHOLE = Size("whole", 1.0, 5)
#: About two minutes for all that are part of it, on two quiet cores.
QUICK = Size("quick", 0.05, 3)
#: Of tests: that a measurement runs, and nothing about speed.
TINY = Size("tiny", 0.002, 1)

Run = Callable[[Size, Path], Iterator[Figure]]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """`run` gets a folder of its own. `about` is the prose beside its table on the page."""

    name: str
    title: str
    about: str
    goals: tuple[Goal, ...]
    run: Run
    #: Also at a quick size: those that take a few seconds then.
    quick: bool = True


class NotMeasured(Exception):
    """A measurement needs what this machine does not have."""
