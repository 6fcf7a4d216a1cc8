"""What can be asked of keys."""

import msgspec

from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake


class GrantAnswer(msgspec.Struct):
    """What the key of a request is. On the machine of a lake nobody needs one."""

    tenant: str
    actor: str
    admin: bool


class GrantQuestion(Question):
    """Of the key that asks."""


def _show_grant(_lake: Lake, caller: Caller, _question: GrantQuestion) -> GrantAnswer:
    return GrantAnswer(caller.tenant, caller.actor, caller.is_admin)


SHOW_GRANT = Call(
    path="/v1/keys/own",
    question=GrantQuestion,
    answer=GrantAnswer,
    work=_show_grant,
    roles=("ingest", "read", "serve", "train", "promote"),
    summary="What the key of the request is",
)

CALLS = [SHOW_GRANT]
