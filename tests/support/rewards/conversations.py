"""Conversations written by hand, with their requests as a person reads them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from penstock_jobs.rewards.followups.follow_ups import SessionTurn, SessionTurns
from penstock_jobs.rewards.followups.judge import Label
from tests.support.rewards.stories import SECOND

_FILE = Path(__file__).with_name("conversations.txt")
_SAID = re.compile(r"u(\d+) ([\w-]+): (.*)")


@dataclass
class Conversation:
    name: str
    turns: list[SessionTurn] = field(default_factory=list)
    #: By message: its request, and what it says of the work before it.
    requests: list[int] = field(default_factory=list)
    labels: list[Label | None] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    stopped: bool = False

    @property
    def session(self) -> SessionTurns:
        return SessionTurns("s", self.turns, self.stopped)


def conversations() -> Iterator[Conversation]:
    _, *parts = _FILE.read_text(encoding="utf-8").split("\n== ")
    for part in parts:
        name, *lines = part.strip().splitlines()
        told = Conversation(name)
        for line in lines:
            _tell(told, line)
        yield told


def _tell(told: Conversation, line: str) -> None:
    kind, _, rest = line.partition(": ")
    if match := _SAID.fullmatch(line):
        number, label, text = match.groups()
        at = len(told.turns) + 1
        told.turns.append(SessionTurn("s", at, at * 60 * SECOND, text, acted=False))
        told.requests.append(int(number))
        told.labels.append(None if label == "-" else label)  # type: ignore[arg-type]
    elif kind == "verdicts":
        told.verdicts = rest.split()
    elif kind == "x":
        told.stopped = True
    else:
        turn = told.turns[-1]
        turn.acted, turn.agent_text, turn.last_act = True, rest, turn.ts + SECOND
        turn.paths += ["a.py"] if kind == "e" else []
