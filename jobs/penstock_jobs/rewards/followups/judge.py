"""The eight labels of a follow-up.

| label | the user |
|---|---|
| moves_on | accepts, praises, commits, or goes to the next thing |
| refines | wishes something more or different, without saying that what was done is wrong |
| corrects | says that the agent did something else than was asked, and what it should be |
| reports_failure | shows or tells that it does not work: a stack trace, a failing test, a bug |
| reverts | wants the agent's work undone, or says that they undid it |
| complains | is displeased with the agent, with nothing that it could act upon; sarcasm too |
| asks | wants to know something about the work |
| abandons | stops: no longer needed, given up, or done by hand |

A message that does two things has the label of the one that says most about the work before it:
praise and then a correction is corrects, a question that is a reproach is complains, and a new
task that tells of a failure elsewhere is moves_on."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol, get_args

import msgspec

Label = Literal[
    "moves_on", "refines", "corrects", "reports_failure", "reverts", "complains", "asks",
    "abandons",
]  # fmt: skip
LABELS: tuple[Label, ...] = get_args(Label)

#: The labels that say that the agent's work was not what the user wanted. A user who stops may
#: have got what they wanted, or may not: abandons is not among them.
DISSATISFIED: frozenset[Label] = frozenset({"corrects", "reports_failure", "reverts", "complains"})
#: Why a follow-up has no label: the budget of the run was used up, the judge could not be reached,
#: or its answer could not be read.
Unjudged = Literal["budget", "unreachable", "unreadable_answer"]
Tests = Literal["passed", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A judge sees the user's words, and what the agent did just before."""

    text: str
    #: The agent's closing words.
    agent: str = ""
    #: What the user had written before that.
    previous: str = ""
    edited: bool = False
    #: How the last tests of the turn ended; None when there were none.
    tests: Tests | None = None


Chance = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Judgement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    label: Label
    #: The probability of the label, as the judge sees it.
    confidence: Chance
    #: The probability that the label is one of DISSATISFIED.
    dissatisfied: Chance


class Judge(Protocol):
    """Labels messages. The answers come in the order of the messages, one for each."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str:
        """Changes whenever the same message might be judged otherwise: part of the digest of a
        reward definition."""
        ...

    def judge(self, messages: Sequence[Message]) -> Sequence[Judgement | Unjudged]:
        """Never raises for a message that could not be judged: it says why instead."""
        ...
