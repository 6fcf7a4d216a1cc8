"""What can be asked of live sessions: each metric's name, where it comes from, and on which scale
it is compared.

A share lies between known bounds and is compared as it is; its margin is a difference. What has a
heavy tail (tokens, seconds) is compared by its logarithm; its margin is a ratio, 0.1 for 10 %.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from penstock.database.engine import Database
from penstock.errors import InvalidInput
from penstock.gate.policy import LiveRequirement
from penstock.toml_document import unknown
from penstock_jobs.rewards.definition import DEFAULT, parse_definition
from penstock_jobs.rewards.progress import definition_known_as
from penstock_jobs.rewards.rates import RATES

Source = Literal["reward", "session", "any", "failed_calls", "call", "rate"]
#: The reward that a definition makes of all its others.
WHOLE = "reward"


@dataclass(frozen=True)
class Scale:
    """`bounds` are the least and the greatest value that there can be, None where nobody knows.
    With a `floor` it is the logarithm that is compared, and what is less counts as the floor."""

    bounds: tuple[float, float] | None
    floor: float | None = None

    @property
    def is_ratio(self) -> bool:
        return self.floor is not None


_AMOUNT = Scale(None, 1.0)
_UNKNOWN = Scale(None)
_SHARE = Scale((0.0, 1.0))
#: Of what is only ever held against a session.
_MINUS = Scale((-1.0, 0.0))
#: Of a session's own columns.
COLUMNS: Mapping[str, tuple[Source, Scale]] = {
    "completion_tokens": ("session", _AMOUNT),
    "prompt_tokens": ("session", _AMOUNT),
    "duration_s": ("session", _AMOUNT),
    "model_calls": ("session", _AMOUNT),
    "tool_calls": ("session", _AMOUNT),
    "user_messages": ("session", _AMOUNT),
    # Whether there was any.
    "errors": ("any", _SHARE),
    "feedback_negative": ("any", _SHARE),
    "feedback_positive": ("any", _SHARE),
    "interrupts": ("any", _SHARE),
    # Of all its tool calls.
    "failed_tool_calls": ("failed_calls", _SHARE),
    # The mean of its model calls.
    "latency_ms": ("call", _AMOUNT),
    "ttft_ms": ("call", _AMOUNT),
}
#: Of rewards; those that are not here may have any value.
_REWARDS = {
    **dict.fromkeys(
        (
            "asked_instead", "edit_no_revert", "edit_persistence", "four_gram_presence",
            "four_gram_range", "line_survival", "self_rework", "tests_passing",
        ),
        _SHARE,
    ),
    **dict.fromkeys(
        (
            "dissatisfied_by_llm", "dissatisfied_follow_up", "invalid_tool_calls",
            "only_terminal", "open_todos", "reasoning_in_comments",
        ),
        _MINUS,
    ),
    "explicit_feedback": Scale((-1.0, 1.0)),
    "latency": Scale(None, 0.1),
}  # fmt: skip


@dataclass(frozen=True)
class Metric:
    """A live metric that can be measured."""

    name: str
    source: Source
    scale: Scale
    #: The version of the definition, for rewards and for rates of outcomes.
    version: str | None = None
    horizon_s: int | None = None


def find_metric(database: Database, wanted: LiveRequirement) -> Metric:
    """A reward where the definition has one of that name, else a column, else a rate. Raises
    InvalidInput where nothing has that name, or the definition has not run."""
    name = wanted.metric
    if wanted.definition is None and name in COLUMNS:
        if wanted.horizon_s is not None:
            raise InvalidInput(what=f"The live metric {name!r}", why="only rewards have a horizon")
        return Metric(name, *COLUMNS[name])
    known = definition_known_as(database, wanted.definition or DEFAULT)
    definition = parse_definition(known.text, known.name)
    if name == WHOLE:
        return Metric(name, "reward", Scale(definition.clip), known.version)
    terms = {term.reward.name: term for term in definition.terms}
    if name in terms:
        horizon_s = terms[name].horizon_s if wanted.horizon_s is None else wanted.horizon_s
        _check_horizon(name, horizon_s, terms[name].parameters)
        return Metric(name, "reward", _REWARDS.get(name, _UNKNOWN), known.version, horizon_s)
    if name in RATES:
        return Metric(name, "rate", _SHARE, known.version)
    why = unknown(name, [WHOLE, *terms, *RATES, *COLUMNS])
    raise InvalidInput(what=f"The live metric {name!r}", why=why)


def _check_horizon(name: str, horizon_s: int | None, parameters: object) -> None:
    """Of one that is not computed nobody would ever know anything."""
    computed = getattr(parameters, "horizons_s", None)
    if computed is None and horizon_s is not None:
        raise InvalidInput(what=f"The live metric {name!r}", why="it has no horizons")
    if computed is not None and horizon_s not in computed:
        at = ", ".join(str(one) for one in computed)
        why = f"horizon_s is {horizon_s}, and the definition computes {at}"
        raise InvalidInput(what=f"The live metric {name!r}", why=why)
