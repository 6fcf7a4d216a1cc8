"""The plan of a shard: selected and not excluded sessions, with advantages and evaluation split.

It decides about whole sessions before any token is read, and depends only on recipe and snap.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.access.privacy.consents import NO_TRAIN, rows_of_sessions
from penstock.core.errors import PenstockError
from penstock.registry.checkpoints.suites import SuiteVersion
from penstock_jobs.shards.exclusion import (
    Exclusions,
    behind_channel,
    behind_checkpoint,
    first_reasons,
    lot,
    of_vendors,
    over_caps,
    spread_denials,
    spread_over_chains,
    stale,
    without_consent,
)
from penstock_jobs.shards.exclusion.repeated_events import (
    RepeatedEvents,
    find_repeated_events,
    first_sampled,
)
from penstock_jobs.shards.exclusion.texts import (
    find_contaminated,
    find_near_duplicates,
    find_suites,
    least_connected,
)
from penstock_jobs.shards.recipe import Advantage, Recipe
from penstock_jobs.shards.rows.token_credit import SPAN_CREDITS, all_span_credits
from penstock_jobs.shards.selection.dictionary_codes import (
    NAMES,
    Numbers,
    codes_of,
    from_codes,
    positions_in,
    single_array,
    texts_of,
)
from penstock_jobs.shards.selection.planned_sessions import ROWS_AT_ONCE, PlannedSessions
from penstock_jobs.shards.selection.selection import (
    LEFT_OUT_ROWS,
    KnownSessions,
    read_answer,
    select,
)
from penstock_jobs.shards.selection.session_facts import PinnedSessions, SessionFacts


class NothingToBuild(PenstockError, exit_status=2):
    """All {asked} sessions of the query of {recipe} were left out: {why}. Nothing was built. Run
    `penstock rewards run` for sessions without a reward by the recipe's definition."""


class LeftOutSession(NamedTuple):
    """A session of the query that the shard does not hold."""

    session_id: str
    reason: str
    detail: str | None = None


class LeftOutSessions(msgspec.Struct, frozen=True):
    rows: pa.Table

    @classmethod
    def of(cls, rows: Iterable[pa.Table]) -> "LeftOutSessions":
        table = pa.concat_tables([LEFT_OUT_ROWS.empty_table(), *rows])
        order = [(name, "ascending") for name in LEFT_OUT_ROWS.names]
        return cls(table.sort_by(order))

    def __iter__(self) -> Iterator[LeftOutSession]:
        for batch in self.rows.to_batches(ROWS_AT_ONCE):
            yield from (LeftOutSession(**row) for row in batch.to_pylist())

    def reasons(self) -> Counter[str]:
        counts = pc.value_counts(self.rows["reason"])
        return Counter({row["values"]: row["counts"] for row in counts.to_pylist()})

    def __str__(self) -> str:
        return ", ".join(f"{reason} {count}" for reason, count in sorted(self.reasons().items()))


@dataclass(frozen=True)
class ShardPlan:
    #: CHOSEN_ROWS with `advantage`, `split` and `credits`, in the order of a shard.
    chosen: pa.Table
    sessions: PlannedSessions
    #: Names of repeated events, by session.
    repeated_events: Mapping[str, frozenset[str]]
    #: LEFT_OUT_ROWS.
    left_out: pa.Table
    asked: int
    #: The searched version of each suite.
    suites: Mapping[str, str]
    #: The checkpoint that the recipe's channel pointed at.
    counted_from: str | None

    @cached_property
    def numbers(self) -> Numbers:
        """Return positions of chosen sessions among all."""
        return codes_of(self.chosen["session_id"])

    def rows(self, start: int, end: int) -> pa.Table:
        """Return some chosen rows, without dictionaries, which would outweigh so few."""
        rows, text = self.chosen.slice(start, end - start), pa.string()
        plain = [own.with_type(text) if own.type == NAMES else own for own in rows.schema]
        return rows.cast(pa.schema(plain))


