"""In which states a checkpoint can be, and along which edges it moves."""

from typing import Literal, get_args

import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.errors import StateRefused
from penstock.checkpoints.tables import checkpoint, checkpoint_move
from penstock.database.engine import now_us

State = Literal["registered", "serving", "retired", "rolled_back", "withdrawn"]
STATES: tuple[State, ...] = get_args(State)

#: From a state to those that may follow it. Who is withdrawn stays withdrawn; what serves has to be
#: taken from its channels first.
EDGES: dict[State, frozenset[State]] = {
    "registered": frozenset({"serving", "withdrawn"}),
    "serving": frozenset({"retired", "rolled_back"}),
    "retired": frozenset({"serving", "withdrawn"}),
    "rolled_back": frozenset({"serving", "withdrawn"}),
    "withdrawn": frozenset(),
}

_WHY = {
    "withdrawn": "who is withdrawn stays so; register the files under another name",
    "serving": "a channel is at it; promote another one or roll back first",
}


def check_edge(name: str, state: State, wanted: State) -> None:
    """Raises StateRefused."""
    if wanted not in EDGES[state]:
        why = _WHY.get(state, f"from there it becomes {' or '.join(sorted(EDGES[state]))}")
        raise StateRefused(name=name, state=state, wanted=wanted, why=why)


def move(
    connection: Connection,
    place: tuple[str, str],
    states: tuple[State, State],
    told: tuple[str, str],
) -> None:
    """Move a checkpoint (tenant, name) from one state to the next; (actor, reason) say who and why.
    The caller has locked its row. Raises StateRefused."""
    (tenant, name), (state, wanted) = place, states
    check_edge(name, state, wanted)
    connection.execute(
        sa.update(checkpoint)
        .where(checkpoint.c.tenant == tenant, checkpoint.c.name == name)
        .values(state=wanted)
    )
    note_move(connection, place, (state, wanted), told)


def note_move(
    connection: Connection,
    place: tuple[str, str],
    states: tuple[State | None, State],
    told: tuple[str, str],
) -> None:
    """Keep as evidence that it moved, or that it was registered."""
    connection.execute(
        sa.insert(checkpoint_move).values(
            tenant=place[0],
            checkpoint=place[1],
            from_state=states[0],
            to_state=states[1],
            actor=told[0],
            reason=told[1],
            at=now_us(),
        )
    )
