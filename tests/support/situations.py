"""Labelled messages in eighteen languages, written to show what misleads a judge: pasted logs that
prove success, failing words that are the subject, "no" from a satisfied user, praise before a
correction, and their opposites.

The text of a message alone decides its side, by a rule that was fixed before any model saw one.
Models learn from one side. The other is for evaluation: no word list, feature or weight may be
chosen by it."""

import hashlib
import json
from functools import cache
from pathlib import Path

from penstock_jobs.rewards.followups.judge import Example, Message

_FILE = Path(__file__).parents[1] / "rewards" / "followups" / "messages" / "situations.jsonl"
_HELD_OUT_SHARE = 0.55


def is_held_out(text: str) -> bool:
    digest = hashlib.sha256(f"held-out:{text}".encode()).digest()
    return int.from_bytes(digest[:4]) < _HELD_OUT_SHARE * 2**32


@cache
def all_situations() -> tuple[Example, ...]:
    examples = []
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        label, language = row.pop("label"), row.pop("language")
        examples.append(Example(Message(**row), label, language))
    return tuple(examples)


def held_out_situations() -> tuple[Example, ...]:
    return tuple(example for example in all_situations() if is_held_out(example.message.text))


def train_situations() -> tuple[Example, ...]:
    return tuple(example for example in all_situations() if not is_held_out(example.message.text))
