"""Repeated events: events that a resumed or forked session copies from another.

An event is a copy in three cases: another session has its source and source_key; it is among the
first messages that equal the parent's; or the engine sampled exactly the same tokens after the same
tokens, in sessions that repeat each other. The model's words in copied events are context. A
session with nothing else is excluded.
"""

from collections.abc import Mapping
from functools import reduce
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock_jobs.rewards.rows import encoded
from penstock_jobs.shards.conversation.session_events import event_name
from penstock_jobs.shards.exclusion import Exclusion, Exclusions
from penstock_jobs.shards.selection.session_facts import SessionLinks, SnapshotQueries

WRITTEN = "model_call"
_MESSAGES = ("user_message", WRITTEN)
Mask = NDArray[np.bool_]


class RepeatedEvents(NamedTuple):
    by_session: Mapping[str, frozenset[str]]
    #: Sessions whose model wrote nothing new.
    exclusions: Exclusions


def find_repeated_events(
    queries: SnapshotQueries, sessions: pa.Array, links: SessionLinks
) -> RepeatedEvents:
    """Find copies. Without repeating sessions only keys of events are read."""
    linked: list[str] = sessions.filter(pc.is_in(sessions, value_set=links.linked)).to_pylist()
    parents = {session: links.repeats[session] for session in linked if session in links.repeats}
    origins = {links.origin(session) for session in parents}
    repeating = {session for session in linked if links.origin(session) in origins}
    repeating |= {*parents, *parents.values()}
    added = pa.array(sorted(repeating.difference(linked)), pa.string())
    asked = pa.table({"session_id": pa.chunked_array([sessions, added])})
    names = ["same_keys", "histories"] if repeating else ["same_keys"]
    tables = [queries.read(name, asked, repeating=sorted(repeating)) for name in names]
    events = pa.concat_tables(tables).group_by(tables[0].column_names).aggregate([])
    if not events.num_rows:
        return RepeatedEvents({}, {})
    copies = copied(events, parents)
    by_session: dict[str, set[str]] = {}
    for row in events.filter(pa.array(copies)).to_pylist():
        ts_us = round(row["ts"].timestamp() * 1_000_000)
        name = event_name(row["event_id"], row["source"], row["source_key"], ts_us, row["seq"])
        by_session.setdefault(row["session_id"], set()).add(name)
    frozen = {session: frozenset(names) for session, names in by_session.items()}
    return RepeatedEvents(frozen, only_copies(events, copies))


def first_sampled(
    queries: SnapshotQueries,
    sessions: pa.Array,
    copies: Mapping[str, frozenset[str]],
    *,
    engine: bool,
) -> pa.Table:
    """Find when each session's first own tokens were sampled. `engine`: only an engine's count."""
    asked = pa.table({"session_id": sessions})
    rows = queries.read("sampled", asked, copying=sorted(copies), engine=engine)
    is_copying = pc.is_in(rows["session_id"], value_set=pa.array(copies, pa.string()))
    others = rows.filter(pc.invert(is_copying)).select(["session_id", "sampled_us"])
    own = []
    for row in rows.filter(is_copying).to_pylist():
        session, sampled_us = row.pop("session_id"), row.pop("sampled_us")
        if event_name(ts_us=sampled_us, **row) not in copies[session]:
            own.append({"session_id": session, "sampled_us": sampled_us})
    moments = pa.concat_tables([others, pa.Table.from_pylist(own, others.schema)])
    first = moments.group_by("session_id").aggregate([("sampled_us", "min")])
    return first.rename_columns(["session_id", "sampled_us"]).sort_by("session_id")


def copied(events: pa.Table, parents: Mapping[str, str]) -> Mask:
    """Mask copies among all events of sessions and their parents."""
    parents = _without_rings(parents)
    rank = _ranks(events, parents)
    return (
        _same_in_another(events, rank, ("source", "source_key"))
        | _same_history(events, parents)
        | _same_in_another(events, rank, ("sampled",))
    )


