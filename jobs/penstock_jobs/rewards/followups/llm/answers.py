"""What the model is asked, and what counts as an answer."""

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from penstock_jobs.rewards.followups.judging import Message
from penstock_jobs.rewards.followups.labels import LABELS, Label

_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*?)\n\s*```\s*\Z", re.DOTALL)
_FIELDS = {"label", "confidence", "dissatisfied"}


@dataclass(frozen=True, slots=True)
class Answer:
    label: Label
    confidence: float
    dissatisfied: float


@cache
def prompt() -> str:
    source = files("penstock_jobs.rewards.followups.llm") / "prompt.md"
    return source.read_text(encoding="utf-8")


@cache
def prompt_version() -> str:
    return hashlib.sha256(prompt().encode()).hexdigest()[:12]


def asked(message: Message, chars_max: int) -> str:
    """The message as the model sees it: one JSON object, in which no text can end its string."""
    return json.dumps(
        {
            "user_message": _bounded(message.text, chars_max),
            "agent_message": _bounded(message.agent, chars_max // 4),
            "earlier_user_message": _bounded(message.previous, chars_max // 4),
            "agent_edited_files": message.edited,
            "tests": message.tests,
        },
        ensure_ascii=False,
    )


def answer_in(content: object) -> Answer | None:
    """None unless it is one object with exactly the three fields, each in its range."""
    if not isinstance(content, str):
        return None
    fenced = _FENCED.match(content)
    try:
        found = json.loads(fenced[1] if fenced else content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() != _FIELDS or found["label"] not in LABELS:
        return None
    confidence, dissatisfied = _share(found["confidence"]), _share(found["dissatisfied"])
    if confidence is None or dissatisfied is None:
        return None
    return Answer(found["label"], confidence, dissatisfied)


def _share(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        return None
    return float(value)


def _bounded(text: str, chars_max: int) -> str:
    """The beginning and the end: what a user says stands before or after what they paste."""
    if len(text) <= chars_max:
        return text
    head = chars_max * 2 // 3
    return f"{text[:head]}\n[… {len(text) - chars_max} characters …]\n{text[head - chars_max :]}"
