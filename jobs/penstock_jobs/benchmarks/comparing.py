"""Two checkpoints at one suite, task by task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from penstock.checkpoints.attempt import AttemptScope
from penstock.checkpoints.scores import attempts_of, versions_tried
from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.gate.statistics import compare

#: On each side: 95 % of certainty.
_ALPHA = 0.025


@dataclass(frozen=True)
class TaskPair:
    task: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        return self.after - self.before


@dataclass(frozen=True)
class Compared:
    suite: str
    version: str
    before: str
    after: str
    tasks: tuple[TaskPair, ...]
    #: Tasks that only one has a score of.
    left_out: tuple[str, ...]
    before_mean: float | None = None
    after_mean: float | None = None
    #: After minus before, with an interval; None for fewer than two tasks.
    difference: float | None = None
    lower: float | None = None
    upper: float | None = None


def compare_checkpoints(
    database: Database, tenant: str, suite: str, before: str, after: str
) -> Compared:
    """At the newest version that both were tried at. Raises InvalidInput where there is none."""
    known = set(versions_tried(database, tenant, suite, before))
    both = [one for one in versions_tried(database, tenant, suite, after) if one in known]
    if not both:
        why = f"there is no version of {suite} that {before} and {after} were both tried at"
        raise InvalidInput(what="The comparison", why=why)
    one, other = (
        scores_of(database, AttemptScope(tenant, suite, both[-1], name)) for name in (before, after)
    )
    return _compared(Compared(suite, both[-1], before, after, (), ()), one, other)


def scores_of(database: Database, place: AttemptScope) -> dict[str, list[float]]:
    """By task; errors are no scores."""
    found: dict[str, list[float]] = {}
    for kept in attempts_of(database, place):
        if kept.result.score is not None:
            found.setdefault(kept.result.task, []).append(kept.result.score)
    return found


def _compared(
    who: Compared, before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]]
) -> Compared:
    pairs = tuple(
        TaskPair(task, fmean(before[task]), fmean(after[task]))
        for task in sorted(before.keys() & after.keys())
    )
    left_out = tuple(sorted(before.keys() ^ after.keys()))
    facts = (who.suite, who.version, who.before, who.after, pairs, left_out)
    if len(pairs) < 2:
        means = (pairs[0].before, pairs[0].after) if pairs else (None, None)
        return Compared(*facts, *means)
    found = compare(after, before, margin=0.0, alpha=_ALPHA)
    return Compared(
        *facts,
        before_mean=found.incumbent_mean,
        after_mean=found.candidate_mean,
        difference=found.difference,
        lower=found.lower,
        upper=found.upper,
    )