def plan_shard(sessions: PinnedSessions, recipe: Recipe, rows: pa.Table | None = None) -> ShardPlan:
    """Plan a shard, by `rows` or the query. Raises InvalidInput, RewardsPending, query errors."""
    suites = find_suites(sessions.lake.database, sessions.tenant, recipe.exclude.suites)
    current = behind = None
    if channel := recipe.staleness.channel:
        current, behind = behind_channel(channel, sessions.read("served", channel=channel))
    rows = sessions.query(recipe.query) if rows is None else rows
    answer = read_answer(rows, recipe.advantage.kind)
    links = sessions.links()
    planned = PlannedSessions(sessions, answer["session_id"], links)
    ids = pa.table({"session_id": planned.ids})
    rewards: dict[str, pa.Table] = {}
    if recipe.target is not None:
        version = recipe.target.definition.version
        rewards = {
            name: sessions.read(name, ids, version=version) for name in ("outcomes", "rewards")
        }
    in_lake = ids.append_column("chain", planned.chains())
    selection = select(answer, KnownSessions(in_lake, **rewards), recipe.target)
    del rewards, in_lake, ids
    asked, chosen = answer.num_rows, selection.chosen
    del answer
    repeated = find_repeated_events(sessions, texts_of(chosen["session_id"]), links)
    known: dict[str, Any] = {"repeated": repeated, "suites": suites, "behind": behind}
    excluded = _ExclusionSearch(recipe, sessions, planned, chosen, **known).excluded()
    left_out = [selection.left_out, excluded]
    chosen = _without(chosen, excluded["session_id"])
    chosen = chosen.append_column("split", _sides(chosen, recipe, planned))
    chosen = chosen.append_column("advantage", advantages(chosen, recipe.advantage))
    if recipe.split.keep != "both":
        on_side = pc.equal(chosen["split"], recipe.split.keep)
        others = texts_of(chosen["session_id"].filter(pc.invert(on_side)))
        left_out.append(left_out_rows(others, pa.repeat("other_side", len(others))))
        chosen = chosen.filter(on_side)
    if not chosen.num_rows and recipe.text is None:
        why = str(LeftOutSessions.of(left_out)) or "none was named"
        raise NothingToBuild(recipe=recipe.name, asked=asked, why=why)
    credits = pa.chunked_array([pa.nulls(chosen.num_rows, SPAN_CREDITS)])
    if recipe.target is not None:
        definition = recipe.target.definition
        members = planned.with_chains(texts_of(chosen["session_id"]))
        parts = sessions.read("credits", members, version=definition.version)
        credits = all_span_credits(chosen, parts, definition, planned)
    return ShardPlan(
        chosen=chosen.append_column("credits", credits),
        sessions=planned,
        repeated_events=repeated.by_session,
        left_out=pa.concat_tables(left_out),
        asked=asked,
        suites=dict(sorted((suite.suite, suite.version) for suite in suites)),
        counted_from=current,
    )


def left_out_rows(sessions: Any, reasons: Any, details: Any = None) -> pa.Table:
    details = pa.nulls(len(sessions), pa.string()) if details is None else details
    return pa.table([sessions, reasons, details], LEFT_OUT_ROWS)


def _without(chosen: pa.Table, sessions: pa.ChunkedArray) -> pa.Table:
    if not len(sessions):
        return chosen
    column = chosen["session_id"].chunk(0)
    is_left = np.ones(len(column.dictionary), bool)
    is_left[positions_in(column.dictionary, sessions)] = False
    return chosen.filter(pa.array(is_left[codes_of(column)])).combine_chunks()


# Exclusions, in their order


