"""What labels did to the judge's rates: of each checkpoint, and as they came in. Pure."""

from collections.abc import Sequence

import msgspec

from penstock_jobs.rewards.dissatisfaction import Dissatisfaction, dissatisfaction
from penstock_jobs.rewards.followups.labels import StoredLabel
from penstock_jobs.rewards.judged_follow_ups import JudgedFollowUps

#: After how many labels the rate is looked at, beside all of them.
_STEPS = (30, 60, 120, 250, 500, 1_000, 2_000, 5_000)


class LabelStep(msgspec.Struct):
    """The rate of dissatisfied users after so many labels. `low` and `high` hold it with 95 %; they
    and `value` are null while there are too few labels that chance drew."""

    labels: int
    drawn: int
    judged: float
    value: float | None
    low: float | None
    high: float | None


class CheckpointLabels(LabelStep):
    """`checkpoint` is null for sessions of several, or of none. `truth_by` says whose labels count,
    and `later` how many sessions came after the messages that labels were drawn from."""

    checkpoint: str | None
    sessions: int
    truth_by: str
    later: int


def effect_by_checkpoint(
    follow_ups: JudgedFollowUps, labels: Sequence[StoredLabel]
) -> list[CheckpointLabels]:
    groups = follow_ups.by_checkpoint()
    found = dissatisfaction(groups, labels) if groups else {}
    newest = {name: own.column("first_us").max() for name, own in groups.items()}
    order = sorted(found, key=lambda name: (name is None, -newest[name]))
    return [_of_checkpoint(name, found[name]) for name in order]


def effect_by_step(follow_ups: JudgedFollowUps, labels: Sequence[StoredLabel]) -> list[LabelStep]:
    """Over all sessions together."""
    places = follow_ups.numbers_of({label.place for label in labels})
    own = sorted((each for each in labels if each.place in places), key=lambda each: each.at)
    if not own:
        return []
    sizes = [size for size in _STEPS if size < len(own)]
    steps = []
    for size in [*sizes, len(own)]:
        [found] = dissatisfaction({"all": follow_ups}, own[:size]).values()
        steps.append(LabelStep(size, *_figures(found)))
    return steps


def _of_checkpoint(name: str | None, found: Dissatisfaction) -> CheckpointLabels:
    return CheckpointLabels(
        found.rate.labels + found.rate.chosen,
        *_figures(found),
        name,
        len(found.sessions),
        found.truth_by,
        found.later,
    )


def _figures(found: Dissatisfaction) -> tuple[int, float, float | None, float | None, float | None]:
    interval = found.interval()
    value = found.rate.value if interval else None
    low, high = interval or (None, None)
    return found.rate.labels, found.rate.judged, value, low, high
