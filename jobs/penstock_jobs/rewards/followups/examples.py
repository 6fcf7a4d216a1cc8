"""The labelled examples, and which of them no judge may learn from.

They were written for this project, one JSON object a line, a file for each label in `examples/`.
Their author had seen most of them when the words of `cues.toml` were chosen, so that the quarter
that is held out of them flatters the local judge. `fresh.jsonl` was written after features, words
and model were fixed, and nothing was changed because of it: its figures are the honest ones. An
edit of `cues.toml` that has it in mind would end that.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from penstock_jobs.rewards.followups.judging import Message
from penstock_jobs.rewards.followups.labels import LABELS, Label

#: Chosen once, before anything was trained, so that each label has about a quarter held out in
#: English and in the other languages. An example never changes sides: its text alone decides.
_SALT = 97
_HELD_OUT_SHARE = 0.25
_FRESH = "fresh"


@dataclass(frozen=True, slots=True)
class Example:
    message: Message
    label: Label
    #: ISO 639-1.
    language: str
    #: Written after the local judge was fixed.
    fresh: bool = False

    @property
    def held_out(self) -> bool:
        """Whether it is kept for evaluation. Nothing may learn from it."""
        if self.fresh:
            return True
        digest = hashlib.sha256(f"{_SALT}:{self.message.text}".encode()).digest()
        return int.from_bytes(digest[:4]) < _HELD_OUT_SHARE * 2**32


@cache
def all_examples() -> tuple[Example, ...]:
    """In a fixed order: by label, and as they stand in the file; the fresh ones at the end."""
    return tuple(one for name in (*LABELS, _FRESH) for one in _read(name))


def train_examples() -> tuple[Example, ...]:
    return tuple(one for one in all_examples() if not one.held_out)


def held_out_examples() -> tuple[Example, ...]:
    """The fresh ones too."""
    return tuple(one for one in all_examples() if one.held_out)


def fresh_examples() -> tuple[Example, ...]:
    return tuple(one for one in all_examples() if one.fresh)


def digest_of(examples: Iterable[Example]) -> str:
    """Changes with any of them."""
    found = hashlib.sha256()
    for one in examples:
        found.update(repr(one).encode())
    return found.hexdigest()


def _read(name: str) -> list[Example]:
    source = files("penstock_jobs.rewards.followups") / "examples" / f"{name}.jsonl"
    lines = source.read_text(encoding="utf-8").splitlines()
    return [_example(json.loads(line), fresh=name == _FRESH) for line in lines]


def _example(row: dict[str, Any], *, fresh: bool) -> Example:
    message = Message(
        text=row["text"],
        agent=row["agent"],
        previous=row.get("previous", ""),
        edited=row["edited"],
        tests=row["tests"],
    )
    return Example(message, row["label"], row["language"], fresh)
