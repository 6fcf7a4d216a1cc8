"""What an attempt is: the result of a checkpoint at one task of a suite."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Literal

from penstock.errors import InvalidInput

Status = Literal["scored", "error"]


@dataclass(frozen=True)
class AttemptScope:
    """Whose attempts: of a checkpoint at one version of a suite."""

    tenant: str
    suite: str
    suite_version: str
    checkpoint: str


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A result. With `error` it says nothing about the model, and has no score."""

    task: str
    attempt: int
    score: float | None = None
    error: str | None = None
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None
    steps: int | None = None
    tool_calls: int | None = None
    invalid_tool_calls: int | None = None
    edited: bool | None = None
    asked: bool | None = None
    retries: int = 0

    @property
    def status(self) -> Status:
        return "scored" if self.error is None else "error"


@dataclass(frozen=True)
class RecordedAttempt:
    """An attempt as it is in the database."""

    result: Attempt
    run: str
    scored_at: int


RESULT_FIELDS = tuple(field.name for field in fields(Attempt))
#: The fields of a result as a tuple.
result_values: Callable[[Attempt], tuple[Any, ...]] = attrgetter(*RESULT_FIELDS)


def check_attempt(result: Attempt) -> None:
    """Raises InvalidInput for what no attempt can be."""
    if why := _why_unfit(result):
        what = f"Attempt {result.attempt} at the task {result.task!r}"
        raise InvalidInput(what=what, why=why)


def _why_unfit(result: Attempt) -> str | None:
    if not 0 < len(result.task) <= 255 or not result.task.isprintable():
        return "a task's name is a printable text of at most 255 characters"
    if not 0 <= result.attempt < 2**31:
        return "attempts count from 0"
    if (result.score is None) == (result.error is None):
        return "it has either a score or an error"
    if result.score is not None and not 0 <= result.score <= 1:  # NaN neither
        return f"its score is {result.score}, and scores lie between 0 and 1"
    for name in RESULT_FIELDS[4:]:
        value = getattr(result, name)
        if isinstance(value, (int, float)) and not 0 <= value < 2**63:  # NaN neither
            return f"its {name} is {value}, which nothing can be"
    return None