def only_copies(events: pa.Table, copies: Mask) -> Exclusions:
    """Exclude sessions whose model wrote only copies."""
    written = pc.equal(events["type"], WRITTEN).to_numpy(zero_copy_only=False)
    sessions = events["session_id"]
    own = set(sessions.filter(pa.array(written & ~copies)).to_pylist())
    repeated = set(sessions.filter(pa.array(written & copies)).to_pylist())
    return {session: Exclusion("copy") for session in sorted(repeated - own)}


def _ranks(events: pa.Table, parents: Mapping[str, str]) -> NDArray[np.int64]:
    """Rank events. The lowest of equal events is the original.

    Sessions with fewer ancestors come first, then earlier events, then lesser session names."""
    depths: dict[str, int] = {}  # the number of ancestors
    for session in parents:
        depths[session], ancestor = 0, parents.get(session)
        while ancestor is not None:
            depths[session], ancestor = depths[session] + 1, parents.get(ancestor)
    depth = [depths.get(session, 0) for session in events["session_id"].to_pylist()]
    order = pc.sort_indices(
        events.select(["ts", "session_id", "seq"]).append_column("depth", pa.array(depth)),
        [(name, "ascending") for name in ("depth", "ts", "session_id", "seq")],
    ).to_numpy()
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank


def _without_rings(parents: Mapping[str, str]) -> dict[str, str]:
    """Break cycles of parents at the least session, so that one is the original."""
    straight = dict(parents)
    for session in sorted(parents):
        path, ancestor = {session}, straight.get(session)
        while ancestor is not None and ancestor not in path:
            path.add(ancestor)
            ancestor = straight.get(ancestor)
        if ancestor == session:
            del straight[session]
    return straight


def _same_in_another(events: pa.Table, rank: NDArray[np.int64], columns: tuple[str, ...]) -> Mask:
    """Mask events that equal a lower-ranked event of another session in these columns."""
    pairs = np.stack([encoded(events[name])[0] for name in columns], axis=1)
    known = reduce(pc.and_, (events[name].is_valid() for name in columns))
    sessions = encoded(events["session_id"])[0]
    _, group = np.unique(pairs, axis=0, return_inverse=True)
    by_rank = np.argsort(rank)[::-1]
    session_of_first = np.empty(len(pairs), np.int64)
    session_of_first[group[by_rank]] = sessions[by_rank]  # of several, the last one stays
    copies: Mask = known.to_numpy(zero_copy_only=False) & (session_of_first[group] != sessions)
    return copies


def _same_history(events: pa.Table, parents: Mapping[str, str]) -> Mask:
    involved = pa.array(sorted({*parents, *parents.values()}), pa.string())
    is_message = pc.and_(
        pc.is_in(events["session_id"], value_set=involved),
        pc.is_in(events["type"], value_set=pa.array(_MESSAGES)),
    )
    rows = np.flatnonzero(is_message.to_numpy(zero_copy_only=False))
    ordered = events.take(rows).append_column("row", pa.array(rows))
    ordered = ordered.sort_by([(name, "ascending") for name in ("session_id", "ts", "seq", "row")])
    messages: dict[str, list[tuple[Any, ...]]] = {}
    names = ("session_id", "row", "type", "message", "written")
    for session, *message in zip(*(ordered[name].to_pylist() for name in names), strict=True):
        messages.setdefault(session, []).append(tuple(message))
    copies = np.zeros(events.num_rows, bool)
    for session, parent in parents.items():
        pairs = zip(messages.get(session, ()), messages.get(parent, ()), strict=False)
        copies[[own[0] for own, _ in takewhile(_are_equal, pairs)]] = True
    return copies


def _are_equal(pair: tuple[tuple[Any, ...], tuple[Any, ...]]) -> bool:
    """Compare two messages. If both have tokens, these must be equal too."""
    (_, kind, message, written), (_, other_kind, other_message, other_written) = pair
    if kind != other_kind or message != other_message:
        return False
    if written is not None and other_written is not None:
        return bool(written == other_written)
    return message is not None
