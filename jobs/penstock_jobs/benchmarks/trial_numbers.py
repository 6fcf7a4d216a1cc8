"""The numbers of imported attempts: a trial that is known keeps its number, whatever the import
calls it, and takes no second one. Pure."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.checkpoints.attempts import Attempt, RecordedAttempt, result_values
from penstock_jobs.benchmarks.importers.trials import TrialCollection

#: A task and a number.
Place = tuple[str, int]


@dataclass(frozen=True)
class NumberedAttempts:
    """By their places in the import: the attempts with the numbers that they are kept under, and
    those that are known under another number than the import gives them."""

    attempts: Mapping[Place, Attempt]
    renamed: Sequence[Place]
    #: The run whose results these are, one for one, where nothing but that tells.
    same_as_run: str | None = None
    #: How many errors that run has besides, for trials that only a summary seemed to name.
    needless_errors: int = 0


def number_attempts(
    attempts: Sequence[Attempt], recorded: Sequence[RecordedAttempt], first: int
) -> NumberedAttempts:
    """Number those that are not known from `first` on."""
    numbers, run, needless = _known_numbers(attempts, recorded), None, 0
    if not numbers:
        numbers, run, needless = _numbers_of_run(attempts, recorded)
    trials = {each.result.place: each.result.trial for each in recorded}
    taken: defaultdict[str, set[int]] = defaultdict(set)
    for task, number in trials:
        taken[task].add(number)
    known = dict(numbers)
    held = {(task, number) for (task, _), number in known.items()}
    for attempt in attempts:
        if attempt.place in known:
            continue
        number = attempt.attempt + first
        place = attempt.task, number
        other = attempt.trial and trials.get(place) and trials[place] != attempt.trial
        # Part of the import is known, so what is new in it makes way for what has its number.
        if known and (first or place in held or other):
            number = first or max(taken[attempt.task], default=-1) + 1
            while number in taken[attempt.task]:
                number += 1
        numbers[attempt.place] = number
        taken[attempt.task].add(number)
    kept = {each.place: replace(each, attempt=numbers[each.place]) for each in attempts}
    renamed = [place for place, number in known.items() if number != place[1] + first]
    return NumberedAttempts(kept, renamed, run, needless)


def _known_numbers(
    attempts: Sequence[Attempt], recorded: Sequence[RecordedAttempt]
) -> dict[Place, int]:
    """By their ids, or by content that no two trials share."""
    by_trial = {(each.result.task, each.result.trial): each.result for each in recorded}
    by_content = {
        _content(each.result): each.result for each in recorded if _is_telling(each.result)
    }
    numbers = {}
    for attempt in attempts:
        known = by_trial.get((attempt.task, attempt.trial)) if attempt.trial else None
        if known is None and _is_telling(attempt):
            known = by_content.get(_content(attempt))
            if known is not None and known.trial and attempt.trial:
                known = None  # they say themselves that they are two
        if known is not None:
            numbers[attempt.place] = known.attempt
    return numbers


def _numbers_of_run(
    attempts: Sequence[Attempt], recorded: Sequence[RecordedAttempt]
) -> tuple[dict[Place, int], str | None, int]:
    """The numbers of a run with the very same results, task for task, the run, and how many errors
    it has besides: imports once made some for trials whose names they did not understand."""
    has_ids = any(attempt.trial for attempt in attempts)
    wanted = Counter(map(_content, attempts))
    by_run: defaultdict[str, list[Attempt]] = defaultdict(list)
    for each in recorded:
        by_run[each.run].append(each.result)
    for run, results in by_run.items():
        if has_ids and any(result.trial for result in results):
            continue
        there = Counter(map(_content, results))
        besides = [result for result in results if _content(result) not in wanted]
        is_same = there - Counter(map(_content, besides)) == wanted
        if is_same and all(each.error == TrialCollection.ONLY_SUMMARY for each in besides):
            of_content: defaultdict[tuple[object, ...], list[int]] = defaultdict(list)
            for result in reversed(results):
                of_content[_content(result)].append(result.attempt)
            numbers = {each.place: of_content[_content(each)].pop() for each in attempts}
            return numbers, run, len(besides)
    return {}, None, 0


def _content(attempt: Attempt) -> tuple[object, ...]:
    """All but the number."""
    return result_values(replace(attempt, attempt=0))


def _is_telling(attempt: Attempt) -> bool:
    """Whether no second trial has the same content: durations to a fraction of a second beside
    another measure, or to the millisecond, do not come twice."""
    latency = attempt.latency_s
    if latency is None or latency == int(latency):
        return False
    measures = (attempt.completion_tokens, attempt.prompt_tokens, attempt.cost_usd, attempt.steps)
    return any(measures) or round(latency, 2) != latency
