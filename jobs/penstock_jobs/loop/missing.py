"""Which attempts are missing, so that the gate has enough that are not too old: pure.

What is too old by the policy's `max_age` stays what it is, and the same attempt is not made twice.
Others are made beside it, under the next numbers. Age alone says which, never a score, so that
nobody is given a second chance for having been unlucky.
"""

from collections.abc import Collection, Sequence

from penstock.checkpoints.attempt import RecordedAttempt
from penstock_jobs.benchmarks.running import Wanted

#: Of `max_age`: what is older now will be too old before long, and the gate is asked when the other
#: checkpoint's attempts are made too.
_SHARE_OF_AGE = 0.9
_SECOND_US = 1_000_000


def oldest_us(max_age_s: int | None, now_us: int) -> int | None:
    """What was scored before then is too old. None: nothing ever is."""
    if max_age_s is None:
        return None
    return now_us - round(_SHARE_OF_AGE * max_age_s * _SECOND_US)


def missing(
    kept: Sequence[RecordedAttempt], tasks: Collection[str], attempts: int, oldest: int | None
) -> list[Wanted]:
    """Those come first whose tasks have the fewest."""
    numbers: dict[str, set[int]] = {task: set() for task in tasks}
    fresh = dict.fromkeys(tasks, 0)
    for one in kept:
        if one.result.task in numbers:
            numbers[one.result.task].add(one.result.attempt)
            fresh[one.result.task] += oldest is None or one.scored_at >= oldest
    found = []
    for count in range(attempts):
        for task in tasks:
            if fresh[task] <= count:
                number = next(n for n in range(len(numbers[task]) + 1) if n not in numbers[task])
                numbers[task].add(number)
                found.append(Wanted(number, task))
    return found
