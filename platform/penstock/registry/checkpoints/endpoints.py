"""The endpoints of checkpoints."""

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.core.endpoint import Caller, Endpoint, ListRequest, Page, Request, page_of
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.checkpoint import Checkpoint, Form, State, StateMove


class CheckpointsAnswer(Page):
    """A page of checkpoints; the newest comes last."""

    checkpoints: list[Checkpoint]


@dataclass(frozen=True, kw_only=True)
class CheckpointMoves(Checkpoint):
    """A checkpoint with the history of its states."""

    moves: tuple[StateMove, ...]


class RegisterRequest(Request):
    """`look` compares the files with the digest, if they are in an artifact root."""

    name: str
    uri: str
    digest: str
    parent: str | None = None
    form: Form = "whole"
    shards: list[str] = []  # noqa: RUF012  # msgspec copies it
    note: str = ""
    look: bool = True


class CheckpointsRequest(ListRequest):
    state: Annotated[State, Meta(description="Only checkpoints in this state.")] | None = None


_NAME = "The name or digest of a checkpoint."
CheckpointName = Annotated[str, Meta(description=_NAME, extra={"metavar": "CHECKPOINT"})]
Reason = Annotated[str, Meta(description="The reason; kept for ever.")]


class CheckpointRequest(Request):
    name: CheckpointName


class WithdrawRequest(Request):
    name: CheckpointName
    reason: Reason


def _register(lake: Lake, caller: Caller, request: RegisterRequest) -> Checkpoint:
    """Register on the lake's machine, where files may lie anywhere. The route reads only artifact
    roots."""
    from penstock.backends.terminal.output import progress_of_bytes
    from penstock.registry.checkpoints.registration import register

    fields = msgspec.structs.asdict(request)
    fields["digest"] = request.digest or None
    fields |= {"tenant": caller.tenant, "actor": caller.actor}
    with progress_of_bytes("reading") as progress:
        return register(lake.database, lake.settings, **fields, progress=progress)


def _list(lake: Lake, caller: Caller, request: CheckpointsRequest) -> CheckpointsAnswer:
    from penstock.registry.checkpoints.registration import list_checkpoints

    known = list_checkpoints(lake.database, caller.tenant, state=request.state)
    page, after = page_of(known, request, lambda checkpoint: checkpoint.name)
    return CheckpointsAnswer(list(page), next=after)


def _show(lake: Lake, caller: Caller, request: CheckpointRequest) -> Checkpoint:
    from penstock.registry.checkpoints.registration import find

    return find(lake.database, caller.tenant, request.name)


def _show_moves(lake: Lake, caller: Caller, request: CheckpointRequest) -> CheckpointMoves:
    from penstock.registry.checkpoints.lineage import lineage

    line = lineage(lake.database, caller.tenant, request.name)
    return CheckpointMoves(**vars(line.checkpoint), moves=line.moves)


def _withdraw(lake: Lake, caller: Caller, request: WithdrawRequest) -> Checkpoint:
    from penstock.registry.checkpoints.registration import withdraw

    order = {"name": request.name, "reason": request.reason, "actor": caller.actor}
    return withdraw(lake.database, tenant=caller.tenant, **order)


#: It has its own route: see `channels/routes.py`.
REGISTER_CHECKPOINT = Endpoint(
    "POST /v1/checkpoints", _register, ("train", "promote"), "Register a checkpoint"
)
LIST_CHECKPOINTS = Endpoint(
    "GET /v1/checkpoints", _list, ("read", "promote"), "All checkpoints, the newest last"
)
SHOW_CHECKPOINT = Endpoint(
    "GET /v1/checkpoints/{name}",
    _show,
    ("read", "serve", "promote"),
    "A checkpoint, by its name or digest",
)
SHOW_MOVES = Endpoint(
    "GET /v1/checkpoints/{name}/moves",
    _show_moves,
    ("read", "promote"),
    "A checkpoint, with the history of its states",
    refused={409: None},
)
WITHDRAW_CHECKPOINT = Endpoint(
    "POST /v1/checkpoints/{name}/withdraw",
    _withdraw,
    ("promote",),
    "Take a checkpoint out of use for ever",
    audited_as="checkpoint",
    refused={409: None},
)

ENDPOINTS: Endpoints = [LIST_CHECKPOINTS, SHOW_CHECKPOINT, SHOW_MOVES, WITHDRAW_CHECKPOINT]
