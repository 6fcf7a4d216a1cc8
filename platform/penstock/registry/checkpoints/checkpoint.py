"""A checkpoint: a model version, its states, and the checks of names, digests and reasons."""

from dataclasses import dataclass
from typing import Literal, get_args

import msgspec

from penstock.core.errors import InvalidInput, PenstockError
from penstock.core.files import DIGEST_PREFIX
from penstock.core.notebook import NotebookRecord

Form = Literal["whole", "delta"]
#: Whether the files of a checkpoint were compared with its digest.
FilesCheck = Literal["verified", "unreachable", "not_looked"]
State = Literal["registered", "serving", "retired", "rolled_back", "withdrawn"]
STATES: tuple[State, ...] = get_args(State)
NAME_CHARS_MAX = 128
TEXT_CHARS_MAX = 4_000

EDGES: dict[State, frozenset[State]] = {
    "registered": frozenset({"serving", "withdrawn"}),
    "serving": frozenset({"retired", "rolled_back"}),
    "retired": frozenset({"serving", "withdrawn"}),
    "rolled_back": frozenset({"serving", "withdrawn"}),
    "withdrawn": frozenset(),
}

_REASONS = {
    "withdrawn": "withdrawing is final; register the files under another name",
    "serving": "a channel points at it; promote another one or roll back first",
}


@dataclass(frozen=True, kw_only=True)
class Checkpoint(NotebookRecord):
    """`shards` does not include the shards of its parents."""

    name: str
    digest: str
    uri: str
    form: Form
    parent: str | None
    state: State = "registered"
    checked: FilesCheck = "not_looked"
    bytes: int | None = None
    note: str
    registered_by: str
    registered_at: str = ""
    shards: tuple[str, ...] = ()
    tenant: str


@dataclass(frozen=True)
class StateMove:
    """A change of state. The first one has no former state."""

    from_state: str | None
    to_state: str
    actor: str
    reason: str
    at: str


class Learner(msgspec.Struct, frozen=True):
    """A checkpoint that was trained on a shard, or inherited it `through` its parent."""

    checkpoint: str
    state: str
    through: str | None


def check_edge(name: str, state: State, next_state: State) -> None:
    if next_state not in EDGES[state]:
        why = _REASONS.get(state, f"from there it becomes {' or '.join(sorted(EDGES[state]))}")
        raise StateRefused(name=name, state=state, wanted=next_state, why=why)


def check_name(what: str, name: str) -> str:
    """Check the name of a checkpoint, a channel or an actor. Raises InvalidInput."""
    if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
        why = (
            f"it must be printable text of at most {NAME_CHARS_MAX} characters, not {name[:200]!r}"
        )
        raise InvalidInput(what=what, why=why)
    if name == "none":  # as in --expect none
        raise InvalidInput(what=f"{what} {name!r}", why="commands use it for no checkpoint")
    if name.startswith(DIGEST_PREFIX):
        raise InvalidInput(what=f"{what} {name!r}", why="only a digest may begin like this")
    return name


def check_channel_name(name: str) -> str:
    """Check a channel's name, which is part of addresses. Raises InvalidInput."""
    check_name("The name of a channel", name)
    if "/" in name or name in (".", ".."):
        why = "it is part of addresses, where it would lead elsewhere"
        raise InvalidInput(what=f"The name of a channel {name!r}", why=why)
    return name


def check_text(what: str, text: str) -> str:
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidInput(what=what, why=f"it is longer than {TEXT_CHARS_MAX} characters")
    if not all(line.isprintable() for line in text.replace("\t", " ").split("\n")):
        raise InvalidInput(what=what, why="it contains unprintable characters")
    return text.strip()


def check_reason(text: str) -> str:
    if reason := check_text("The reason", text):
        return reason
    why = "it is empty; give one with --reason, it is kept with the change"
    raise InvalidInput(what="The reason", why=why)


class CheckpointUnknown(PenstockError, exit_status=2, http_status=404):
    """The checkpoint {name!r} does not exist. `penstock checkpoints list` shows all checkpoints."""


class AttemptConflict(PenstockError, http_status=409):
    """Attempt {attempt} of {checkpoint} at the task {task} of {suite} is already recorded with
    another result or trial, from the run {run}. Nothing was recorded: scores never change. Import
    further attempts under other numbers with --first-attempt."""


class CheckpointConflict(PenstockError, http_status=409):
    """The checkpoint {name} cannot be registered: {why}. Nothing was changed. A name and a digest
    belong to one checkpoint for ever; choose another name."""


class DigestMismatch(PenstockError, exit_status=2, http_status=422):
    """The files at {uri} have the digest {found}, not {digest}. Nothing was registered: they are
    another checkpoint or incomplete."""


class LineageBroken(PenstockError, http_status=409):
    """The checkpoint {name} cannot be assembled: {why}. A delta needs all its parents, down to a
    whole checkpoint."""


class StateRefused(PenstockError, http_status=409):
    """The checkpoint {name} is {state} and cannot become {wanted}: {why}."""
