"""Which result answers which call of a tool, whatever the order in which they were told."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Asked(NamedTuple):
    """A call of a tool, at the place of its model call among the events."""

    at: int
    nth: int
    id: str
    tool: str


class Answer(NamedTuple):
    at: int
    #: None: the producer gives none, or an empty one.
    id: str | None
    tool: str | None


@dataclass(frozen=True, slots=True)
class Matches:
    #: The place of the result by the place and index of its call.
    of: dict[tuple[int, int], int]
    #: Places of results that no call is known for.
    orphans: frozenset[int]
    #: Places of results of calls that have one already; the first counts.
    repeated: frozenset[int]


def match_results(asked: Sequence[Asked], answers: Iterable[Answer]) -> Matches:
    """A result answers the last open call of its id before it; without one the next after it,
    where a clock was off. One without an id answers the first open call of its tool in the model
    call before it."""
    by_id: defaultdict[str, list[Asked]] = defaultdict(list)
    by_place: defaultdict[int, list[Asked]] = defaultdict(list)
    for one in asked:
        by_id[one.id].append(one)
        by_place[one.at].append(one)
    places = sorted(by_place)
    of: dict[tuple[int, int], int] = {}
    orphans, repeated = set(), set()
    last = 0
    for answer in sorted(answers):
        while last < len(places) and places[last] < answer.at:
            last += 1
        if answer.id is None:
            before = by_place[places[last - 1]] if last else []
            known = [one for one in before if answer.tool in (None, one.tool)]
            chosen = next((one for one in known if (one.at, one.nth) not in of), None)
        else:
            known = by_id.get(answer.id, [])
            chosen = _nearest(known, answer.at, of)
        if chosen is not None:
            of[chosen.at, chosen.nth] = answer.at
        elif answer.id is not None and known:
            repeated.add(answer.at)
        else:
            orphans.add(answer.at)
    return Matches(of, frozenset(orphans), frozenset(repeated))


def _nearest(known: list[Asked], at: int, of: dict[tuple[int, int], int]) -> Asked | None:
    split = bisect_left(known, at, key=_place)
    for position in range(split - 1, -1, -1):
        if known[position][:2] not in of:
            return _first_of_its_place(known, position, of)
    return next((one for one in known[split:] if one[:2] not in of), None)


def _first_of_its_place(known: list[Asked], position: int, of: dict[tuple[int, int], int]) -> Asked:
    """Of parallel calls with one id, the first that is open."""
    found = known[position]
    while position and known[position - 1].at == found.at:
        position -= 1
        if known[position][:2] not in of:
            found = known[position]
    return found


def _place(one: Asked) -> int:
    return one.at
