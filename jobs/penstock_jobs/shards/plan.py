"""What a shard will be made of: selected sessions that are not excluded, with their advantages and
their side of the evaluation split.

All of this is decided for whole sessions, before any token is read, and counted. The plan depends
on the recipe and the snap alone.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.checkpoints.suites import SuiteVersion
from penstock.privacy.consents import NO_TRAIN, decided_consents
from penstock_jobs.shards.errors import NothingToBuild
from penstock_jobs.shards.exclusion import Exclusions, first_reasons, spread_over_chains
from penstock_jobs.shards.exclusion.contamination import find_contaminated, find_suites
from penstock_jobs.shards.exclusion.copies import CopiedEvents, find_copies, first_sampled
from penstock_jobs.shards.exclusion.eligibility import (
    behind_channel,
    behind_checkpoint,
    lot,
    of_vendors,
    over_caps,
    spread_denials,
    stale,
    without_consent,
)
from penstock_jobs.shards.exclusion.near_duplicates import find_near_duplicates, linked
from penstock_jobs.shards.recipe import AdvantageKind, Recipe
from penstock_jobs.shards.selection import KnownSessions, read_answer, select
from penstock_jobs.shards.session_facts import PinnedSessions, SessionFacts
from penstock_jobs.shards.token_credit import SPAN_CREDITS, span_credits

#: How many sessions of all strata weigh as much as one's own stratum does by itself.
SHRINK = 8.0

Values = NDArray[np.float64]
Codes = NDArray[np.int64]


class LeftOutSession(NamedTuple):
    """A session that the query named and the shard does not hold."""

    session_id: str
    reason: str
    #: What a person needs to understand the reason.
    detail: str | None = None


@dataclass(frozen=True)
class ShardPlan:
    #: CHOSEN_ROWS with `advantage`, `split` and `credits`, in the order of a shard.
    chosen: pa.Table
    facts: SessionFacts
    #: By session: the names of events that another session told first.
    copies: Mapping[str, frozenset[str]]
    left_out: Sequence[LeftOutSession]
    #: How many sessions the query named.
    asked: int
    #: The versions of the suites whose tasks were looked for.
    suites: Mapping[str, str]
    #: The checkpoint that the recipe's channel pointed at.
    counted_from: str | None


def plan_shard(sessions: PinnedSessions, recipe: Recipe) -> ShardPlan:
    """Raises InvalidInput, RewardsPending, NothingToBuild, and what the query raises."""
    suites = find_suites(sessions.lake.database, sessions.tenant, recipe.exclude.suites)
    current = behind = None
    if channel := recipe.staleness.channel:
        current, behind = behind_channel(channel, sessions.read("served", channel=channel))
    answer = read_answer(sessions.query(recipe.query), recipe.advantage.kind)
    links = sessions.links()
    involved = links.with_origins(answer["session_id"].to_pylist())
    decided = decided_consents(sessions.lake, sessions.tenant, involved, sessions.pin.snap)
    facts = SessionFacts(sessions.read("facts", sessions=sorted(involved)), links, decided)
    chains = {"session_id": list(facts.chains), "chain": list(facts.chains.values())}
    rewards: dict[str, pa.Table] = {}
    if recipe.target is not None:
        version = recipe.target.definition.version
        of_chains = {"sessions": sorted(facts.chains), "version": version}
        rewards = {name: sessions.read(name, **of_chains) for name in ("outcomes", "rewards")}
    known = pa.table(chains, pa.schema(dict.fromkeys(chains, pa.string())))
    selection = select(answer, KnownSessions(known, **rewards), recipe.target)
    chosen = selection.chosen
    copies = find_copies(sessions, chosen["session_id"].to_pylist(), links)
    exclusions = _exclude(
        recipe, chosen, facts, copies, sessions=sessions, suites=suites, behind=behind
    )
    left_out = [LeftOutSession(**row) for row in selection.left_out.to_pylist()]
    left_out += [LeftOutSession(session, *why) for session, why in exclusions.items()]
    excluded = pc.is_in(chosen["session_id"], pa.array(exclusions, pa.string()))
    chosen = chosen.filter(pc.invert(excluded))
    names = chosen["session_id"].to_pylist()
    keys = [[links.origin(name) for name in names], chosen["group_id"].to_pylist()]
    if recipe.split.by != "group":
        keys.append([getattr(facts.profiles[name], recipe.split.by) for name in names])
    sides = split_sides(keys, recipe.split.eval, recipe.seed)
    chosen = chosen.append_column("split", pa.array(sides, pa.string()))
    if recipe.split.keep != "both":
        on_side = pc.equal(chosen["split"], recipe.split.keep)
        others = chosen.filter(pc.invert(on_side))["session_id"].to_pylist()
        left_out += [LeftOutSession(session, "other_side") for session in others]
        chosen = chosen.filter(on_side)
    if not chosen.num_rows:
        why = count_reasons(left_out) or "none was named"
        raise NothingToBuild(recipe=recipe.name, asked=answer.num_rows, why=why)
    credits = pa.nulls(chosen.num_rows, SPAN_CREDITS)
    if recipe.target is not None:
        names = sorted(links.whole_chains(chosen["session_id"].to_pylist()))
        definition = recipe.target.definition
        parts = sessions.read("credits", sessions=names, version=definition.version)
        credits = span_credits(chosen, parts, definition, facts.chains)
    chosen = chosen.append_column("advantage", advantages(chosen, recipe.advantage.kind))
    return ShardPlan(
        chosen=chosen.append_column("credits", credits),
        facts=facts,
        copies=copies.by_session,
        left_out=left_out,
        asked=answer.num_rows,
        suites=dict(sorted((suite.suite, suite.version) for suite in suites)),
        counted_from=current,
    )


def count_reasons(left_out: Iterable[LeftOutSession]) -> str:
    counts = sorted(Counter(session.reason for session in left_out).items())
    return ", ".join(f"{reason} {count}" for reason, count in counts)


# Exclusions, in their order


def _exclude(
    recipe: Recipe,
    chosen: pa.Table,
    facts: SessionFacts,
    copies: CopiedEvents,
    *,
    sessions: PinnedSessions,
    suites: tuple[SuiteVersion, ...],
    behind: Mapping[str, int] | None,
) -> Exclusions:
    """Each session with its first reason."""
    exclude, chains, profiles = recipe.exclude, facts.chains, facts.profiles
    repeats = facts.links.repeats
    parents = {session: repeats[session] for session in profiles if session in repeats}
    denied_by = spread_denials(facts.denied, chains, parents)
    consents = facts.consents | dict.fromkeys(denied_by, NO_TRAIN)
    denied = without_consent(consents, chains, exclude.consent, denied_by)
    marked: Exclusions = {}
    if exclude.vendor_models:
        marked = of_vendors(sessions.read("vendors", sessions=sorted(profiles)).to_pylist(), chains)
    repeated = spread_over_chains(copies.exclusions, chains)
    exclusions = first_reasons([denied, marked, repeated])
    if suites:
        others = {name: profile for name, profile in profiles.items() if name not in exclusions}
        contaminated = find_contaminated(sessions, others, suites, exclude)
        exclusions = first_reasons([exclusions, spread_over_chains(contaminated, chains)])
    staleness = recipe.staleness
    if staleness.checkpoint is not None:
        behind = behind_checkpoint(profiles.values(), staleness.checkpoint)
    columns = (chosen[name].to_pylist() for name in ("session_id", "group_id"))
    groups = dict(zip(*columns, strict=True))
    at_us, sampled = sessions.snapshot_us(), dict[str, int]()
    if (age_s := staleness.max_age_s) is not None:
        begun_us = at_us - age_s * 1_000_000  # what began later holds nothing older
        early = [name for name in groups if profiles[name].first_us < begun_us]
        engine = recipe.tokens.source == "engine"
        sampled = first_sampled(sessions, early, copies.by_session, engine=engine)
    old = stale(
        profiles.values(), chains, at_us,
        behind=behind, max_versions=staleness.max_versions or 0,
        sampled_us=sampled, max_age_s=age_s,
    )  # fmt: skip
    exclusions = first_reasons([exclusions, old])
    if exclude.near_duplicates:
        compared = {name: group for name, group in groups.items() if name not in exclusions}
        alike = find_near_duplicates(sessions, compared, recipe.seed, exclude.similarity_min)
        exclusions = first_reasons([exclusions, spread_over_chains(alike, chains)])
    remaining = (profiles[session] for session in groups if session not in exclusions)
    caps = {"per_user": exclude.max_per_user, "per_repo": exclude.max_per_repo}
    caps["sessions"] = recipe.output.max_sessions
    exclusions |= over_caps(remaining, recipe.seed, **caps)
    return {session: exclusions[session] for session in groups if session in exclusions}


# The evaluation split


def split_sides(keys: Sequence[Sequence[str | None]], eval_share: float, seed: int) -> list[str]:
    """`train` or `eval` for each session: a shard keeps the latter for evaluation. `keys` are
    columns over the sessions, narrow ones first: sessions with an equal key are on one side, and
    where keys overlap, all that is linked is. None links with nothing.

    The seed and the least name of what is linked decide. So a side does not depend on the order of
    sessions, and a new session moves only those that it links."""
    links: list[tuple[int, int]] = []
    for column in keys:
        first: dict[str, int] = {}
        links += [
            (first.setdefault(key, place), place)
            for place, key in enumerate(column)
            if key is not None
        ]
    starts, ends = np.array(links, np.int64).reshape(-1, 2).T
    roots = linked(len(keys[0]), starts, ends).tolist()
    names: dict[int, str] = {}
    for place, root in enumerate(roots):
        # By the widest key, so that a new session of a user joins the others.
        name = (
            next((column[place] for column in keys[::-1] if column[place] is not None), None) or ""
        )
        names[root] = min(names.get(root, name), name)
    bound = round(eval_share * 2**64)
    return ["eval" if lot(f"split:{names[root]}", seed) < bound else "train" for root in roots]


# Advantages


def advantages(chosen: pa.Table, kind: AdvantageKind) -> pa.Array:
    """How much better each session was than what it is measured against, for each row of
    CHOSEN_ROWS, whatever their order.

        group     reward − mean of its group. It is not divided by the deviation: that would blow
                  up the smallest differences where all attempts are about equally good.
        stratum   reward − baseline, for production traffic with one sample a prompt:

                      Σ rewards of the others of its stratum + K · mean of all others
                      ─────────────────────────────────────────────────────────────────
                                  count of the others of its stratum + K

                  The session's own reward is in neither mean. So the baseline does not depend on
                  what the model did in it, and the gradient stays unbiased in the smallest
                  stratum. K = SHRINK steadies small strata with the overall mean.
        none      null.

    All of these count chains: a chain is worth the mean of its sessions, counts once, and is left
    out of its own baseline as a whole. In a group of one the advantage is 0. A session without a
    reward has no advantage and is in no mean; nor has one whose shard has no other session."""
    if kind == "none":
        return pa.nulls(chosen.num_rows, pa.float64())
    rewards = np.asarray(chosen["reward"].to_numpy(zero_copy_only=False), np.float64)
    chains = _codes(chosen["chain"])
    worth = _means(rewards, chains)
    # The group or stratum of each chain: its sessions have the same.
    parents = np.zeros(len(worth), np.int64)
    parents[chains] = _codes(chosen["group_id" if kind == "group" else "stratum"])
    baselines = _means(worth, parents)[parents] if kind == "group" else _baselines(worth, parents)
    return pa.array(rewards - baselines[chains], from_pandas=True)


def _baselines(worth: Values, strata: Codes) -> Values:
    known = ~np.isnan(worth)
    total, count = _sums(worth, np.zeros(len(worth), np.int64))
    totals, counts = _sums(worth, strata)
    own = np.where(known, worth, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        others = count.sum() - known
        overall = (total.sum() - own) / others
    of_stratum = totals[strata] - own
    baselines = (of_stratum + SHRINK * overall) / (counts[strata] - known + SHRINK)
    return np.where(others > 0, baselines, np.nan)


def _means(values: Values, codes: Codes) -> Values:
    totals, counts = _sums(values, codes)
    with np.errstate(invalid="ignore"):
        return totals / counts


def _sums(values: Values, codes: Codes) -> tuple[Values, Values]:
    """Sums and counts of the known values of each code. Numbers are added in their own order, so
    that the order of rows does not change the last bit."""
    count = int(codes.max()) + 1 if len(codes) else 0
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.lexsort((values[known], codes[known]))]
    totals = np.zeros(count)
    np.add.at(totals, codes[order], values[order])
    return totals, np.bincount(codes[order], minlength=count).astype(np.float64)


def _codes(column: pa.ChunkedArray) -> Codes:
    """The same numbers for the same texts in any order; null is a text like any other."""
    texts = ["" if text is None else f"={text}" for text in column.to_pylist()]
    return np.unique(np.array(texts, object), return_inverse=True)[1].astype(np.int64)
