"""What a checkpoint is: a model version, the state it is in, and the states that may follow."""

from dataclasses import dataclass
from typing import Literal, get_args

from penstock.checkpoints.digests import FilesCheck
from penstock.checkpoints.errors import StateRefused

Form = Literal["whole", "delta"]
State = Literal["registered", "serving", "retired", "rolled_back", "withdrawn"]
STATES: tuple[State, ...] = get_args(State)

#: From a state to those that may follow it.
EDGES: dict[State, frozenset[State]] = {
    "registered": frozenset({"serving", "withdrawn"}),
    "serving": frozenset({"retired", "rolled_back"}),
    "retired": frozenset({"serving", "withdrawn"}),
    "rolled_back": frozenset({"serving", "withdrawn"}),
    "withdrawn": frozenset(),
}

_REASONS = {
    "withdrawn": "a withdrawn checkpoint stays so; register the files under another name",
    "serving": "a channel points at it; promote another one or roll back first",
}


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model version. `form` says whether its files are all of it, or what differs from its
    parent."""

    tenant: str
    name: str
    digest: str
    uri: str
    form: Form
    parent: str | None
    state: State
    #: Whether somebody compared its files with the digest.
    checked: FilesCheck
    bytes: int | None
    note: str
    registered_by: str
    registered_at: int
    #: The shards that it was trained on, beyond those of its parents.
    shards: tuple[str, ...] = ()


def check_edge(name: str, state: State, next_state: State) -> None:
    """Raises StateRefused where a checkpoint cannot move from one state to the other."""
    if next_state not in EDGES[state]:
        why = _REASONS.get(state, f"from there it becomes {' or '.join(sorted(EDGES[state]))}")
        raise StateRefused(name=name, state=state, wanted=next_state, why=why)
