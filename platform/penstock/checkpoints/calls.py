"""What can be asked of checkpoints."""

from typing import TYPE_CHECKING

import msgspec

from penstock.checkpoints.checkpoint import Checkpoint, Form, State
from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake
from penstock.lake.pages import ListQuestion, Page, page_of
from penstock.terminal.output import facts, time_of

if TYPE_CHECKING:
    from penstock.checkpoints.lineage import StateMove

#: Why calls of checkpoints and channels are refused.
REGISTRY_REFUSALS = {
    400: "The request cannot be used; the detail says why. Nothing was changed.",
    403: "The key has another role.",
    404: "There is no such checkpoint or channel.",
    409: "The registry is in another state than this needs; the detail says in which. Where "
    "another checkpoint was expected, `expected` and `found` name the two. Nothing was changed.",
    422: "The gate does not say PASS, and `verdict` is what it says; or the files have another "
    "digest. Nothing was changed.",
}


def refused_for(*statuses: int) -> dict[int, str]:
    return {status: REGISTRY_REFUSALS[status] for status in (400, 403, *statuses)}


class CheckpointAnswer(msgspec.Struct):
    name: str
    digest: str
    uri: str
    form: str
    parent: str | None
    shards: list[str]
    state: str
    checked: str
    bytes: int | None
    note: str
    registered_by: str
    registered_at: str
    tenant: str = ""


class CheckpointsAnswer(Page):
    """The newest comes last."""

    checkpoints: list[CheckpointAnswer]


class MoveAnswer(msgspec.Struct):
    """A step from one state to the next."""

    from_state: str | None
    to_state: str
    actor: str
    reason: str
    at: str


class CheckpointMoves(CheckpointAnswer, kw_only=True):
    """A checkpoint, and how it came to its state."""

    moves: list[MoveAnswer]


class RegisterQuestion(Question):
    """`look` compares the files with the digest where they are in an artifact root."""

    name: str
    uri: str
    digest: str
    parent: str | None = None
    form: Form = "whole"
    shards: list[str] = []  # noqa: RUF012  # msgspec copies it
    note: str = ""
    look: bool = True


class CheckpointsQuestion(ListQuestion):
    state: State | None = None


class CheckpointQuestion(Question):
    """By its name or its digest."""

    name: str


class WithdrawQuestion(Question):
    name: str
    reason: str


def checkpoint_answer(checkpoint: Checkpoint) -> CheckpointAnswer:
    return msgspec.convert(facts(checkpoint), CheckpointAnswer)


def move_answer(move: "StateMove") -> MoveAnswer:
    return msgspec.convert(facts(move) | {"at": time_of(move.at).isoformat()}, MoveAnswer)


def _register(lake: Lake, caller: Caller, question: RegisterQuestion) -> CheckpointAnswer:
    """On the machine of the lake, where files may lie anywhere: the route looks in artifact roots
    alone."""
    from penstock.checkpoints.registration import register
    from penstock.terminal.long_commands import progress_of_bytes

    fields = msgspec.structs.asdict(question)
    fields["digest"] = question.digest or None
    fields |= {"tenant": caller.tenant, "actor": caller.actor}
    with progress_of_bytes("reading") as progress:
        made = register(lake.database, lake.settings, **fields, progress=progress)
    return checkpoint_answer(made)


def _list(lake: Lake, caller: Caller, question: CheckpointsQuestion) -> CheckpointsAnswer:
    from penstock.checkpoints.registration import list_checkpoints

    known = list_checkpoints(lake.database, caller.tenant, state=question.state)
    page, after = page_of(known, question, lambda checkpoint: checkpoint.name)
    return CheckpointsAnswer([checkpoint_answer(checkpoint) for checkpoint in page], next=after)


def _show(lake: Lake, caller: Caller, question: CheckpointQuestion) -> CheckpointAnswer:
    from penstock.checkpoints.registration import find

    return checkpoint_answer(find(lake.database, caller.tenant, question.name))


def _show_moves(lake: Lake, caller: Caller, question: CheckpointQuestion) -> CheckpointMoves:
    from penstock.checkpoints.lineage import lineage

    line = lineage(lake.database, caller.tenant, question.name)
    document = msgspec.structs.asdict(checkpoint_answer(line.checkpoint))
    return CheckpointMoves(**document, moves=[move_answer(move) for move in line.moves])


def _withdraw(lake: Lake, caller: Caller, question: WithdrawQuestion) -> CheckpointAnswer:
    from penstock.checkpoints.registration import withdraw

    order = {"name": question.name, "reason": question.reason, "actor": caller.actor}
    return checkpoint_answer(withdraw(lake.database, tenant=caller.tenant, **order))


#: Its route is one of its own: see `channels/routes.py`.
REGISTER_CHECKPOINT = Call(
    "POST /v1/checkpoints", _register, ("train", "promote"), "Register a checkpoint"
)
LIST_CHECKPOINTS = Call(
    "GET /v1/checkpoints",
    _list,
    ("read", "promote"),
    "All checkpoints, the newest last",
    refused=refused_for(),
)
SHOW_CHECKPOINT = Call(
    "GET /v1/checkpoints/{name}",
    _show,
    ("read", "serve", "promote"),
    "A checkpoint, by its name or digest",
    refused=refused_for(404),
)
SHOW_MOVES = Call(
    "GET /v1/checkpoints/{name}/moves",
    _show_moves,
    ("read", "promote"),
    "A checkpoint, and how it came to its state",
    refused=refused_for(404, 409),
)
WITHDRAW_CHECKPOINT = Call(
    "POST /v1/checkpoints/{name}/withdraw",
    _withdraw,
    ("promote",),
    "Take a checkpoint out of use for ever",
    noted="checkpoint",
    refused=refused_for(404, 409),
)

CALLS = [LIST_CHECKPOINTS, SHOW_CHECKPOINT, SHOW_MOVES, WITHDRAW_CHECKPOINT]