class _ExclusionSearch:
    """Applies exclusions to chosen sessions. Tables are sorted by session."""

    def __init__(
        self,
        recipe: Recipe,
        sessions: PinnedSessions,
        planned: PlannedSessions,
        chosen: pa.Table,
        *,
        repeated: RepeatedEvents,
        suites: tuple[SuiteVersion, ...],
        behind: Mapping[str, int] | None,
    ) -> None:
        """`behind` maps checkpoints to versions behind a channel's."""
        self._recipe, self._sessions, self._planned = recipe, sessions, planned
        self._chosen, self._repeated, self._suites = chosen, repeated, suites
        self._numbers = codes_of(chosen["session_id"])
        self._at_us, self._behind = sessions.snapshot_us(), behind
        self._vendors = self._sampled = None
        if recipe.exclude.vendor_models:
            self._vendors = sessions.read("vendors", pa.table({"session_id": planned.ids}))
        if (age_s := recipe.staleness.max_age_s) is not None:
            begun_us = self._at_us - age_s * 1_000_000  # later sessions hold nothing older
            first_us = planned.column("first_us").to_numpy()[self._numbers]
            early = texts_of(chosen["session_id"].filter(pa.array(first_us < begun_us)))
            engine = recipe.tokens.source == "engine"
            self._sampled = first_sampled(sessions, early, repeated.by_session, engine=engine)
        if (reference := recipe.staleness.checkpoint) is not None:
            self._behind = behind_checkpoint(planned.profiles(), reference)

    def excluded(self) -> pa.Table:
        """Return LEFT_OUT_ROWS: excluded sessions with their first reason."""
        exclude, planned, seed = self._recipe.exclude, self._planned, self._recipe.seed
        is_chosen = np.zeros(len(planned), bool)
        is_chosen[self._numbers] = True
        left_out = [LEFT_OUT_ROWS.empty_table()]
        for facts, numbers in planned.portions():
            exclusions = self._of_portion(facts)
            named = zip(facts.profiles, is_chosen[numbers], strict=True)
            excluded = [name for name, asked in named if asked and name in exclusions]
            left_out.append(_as_rows(excluded, exclusions))
        first = pa.concat_tables(left_out)
        remaining = _without(self._chosen, first["session_id"])
        if exclude.near_duplicates:
            columns = (remaining[name].to_pylist() for name in ("session_id", "group_id"))
            compared = dict(zip(*columns, strict=True))
            similarity_min = exclude.similarity_min
            alike = find_near_duplicates(self._sessions, compared, seed, similarity_min)
            chains = dict(zip(compared, remaining["chain"].to_pylist(), strict=True))
            alike = spread_over_chains(alike, chains)
            first = pa.concat_tables([first, _as_rows(list(alike), alike)])
            remaining = _without(remaining, first["session_id"])
        caps = {"per_user": exclude.max_per_user, "per_repo": exclude.max_per_repo}
        caps["sessions"] = self._recipe.output.max_sessions
        if any(cap is not None for cap in caps.values()):
            remaining = remaining.select(["session_id", "chain"])
            at = remaining["session_id"].chunk(0).indices
            for name in ("user", "repo"):
                remaining = remaining.append_column(name, planned.names(name).take(at))
            reasons = over_caps(remaining, seed, **caps)
            capped = texts_of(remaining["session_id"].filter(reasons.is_valid()))
            first = pa.concat_tables([first, left_out_rows(capped, reasons.drop_null())])
        return first

    def _of_portion(self, facts: SessionFacts) -> Exclusions:
        """Exclude by profiles and contents of sessions and their chains."""
        exclude, staleness = self._recipe.exclude, self._recipe.staleness
        chains, profiles, repeats = facts.chains, facts.profiles, facts.links.repeats
        parents = {name: repeats[name] for name in profiles if name in repeats}
        denied_by = spread_denials(facts.denied, chains, parents)
        consents = facts.consents | dict.fromkeys(denied_by, NO_TRAIN)
        denied = without_consent(consents, chains, exclude.consent, denied_by)
        marked = of_vendors(self._own_rows(self._vendors, profiles), chains)
        copied = self._repeated.exclusions
        own = {name: copied[name] for name in profiles if name in copied}
        exclusions = first_reasons([denied, marked, spread_over_chains(own, chains)])
        if self._suites:
            others = {name: each for name, each in profiles.items() if name not in exclusions}
            contaminated = find_contaminated(self._sessions, others, self._suites, exclude)
            exclusions = first_reasons([exclusions, spread_over_chains(contaminated, chains)])
        sampled = self._own_rows(self._sampled, profiles)
        old = stale(
            profiles.values(), chains, self._at_us,
            behind=self._behind, max_versions=staleness.max_versions or 0,
            sampled_us={row["session_id"]: row["sampled_us"] for row in sampled},
            max_age_s=staleness.max_age_s,
        )  # fmt: skip
        return first_reasons([exclusions, old])

    def _own_rows(self, rows: pa.Table | None, sessions: Collection[str]) -> list[dict[str, Any]]:
        return [] if rows is None else rows_of_sessions(rows, sessions).to_pylist()


def _as_rows(sessions: Sequence[str], exclusions: Exclusions) -> pa.Table:
    why = [exclusions[session] for session in sessions]
    columns = (sessions, [each.reason for each in why], [each.detail for each in why])
    return left_out_rows(*(pa.array(column, pa.string()) for column in columns))


# The evaluation split


_SIDES = pa.array(["eval", "train"])


def _sides(chosen: pa.Table, recipe: Recipe, planned: PlannedSessions) -> pa.Array:
    split = recipe.split
    if not split.eval:
        return from_codes(np.ones(chosen.num_rows, np.int64), _SIDES)
    at = pa.array(codes_of(chosen["session_id"]))
    keys = [planned.origins().take(at), chosen["group_id"]]
    if split.by != "group":
        keys.append(planned.names(split.by).take(at))
    return split_sides(keys, split.eval, recipe.seed)


