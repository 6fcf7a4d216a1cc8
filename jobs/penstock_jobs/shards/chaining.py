"""The order of a chain: sessions that one piece of work went through."""

from collections.abc import Iterable
from typing import NamedTuple

from penstock_jobs.shards.messages import Conversation


class Place(NamedTuple):
    conversation: Conversation
    chain_pos: int
    #: The session that it goes on from, where the chain has it.
    parent: str | None


def order_chain(conversations: Iterable[Conversation]) -> list[Place]:
    """As they began, but none before the one that it goes on from. Of a ring, which nobody should
    send, the first begins."""
    waiting = sorted(conversations, key=lambda one: (one.first_us, one.session_id))
    members = {one.session_id for one in waiting}
    placed: dict[str, Place] = {}
    while waiting:
        ready = (one for one in waiting if _parent(one, members) in (None, *placed))
        chosen = next(ready, waiting[0])
        parent = _parent(chosen, members)
        parent = parent if parent in placed else None
        placed[chosen.session_id] = Place(chosen, len(placed), parent)
        waiting.remove(chosen)
    return list(placed.values())


def _parent(one: Conversation, members: set[str]) -> str | None:
    known = one.parent_session in members and one.parent_session != one.session_id
    return one.parent_session if known else None
