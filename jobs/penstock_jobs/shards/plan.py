"""What a shard will be made of: selected sessions that are not excluded, cut into slices.

All of this is decided for whole sessions, before any token is read, and counted. The plan depends
on the recipe and the snap alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.shards.advantages import advantages
from penstock_jobs.shards.errors import NothingToBuild
from penstock_jobs.shards.exclusion.copies import find_copies
from penstock_jobs.shards.exclusion.decision import ExclusionSources, exclude_sessions
from penstock_jobs.shards.exclusion.reasons import spread_over_chains
from penstock_jobs.shards.recipe import Recipe
from penstock_jobs.shards.selection import KnownSessions, read_answer, select
from penstock_jobs.shards.session_facts import SessionFacts, SnapshotQueries
from penstock_jobs.shards.split import split

#: One task reads and writes a slice: whole groups, of about so many events.
SLICE_EVENTS = 20_000


class LeftOutSession(NamedTuple):
    """A session that the query named and the shard does not hold."""

    session_id: str
    reason: str
    #: What a person needs to understand the reason.
    detail: str | None = None


@dataclass(frozen=True)
class ShardSlice:
    """Rows of `ShardPlan.chosen` of whole groups, and the sessions to read for them."""

    number: int
    chosen: pa.Table
    sessions: tuple[str, ...]


@dataclass(frozen=True)
class ShardPlan:
    #: CHOSEN_ROWS with `advantage` and `split`, in the order of a shard.
    chosen: pa.Table
    facts: SessionFacts
    #: By session: the names of events that another session told first.
    copies: Mapping[str, frozenset[str]]
    left_out: Sequence[LeftOutSession]
    #: How many sessions the query named.
    asked: int

    def slices(self) -> Iterator[ShardSlice]:
        groups = self.chosen["group_id"].to_pylist()
        sessions = self.chosen["session_id"].to_pylist()
        start = number = events = 0
        for at, session in enumerate(sessions):
            begins = at > start and groups[at] != groups[at - 1]
            if begins and events >= SLICE_EVENTS:
                yield self._slice(number, start, at)
                start, number, events = at, number + 1, 0
            events += self.facts.profiles[session].events
        yield self._slice(number, start, len(sessions))

    def _slice(self, number: int, start: int, end: int) -> ShardSlice:
        rows = self.chosen.slice(start, end - start)
        chains = self.facts.links.whole_chains(rows["session_id"].to_pylist())
        return ShardSlice(number, rows, tuple(sorted(chains)))


def plan_shard(queries: SnapshotQueries, recipe: Recipe, sources: ExclusionSources) -> ShardPlan:
    """Raises InvalidInput, RewardsPending, NothingToBuild, and what the query raises."""
    answer = read_answer(queries.query(recipe.query), recipe.advantage.kind)
    links = queries.links()
    facts = queries.facts(links.with_origins(answer["session_id"].to_pylist()), links)
    selection = select(answer, _known(queries, recipe, facts), recipe.target)
    chosen = selection.chosen
    copies = find_copies(queries, chosen["session_id"].to_pylist(), links)
    only_copies = spread_over_chains(copies.exclusions, facts.chains)
    exclusions = exclude_sessions(recipe, chosen, facts, only_copies, sources)
    left_out = [LeftOutSession(**row) for row in selection.left_out.to_pylist()]
    left_out += [LeftOutSession(session, *why) for session, why in exclusions.items()]
    excluded = pc.is_in(chosen["session_id"], pa.array(exclusions, pa.string()))
    kept = chosen.filter(pc.invert(excluded))
    kept = kept.append_column("split", pa.array(_sides(kept, recipe, facts), pa.string()))
    if recipe.split.keep != "both":
        on_side = pc.equal(kept["split"], recipe.split.keep)
        others = kept.filter(pc.invert(on_side))["session_id"].to_pylist()
        left_out += [LeftOutSession(session, "other_side") for session in others]
        kept = kept.filter(on_side)
    if not kept.num_rows:
        why = count_reasons(left_out) or "none was named"
        raise NothingToBuild(recipe=recipe.name, asked=answer.num_rows, why=why)
    kept = kept.append_column("advantage", advantages(kept, recipe.advantage.kind))
    return ShardPlan(kept, facts, copies.by_session, left_out, answer.num_rows)


def count_reasons(left_out: Iterable[LeftOutSession]) -> str:
    counts = sorted(Counter(one.reason for one in left_out).items())
    return ", ".join(f"{reason} {count}" for reason, count in counts)


def _known(queries: SnapshotQueries, recipe: Recipe, facts: SessionFacts) -> KnownSessions:
    sessions = facts.chain_table()
    if recipe.target is None:
        return KnownSessions(sessions)
    version = recipe.target.definition.version
    outcomes = queries.outcomes(facts.chains, version)
    return KnownSessions(sessions, outcomes, queries.rewards(facts.chains, version))


def _sides(chosen: pa.Table, recipe: Recipe, facts: SessionFacts) -> list[str]:
    sessions = chosen["session_id"].to_pylist()
    keys = [[facts.links.origin(one) for one in sessions], chosen["group_id"].to_pylist()]
    if recipe.split.by == "user":
        keys.append([facts.profiles[one].user for one in sessions])
    elif recipe.split.by == "repo":
        keys.append([facts.profiles[one].repo for one in sessions])
    return split(keys, recipe.split.eval, recipe.seed)
