"""What a shard will be made of: selected sessions, without those that are excluded, cut in slices.

Everything here is decided for whole sessions, before any token is read, and counted. The plan
hangs on the recipe and the snap alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.definition import Definition
from penstock_jobs.shards.advantages import advantages
from penstock_jobs.shards.errors import NothingToBuild
from penstock_jobs.shards.exclusion.copies import copied, only_copies
from penstock_jobs.shards.exclusion.decision import Outside, excluded
from penstock_jobs.shards.exclusion.reasons import Found, with_chains
from penstock_jobs.shards.recipe import Recipe
from penstock_jobs.shards.selection import Known, read_answer, select, wanted_by
from penstock_jobs.shards.session_events import event_name
from penstock_jobs.shards.session_facts import Asking, Facts, Links
from penstock_jobs.shards.split import split

#: A slice is what one task reads and writes: whole groups, of about so many events.
SLICE_EVENTS = 20_000


class LeftOut(NamedTuple):
    """A session that the query named and the shard does not hold."""

    session_id: str
    reason: str
    #: What a person has to know to understand it.
    detail: str | None = None


@dataclass(frozen=True)
class Slice:
    """Rows of `chosen` of whole groups, and the sessions that have to be read for them."""

    number: int
    chosen: pa.Table
    sessions: tuple[str, ...]


@dataclass(frozen=True)
class ShardPlan:
    #: CHOSEN_ROWS with `advantage` and `split`, in the order of a shard.
    chosen: pa.Table
    facts: Facts
    #: By session: ids of events that another session told first.
    copies: Mapping[str, frozenset[str]]
    #: Of the sessions that the query named.
    left_out: Sequence[LeftOut]
    asked: int
    definition: Definition | None
    outside: Outside

    def slices(self) -> Iterator[Slice]:
        """The same whoever asks: by groups and their events."""
        groups = self.chosen["group_id"].to_pylist()
        sessions = self.chosen["session_id"].to_pylist()
        start = number = events = 0
        for at, session in enumerate(sessions):
            begins = at > start and groups[at] != groups[at - 1]
            if begins and events >= SLICE_EVENTS:
                yield self._slice(number, start, at)
                start, number, events = at, number + 1, 0
            events += self.facts.of(session)["events"]
        yield self._slice(number, start, len(sessions))

    def _slice(self, number: int, start: int, end: int) -> Slice:
        rows = self.chosen.slice(start, end - start)
        wide = self.facts.links.closed(rows["session_id"].to_pylist())
        return Slice(number, rows, tuple(sorted(wide)))


def plan_shard(asking: Asking, recipe: Recipe, outside: Outside) -> ShardPlan:
    """Raises InvalidInput, RewardsPending, NothingToBuild, what the query raises."""
    asked = read_answer(asking.query(recipe.query), recipe.advantage.kind)
    links = asking.links()
    wide = links.with_origins(asked["session_id"].to_pylist())
    facts = Facts(asking.facts(wide), links)
    wanted = wanted_by(recipe)
    definition = wanted.definition if wanted else None
    selection = select(asked, _known(asking, definition, facts), wanted)
    chosen = selection.chosen
    copies = _copies(asking, chosen, links)
    found = excluded(recipe, chosen, facts, with_chains(copies.found, facts.chains), outside)
    left = chosen.filter(pc.invert(pc.is_in(chosen["session_id"], pa.array(found, pa.string()))))
    left = left.append_column("split", pa.array(_sides(left, recipe, facts), pa.string()))
    kept = left
    if recipe.split.keep != "both":
        kept = left.filter(pc.equal(left["split"], recipe.split.keep))
    left_out = [LeftOut(**row) for row in selection.left_out.to_pylist()]
    left_out += [LeftOut(session, *why) for session, why in found.items()]
    if kept is not left:
        other = left.filter(pc.not_equal(left["split"], recipe.split.keep))
        left_out += [LeftOut(one, "other_side") for one in other["session_id"].to_pylist()]
    if not kept.num_rows:
        why = counted(left_out) or "none was named"
        raise NothingToBuild(recipe=recipe.name, asked=asked.num_rows, why=why)
    kept = kept.append_column("advantage", advantages(kept, recipe.advantage.kind))
    return ShardPlan(
        chosen=kept,
        facts=facts,
        copies=copies.by_session,
        left_out=left_out,
        asked=asked.num_rows,
        definition=definition,
        outside=outside,
    )


def counted(left_out: Iterable[LeftOut]) -> str:
    counts = sorted(Counter(one.reason for one in left_out).items())
    return ", ".join(f"{reason} {count}" for reason, count in counts)


def _known(asking: Asking, definition: Definition | None, facts: Facts) -> Known:
    sessions = facts.table()
    if definition is None:
        return Known(sessions)
    ids = sessions["session_id"].to_pylist()
    version = definition.version
    return Known(sessions, asking.outcomes(ids, version), asking.rewards(ids, version))


@dataclass(frozen=True)
class _Copies:
    by_session: Mapping[str, frozenset[str]]
    found: Found


def _copies(asking: Asking, chosen: pa.Table, links: Links) -> _Copies:
    """Where nothing is repeated, nothing is read but keys."""
    named = set(chosen["session_id"].to_pylist())
    parents = {one: links.repeats[one] for one in named if one in links.repeats}
    origins = {links.origin(one) for one in parents}
    repeating = {one for one in named if links.origin(one) in origins} | {
        *parents,
        *parents.values(),
    }
    events = asking.repeated(named | repeating, repeating)
    if not events.num_rows:
        return _Copies({}, {})
    mask = copied(events, parents)
    by_session: dict[str, set[str]] = {}
    for row in events.filter(pa.array(mask)).to_pylist():
        ts_us = round(row["ts"].timestamp() * 1_000_000)
        name = event_name(row["event_id"], row["source"], row["source_key"], ts_us, row["seq"])
        by_session.setdefault(row["session_id"], set()).add(name)
    frozen = {session: frozenset(ids) for session, ids in by_session.items()}
    return _Copies(frozen, only_copies(events, mask))


def _sides(chosen: pa.Table, recipe: Recipe, facts: Facts) -> list[str]:
    sessions = chosen["session_id"].to_pylist()
    by = recipe.split.by
    last = [facts.of(one)[by] for one in sessions] if by in ("user", "repo") else []
    origins = [facts.links.origin(one) for one in sessions]
    keys = [origins, chosen["group_id"].to_pylist(), *([last] if last else [])]
    return split(keys, recipe.split.eval, recipe.seed)
