"""Labelled messages in twenty languages, beside the examples of the package. The file decides the
side, whatever a message says:

- `situations.jsonl`, for training: what misleads a judge. Pasted logs that prove success, failing
  words that are the subject, "no" from a satisfied user, praise before a correction;
- `findings.jsonl`, for training: people who tell what they saw, without praise or blame;
- `brief.jsonl`, for training: a word or two;
- `contrasts.jsonl`, for training: both again in other words. It was the held-out set of an earlier
  model; since its errors were looked at, it is one no more;
- `spoken.jsonl`, for training: thousands of short ones of all labels, many of them next requests;
- `everyday.jsonl`, held out: what people type between two tasks. Its author wrote `spoken.jsonl`
  afterwards, and looked at the judge's figures on it, never at its answers, before and after;
- `unseen.jsonl`, held out. It was written when features and word lists were fixed, and nothing was
  changed because of it: whoever changes them with it in mind has to write another.

Opening requests with their kinds: `requests.jsonl` for training, `unseen_requests.jsonl` held out;
both have one author."""

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

from penstock_jobs.rewards.followups.judge import Example, Message
from penstock_jobs.rewards.followups.request_kinds import Kind

_FOLDER = Path(__file__).parent / "rewards" / "followups" / "messages"
TRAINING = ("situations", "findings", "contrasts", "brief")
#: For training too; a judge learns it in parts.
SPOKEN = "spoken"
EVERYDAY, HELD_OUT = "everyday", "unseen"
HELD_OUT_REQUESTS = "unseen_requests"


class OpeningRequest(NamedTuple):
    kind: Kind
    language: str
    text: str


@cache
def labelled_messages(name: str) -> tuple[Example, ...]:
    examples = []
    for line in (_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        label, language = row.pop("label"), row.pop("language")
        examples.append(Example(Message(**row), label, language))
    return tuple(examples)


@cache
def requests(name: str = "requests") -> tuple[OpeningRequest, ...]:
    lines = (_FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(OpeningRequest(**json.loads(line)) for line in lines)
