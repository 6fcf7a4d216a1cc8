"""A person labels messages in a terminal, one key for each.

Each answer is stored at once, so that whoever stops goes on later where they were. The texts are
what users and agents wrote: each line of them stands behind a bar, with its control characters as
numbers."""

import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from penstock.lake.lake import Lake
from penstock.terminal.output import say, show_text
from penstock_jobs.rewards.followups.follow_ups import FollowUp
from penstock_jobs.rewards.followups.judge import Message
from penstock_jobs.rewards.followups.labels import (
    UNCLEAR,
    GivenLabel,
    add_label,
    by_people,
    current_labels,
)
from penstock_jobs.rewards.followups.questions import (
    Question,
    QuestionFrame,
    follow_up_at,
    open_questions,
)

#: By key, the label and what the user does.
ANSWERS: dict[str, tuple[GivenLabel, str]] = {
    "m": ("moves_on", "accepts, or goes on to the next thing"),
    "r": ("refines", "wishes something more or different; nothing was wrong"),
    "a": ("asks", "wants to know something"),
    "d": ("abandons", "drops it: no longer needed, given up, or done by hand"),
    "c": ("corrects", "says that it is not what was asked"),
    "f": ("reports_failure", "says that it does not work"),
    "v": ("reverts", "wants it undone, or undid it"),
    "x": ("complains", "is displeased; sarcasm too"),
    "?": (UNCLEAR, "cannot be told"),
}
UNDO, STOP, HELP = "u", "s", "h"
_STOPS = frozenset({STOP, "q", "\x04"})
_KEY_BYTES_MAX = 64
_LINES_MAX = 40
_CHARS_MAX = 4_000
_SHORT_CHARS_MAX = 600


def read_key() -> str:
    """One key from a terminal; from a pipe the first character of a line. At its end STOP."""
    try:
        if sys.stdin.isatty():
            return _pressed_key()
        line = sys.stdin.readline()
    except KeyboardInterrupt:
        return STOP
    return line.strip()[:1] if line else STOP


def _pressed_key() -> str:
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        pressed = os.read(terminal, _KEY_BYTES_MAX).decode(errors="replace")
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    # An arrow comes as several characters, the last of which is a letter: it is no answer.
    return STOP if not pressed else "" if pressed.startswith("\x1b") else pressed[0]


@dataclass
class LabelPrompt:
    lake: Lake
    frame: QuestionFrame
    by: str
    #: How many labels at most.
    count: int
    chosen_share: float
    key: Callable[[], str] = read_key
    answered: list[tuple[Question, Message]] = field(default_factory=list)
    #: Messages that are not there any more.
    gone: int = 0

    def run(self) -> None:
        """Until enough is labelled, nothing is left, or the person stops."""
        show_text(*_help())
        questions = self._questions()
        question = next(questions, None)
        while question is not None and len(self.answered) < self.count:
            follow_up = follow_up_at(self.lake, self.frame.tenant, question.place)
            if follow_up is None:
                self.gone += 1
                question = next(questions, None)
                continue
            self._show(question, follow_up)
            pressed = self._pressed()
            if pressed in _STOPS:
                return
            if pressed == UNDO:
                if self._take_back():
                    questions = self._questions()
                    question = next(questions, None)
                continue
            label, _ = ANSWERS[pressed]
            self._store(question, follow_up.message, label)
            self.answered.append((question, follow_up.message))
            show_text(f"→ {label}")
            question = next(questions, None)

    def _questions(self) -> Iterator[Question]:
        labels = by_people(current_labels(self.lake.database, self.frame.tenant))
        return open_questions(self.frame, labels, self.chosen_share)

    def _pressed(self) -> str:
        while True:
            pressed = self.key()
            known = pressed.lower()
            if known in ANSWERS or known in _STOPS or known == UNDO:
                return known
            show_text(*_help())

    def _take_back(self) -> bool:
        if not self.answered:
            say("There is nothing to undo.")
            return False
        question, message = self.answered.pop()
        self._store(question, message, None)
        say("Taken back.")
        return True

    def _store(self, question: Question, message: Message, label: GivenLabel | None) -> None:
        stored = self.frame.label(question, message, label, self.by, model=False)
        add_label(self.lake.database, self.frame.tenant, stored, self.frame.version)

    def _show(self, question: Question, follow_up: FollowUp) -> None:
        message, place = follow_up.message, question.place
        why = "drawn by chance" if question.drawn else "chosen: it tells much"
        number = len(self.answered) + 1
        facts = ["edited files" if message.edited else "edited nothing"]
        facts += [f"its tests {message.tests}"] if message.tests else []
        lines = [
            "",
            f"{number} of {self.count}, {why}: session {place.session_id!r}, turn {place.turn}",
        ]
        if message.previous:
            lines += ["before, the user said", *_behind_bars(message.previous, _SHORT_CHARS_MAX)]
        lines += [f"the agent {', '.join(facts)}, and said"]
        lines += _behind_bars(message.agent or "(nothing)", _SHORT_CHARS_MAX)
        lines += ["the user says", *_behind_bars(message.text, _CHARS_MAX)]
        show_text(*lines, " ".join(f"{key} {label}" for key, (label, _) in ANSWERS.items()))


def _help() -> list[str]:
    lines = ["What does the message say of the agent's work just before it?"]
    lines += [f"  {key}  {label}: {what}" for key, (label, what) in ANSWERS.items()]
    return [*lines, f"  {UNDO}  undo the last answer    {STOP}  stop; what you answered is kept"]


def _behind_bars(text: str, chars_max: int) -> list[str]:
    """What users say stands before or after what they paste: the middle is left out."""
    if len(text) > chars_max:
        half = chars_max // 2
        text = f"{text[:half]}\n[… {len(text) - 2 * half} characters …]\n{text[-half:]}"
    lines = text.splitlines() or [""]
    if len(lines) > _LINES_MAX:
        half = _LINES_MAX // 2
        left_out = len(lines) - 2 * half
        lines = [*lines[:half], f"[… {left_out} lines …]", *lines[-half:]]
    return [f"  │ {line}" for line in lines]
