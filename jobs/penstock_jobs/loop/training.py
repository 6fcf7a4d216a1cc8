"""What a trainer is: it is given a shard and a parent, and answers with a checkpoint.

Its twins are in `trainers`: a command, and an address that is asked by HTTP. Both are told the same
facts by the same names, and may answer the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Event
from typing import Protocol

import msgspec

from penstock.checkpoints.digests import check_uri
from penstock.checkpoints.names import check_digest
from penstock.errors import InvalidInput
from penstock_jobs.loop.errors import TrainerAnswerUnfit

#: How much of what a trainer said stands in an error.
TOLD_CHARS_MAX = 2_000


class Made(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer of a trainer."""

    uri: str
    digest: str
    form: str = "whole"
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is to be trained."""

    #: The same for each try with the same inputs, and for no other.
    key: str
    #: Counts tries. Two of one task never have the same number.
    attempt: int
    #: Of this try.
    limit_s: float
    #: What the trainer is told, but for what is about folders of its own.
    facts: Mapping[str, str | int]


class Trainer(Protocol):
    def train(self, task: Task, lost: Event) -> Made:
        """Ends soon after `lost` is set. Raises TrainerFailed, TrainerTooSlow, TrainerAnswerUnfit,
        TrainerUnreachable, TrainerRefused, InvalidInput; StageLost where it is lost."""


def read_answer(content: bytes, where: object) -> Made:
    """Raises TrainerAnswerUnfit."""
    try:
        made = msgspec.json.decode(content, type=Made)
        check_uri(made.uri)
        digest = check_digest(made.digest)
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        raise TrainerAnswerUnfit(path=where, why=error) from error
    except InvalidInput as error:
        raise TrainerAnswerUnfit(path=where, why=str(error).rstrip(".")) from error
    if made.form not in ("whole", "delta"):
        raise TrainerAnswerUnfit(path=where, why=f"form is {made.form!r}, not whole or delta")
    return msgspec.structs.replace(made, digest=digest)
