"""What every judge of follow-ups promises."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from penstock_jobs.rewards.followups.labels import Label

#: Why a follow-up has no label: the budget of the run was used up, the judge could not be reached,
#: or its answer could not be read.
Unjudged = Literal["budget", "unreachable", "unreadable_answer"]
Tests = Literal["passed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What a judge sees: the user's words, and what the agent did just before."""

    text: str
    #: The agent's closing words.
    agent: str = ""
    #: What the user had written before that.
    previous: str = ""
    #: Whether the agent changed files.
    edited: bool = False
    #: How the last tests of the turn ended; None when there were none.
    tests: Tests | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """One label with its confidence; or, with `unjudged`, none."""

    #: Name and version of the judge.
    judge: str
    label: Label | None
    #: The probability of the label, as the judge sees it.
    confidence: float
    #: The probability that the label is one of DISSATISFIED.
    dissatisfied: float
    unjudged: Unjudged | None = None


class Judge(Protocol):
    """Labels messages. The answers come in the order of the messages, one for each."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str:
        """Changes whenever the same message might be judged otherwise: part of the digest of a
        reward definition."""
        ...

    def judge(self, messages: Sequence[Message]) -> Sequence[Judgement]:
        """Never raises for a message that could not be judged: its judgement says why."""
        ...
