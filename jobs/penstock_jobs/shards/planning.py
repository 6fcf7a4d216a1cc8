"""What a shard will be made of: selected sessions, without those that are excluded, cut in slices.

Everything here is decided for whole sessions, before any token is read, and counted. The plan
hangs on the recipe and the snap alone.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput, NothingToBuild
from penstock_jobs.rewards.definition import Definition
from penstock_jobs.shards.advantages import advantages
from penstock_jobs.shards.answer import read_answer
from penstock_jobs.shards.asking import Asking, Links
from penstock_jobs.shards.exclusions import caps, staleness
from penstock_jobs.shards.exclusions.consent import with_repeats, without_consent
from penstock_jobs.shards.exclusions.copies import copied, only_copies
from penstock_jobs.shards.exclusions.reasons import Found, first_of, with_chains
from penstock_jobs.shards.recipe import Recipe
from penstock_jobs.shards.selection import Known, select, wanted_by
from penstock_jobs.shards.session_events import event_name
from penstock_jobs.shards.splitting import split

#: Which of these sessions say nearly the same as others; the second are their groups.
Alike = Callable[[Sequence[str], Sequence[str]], Found]
#: A slice is what one task reads and writes: whole groups, of about so many events.
SLICE_EVENTS = 20_000


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
    facts: "Facts"
    #: By session: ids of events that another session told first.
    copies: Mapping[str, frozenset[str]]
    #: Of the sessions that the query named, by reason.
    excluded: Mapping[str, int]
    asked: int
    definition: Definition | None

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


class Facts:
    """What exclusions ask about the sessions that the query named, and the rest of their
    chains."""

    def __init__(self, rows: pa.Table, links: Links) -> None:
        self.links = links
        self._rows = {row["session_id"]: row for row in rows.to_pylist()}

    def of(self, session: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._rows[session]
        return found

    @property
    def chains(self) -> dict[str, str]:
        return {session: self.links.chain(session) for session in self._rows}

    @property
    def consents(self) -> dict[str, str]:
        return {session: row["consent"] for session, row in self._rows.items()}

    @property
    def consents_with_repeats(self) -> dict[str, str]:
        repeats = {one: parent for one, parent in self.links.repeats.items() if one in self._rows}
        return with_repeats(self.consents, self.chains, repeats)

    def table(self) -> pa.Table:
        """session_id and chain."""
        chains = self.chains
        columns = [pa.array(chains.keys(), pa.string()), pa.array(chains.values(), pa.string())]
        return pa.table(columns, names=["session_id", "chain"])


def plan_shard(asking: Asking, recipe: Recipe, at_us: int, alike: Alike) -> ShardPlan:
    """`at_us` is the time of the snapshot; `alike` is asked where the recipe wants no
    near-duplicates, since it has to read what the model wrote. Raises InvalidInput,
    RewardsPending, NothingToBuild, what the query raises."""
    asked = read_answer(asking.query(recipe.query), recipe.advantage.kind)
    links = asking.links()
    wide = links.with_origins(asked["session_id"].to_pylist())
    facts = Facts(asking.facts(wide), links)
    wanted = wanted_by(recipe)
    definition = wanted.definition if wanted else None
    selection = select(asked, _known(asking, definition, facts), wanted)
    chosen = selection.chosen
    copies = _copies(asking, chosen, links)
    found = _excluded(recipe, chosen, facts, copies, (at_us, alike))
    left = chosen.filter(pc.invert(pc.is_in(chosen["session_id"], pa.array(found, pa.string()))))
    left = left.append_column("split", pa.array(_sides(left, recipe, facts), pa.string()))
    kept = left
    if recipe.split.keep != "both":
        kept = left.filter(pc.equal(left["split"], recipe.split.keep))
    counts = Counter(selection.counts()) + Counter(why.reason for why in found.values())
    counts += Counter({"other_side": left.num_rows - kept.num_rows})
    if not kept.num_rows:
        told = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
        raise NothingToBuild(recipe=recipe.name, asked=asked.num_rows, why=told or "none was named")
    kept = kept.append_column("advantage", advantages(kept, recipe.advantage.kind))
    return ShardPlan(
        chosen=kept,
        facts=facts,
        copies=copies.by_session,
        excluded=dict(sorted(counts.items())),
        asked=asked.num_rows,
        definition=definition,
    )


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


def _excluded(
    recipe: Recipe, chosen: pa.Table, facts: Facts, copies: _Copies, outside: tuple[int, Alike]
) -> Found:
    """In the order of `exclusions`; those that need texts come with the samples."""
    wanted = recipe.exclude
    if wanted.suites:
        why = "no suite is known here yet; leave suites out, and exclude by the query"
        raise InvalidInput(what=f"suites = {list(wanted.suites)}", why=why)
    chains = facts.chains
    at_us, alike = outside
    named = chosen["session_id"].to_pylist()
    found = first_of(
        [
            without_consent(facts.consents_with_repeats, chains, wanted.consent),
            with_chains(copies.found, chains),
            _stale(recipe, facts, chains, at_us),
        ]
    )
    if wanted.near_duplicates:
        pairs = zip(named, chosen["group_id"].to_pylist(), strict=True)
        groups = {one: group for one, group in pairs if one not in found}
        near = alike(list(groups), list(groups.values()))
        found = first_of([found, with_chains(near, chains)])
    limits = caps.Limits(wanted.max_per_user, wanted.max_per_repo, recipe.output.max_sessions)
    left = [one for one in named if one not in found]
    works = (
        caps.Work(one, chains[one], facts.of(one)["user"], facts.of(one)["repo"]) for one in left
    )
    found |= caps.over_caps(works, limits, recipe.seed)
    return {one: found[one] for one in named if one in found}


def _stale(recipe: Recipe, facts: Facts, chains: Mapping[str, str], at_us: int) -> Found:
    wanted = recipe.staleness
    if wanted.channel is not None:
        why = "there are no channels here yet; name a checkpoint to count back from"
        raise InvalidInput(what=f"The channel {wanted.channel!r} of [staleness]", why=why)
    behind = None
    if wanted.checkpoint is not None:
        order = _checkpoints(facts)
        if wanted.checkpoint not in order:
            known = ", ".join(order) or "none"
            why = f"no session of the query was served by it; known: {known}"
            raise InvalidInput(what=f"The checkpoint {wanted.checkpoint!r}", why=why)
        behind = staleness.versions_behind(order, wanted.checkpoint)
    bounds = staleness.Bounds(behind, wanted.max_versions or 0, wanted.max_age_s)
    works = [
        staleness.Work(one, facts.of(one)["checkpoints"], facts.of(one)["last_us"])
        for one in chains
    ]
    return staleness.stale(works, chains, bounds, at_us)


def _checkpoints(facts: Facts) -> list[str]:
    """In the order in which they were first heard of, in these sessions."""
    first: dict[str, int] = {}
    for session in facts.chains:
        row = facts.of(session)
        for name in row["checkpoints"]:
            first[name] = min(first.get(name, row["first_us"]), row["first_us"])
    return sorted(first, key=lambda name: (first[name], name))


def _sides(chosen: pa.Table, recipe: Recipe, facts: Facts) -> list[str]:
    sessions = chosen["session_id"].to_pylist()
    by = recipe.split.by
    last = [facts.of(one)[by] for one in sessions] if by in ("user", "repo") else []
    origins = [facts.links.origin(one) for one in sessions]
    keys = [origins, chosen["group_id"].to_pylist(), *([last] if last else [])]
    return split(keys, recipe.split.eval, recipe.seed)