def split_sides(
    keys: Sequence[pa.ChunkedArray | pa.Array], eval_share: float, seed: int
) -> pa.Array:
    """Choose `train` or `eval` for each session, by columns of keys, narrow ones first.

    Sessions connected by keys are on one side; the seed and the least name decide."""
    count, bound = len(keys[0]), round(eval_share * 2**64)
    if not count:
        return pa.array([], NAMES)
    links = [_links(column) for column in keys]
    starts, ends = (np.concatenate(places) for places in zip(*links, strict=True))
    roots = least_connected(count, starts, ends)
    # By the widest key, so that new sessions of a user join the others.
    names = pc.coalesce(*keys[::-1], pa.scalar(""))
    least = pa.table({"root": roots, "name": names}).group_by("root").aggregate([("name", "min")])
    is_eval = np.zeros(count, bool)
    lots = (lot(f"split:{name.as_py()}", seed) < bound for name in least["name_min"])
    is_eval[least["root"].to_numpy()] = np.fromiter(lots, bool, least.num_rows)
    return from_codes(np.where(is_eval[roots], 0, 1), _SIDES)


def _links(keys: pa.ChunkedArray | pa.Array) -> tuple[Numbers, Numbers]:
    """Pair the first place of each key with every further one."""
    codes = codes_of(single_array(keys).dictionary_encode())
    places = np.flatnonzero(codes >= 0)
    first = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes[places][::-1]] = places[::-1]  # of several, the last one stays
    starts = first[codes[places]]
    further = starts != places
    return starts[further], places[further]


#: The weight of all strata in a stratum's baseline, in sessions.
SHRINK = 8.0
#: Rewards that differ by less are equal.
SPREAD_MIN = 1e-6

Values = NDArray[np.float64]
Codes = NDArray[np.int64]


def advantages(chosen: pa.Table, asked: Advantage) -> pa.Array:
    """Compute the advantage of each session of CHOSEN_ROWS over its baseline.

    A group's baseline is its mean. A stratum's baseline is

        (Σ rewards of its others + SHRINK · mean of all others) / (count of its others + SHRINK)

    The others are of the training side. A session's own reward is in neither mean, so the gradient
    stays unbiased in the smallest stratum. Dividing by the spread inflates small differences, so
    recipes ask for it. A chain has the mean of its sessions, counts once, and is left out of its
    own baseline as a whole. A session without a reward, or without others, has no advantage."""
    if asked.kind == "none":
        return pa.nulls(chosen.num_rows, pa.float64())
    rewards = np.asarray(chosen["reward"].to_numpy(zero_copy_only=False), np.float64)
    chains = _codes(chosen["chain"])
    worth = _means(rewards, chains)
    # The group or stratum and the side of each chain: its sessions have the same.
    parents, trained = np.zeros(len(worth), np.int64), np.zeros(len(worth), bool)
    if asked.kind == "group":
        parents[chains] = _codes(chosen["group_id"])
        baselines = _means(worth, parents)[parents]
        spread = np.sqrt(_means((worth - baselines) ** 2, parents))[parents]
    else:
        parents[chains] = _codes(chosen["stratum"])
        trained[chains] = pc.equal(chosen["split"], "train").to_numpy()
        baselines = _baselines(worth, parents, trained & ~np.isnan(worth))
        squares = (worth - baselines)[trained & ~np.isnan(worth - baselines)] ** 2
        spread = np.full(len(worth), np.sqrt(squares.sum() / max(len(squares), 1)))
    differences = rewards - baselines[chains]
    if asked.spread:
        differences /= np.where(spread > SPREAD_MIN, spread, 1.0)[chains]
    return pa.array(differences, from_pandas=True)


def _baselines(worth: Values, strata: Codes, known: NDArray[np.bool_]) -> Values:
    """Compute baselines from the `known` chains alone."""
    own = np.where(known, worth, 0.0)
    totals, counts = (np.bincount(strata, values) for values in (own, known))
    others = known.sum() - known
    with np.errstate(invalid="ignore", divide="ignore"):
        overall = (own.sum() - own) / others
    of_stratum = totals[strata] - own
    baselines = (of_stratum + SHRINK * overall) / (counts[strata] - known + SHRINK)
    return np.where(others > 0, baselines, np.nan)


def _means(values: Values, codes: Codes) -> Values:
    """Return the mean of known values by code."""
    known, count = ~np.isnan(values), int(codes.max(initial=-1)) + 1
    totals = np.bincount(codes[known], values[known], count)
    with np.errstate(invalid="ignore"):
        means: Values = totals / np.bincount(codes[known], minlength=count)
    return means


def _codes(column: pa.ChunkedArray) -> Codes:
    """Encode texts; null has a code too."""
    codes = single_array(column.cast(pa.string())).dictionary_encode(null_encoding="encode").indices
    numbers: Codes = codes.to_numpy().astype(np.int64)
    return numbers
