"""How each session of a bucket ends: scored, negative by rule, censored or excluded, or not yet.

Leaving a session out is a reward decision too: a model was seen to break its tool calls where it
expected to fail, because such sessions were dropped. So every session of a bucket has exactly one
outcome, with a reason. RULES are asked in their order, and the first that holds decides; where
none does, the outcome is the standing of the session's reward.

A rule that more events could still change does not decide while the session is open: the session
is `pending`, `still_open`. Events after the bucket's `as_of_us` are not looked at.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import TABLES, Bucket, EditParameters
from penstock_jobs.rewards.definition import UNKNOWN, Standing
from penstock_jobs.rewards.measures.edits import edit_persistence
from penstock_jobs.rewards.texts.trail import SECOND

Kind = Literal["scored", "negative_by_rule", "censored", "excluded", "pending"]
#: When something happened: ts in microseconds, then seq.
Moment = tuple[int, int]
_BEFORE_ALL: Moment = (-1, -1)

STILL_OPEN = "still_open"
_BY_AGENT = ("model_calls", "tool_calls", "edits")
#: An edit that is censored or invalid for these reasons is known not to be there.
_NOT_THERE = ("self_rework", "nothing_written")


@dataclass(frozen=True)
class Outcome:
    """`value` is there where the outcome is scored or negative by rule. `checkpoint` is named
    where the agent acted by one alone."""

    session_id: str
    kind: Kind
    reason: str | None = None
    value: float | None = None
    checkpoint: str | None = None
    #: Of a pending one: by when it is pending no more, without any new event.
    due_us: int | None = None
    #: Of a scored one: which rewards it was scored without.
    without: str | None = None


@dataclass(frozen=True)
class OutcomeLimits:
    """What the rules go by."""

    #: A session without an end is over when nothing was heard of it for this time, in seconds.
    quiet_s: float = 3600.0
    #: An edit is kept when more of it than this share is still there.
    kept_min: float = 0.05
    #: What a negative by rule is worth, unless its rewards say that it is worth even less.
    negative_value: float = -1.0
    #: By which horizons it is measured whether an edit was kept. Those of the definition: then
    #: the texts are compared only once.
    persistence: EditParameters = field(default_factory=EditParameters)


@dataclass(frozen=True)
class RuleFacts:
    """What the rules know of a session."""

    consent: str
    over: bool
    acted: bool
    #: Whether each tool call was invalid, in order.
    calls: tuple[bool, ...]
    edited_after_last_call: bool
    #: The user stopped it after their last message.
    stopped: bool
    #: An edit is there still, or nobody knows that it is not.
    may_be_kept: bool
    #: When it will be over if nothing more is heard of it.
    quiet_at_us: int | None = None


def no_train(facts: RuleFacts) -> bool:
    """The user does not want it to be learned from."""
    return facts.consent == "no_train"


def no_agent(facts: RuleFacts) -> bool:
    """The agent did nothing that a reward could be about."""
    return not facts.acted


def invalid_tool_calls(facts: RuleFacts) -> bool:
    """No tool call could be understood, or the last could not and no edit followed."""
    if not facts.calls:
        return False
    return all(facts.calls) or (facts.calls[-1] and not facts.edited_after_last_call)


def abandoned(facts: RuleFacts) -> bool:
    """The user stopped it, and nothing that it wrote is there."""
    return facts.stopped and not facts.may_be_kept


class Rule(NamedTuple):
    """The name of `holds` is the reason. `while_open`: no later event can take it back."""

    kind: Literal["excluded", "negative_by_rule"]
    holds: Callable[[RuleFacts], bool]
    while_open: bool = False

    @property
    def reason(self) -> str:
        return self.holds.__name__


RULES = (
    Rule("excluded", no_train, while_open=True),
    Rule("excluded", no_agent),
    Rule("negative_by_rule", invalid_tool_calls),
    Rule("negative_by_rule", abandoned),
)


def outcomes(
    bucket: Bucket,
    standings: Mapping[str, Standing],
    consents: Mapping[str, str],
    limits: OutcomeLimits | None = None,
) -> list[Outcome]:
    """One for each session of the bucket, by session_id. `standings` and `consents` are by
    session; a session without a standing is censored. One consent of `no_train`, there or in the
    rows of the bucket, is enough."""
    limits = limits or OutcomeLimits()
    tables = {name: _until(getattr(bucket, name), bucket.as_of_us) for name in TABLES}
    checkpoints = _checkpoints(tables)
    decided = []
    for session, facts in sorted(_facts(bucket, tables, consents, limits).items()):
        standing = standings.get(session, UNKNOWN)
        kind, reason, value = decide(facts, standing, limits.negative_value)
        due_us = without = None
        if kind == "pending":
            due_us = facts.quiet_at_us if reason == STILL_OPEN else standing.due_us
        elif kind == "scored":
            reason, without = None, reason
        checkpoint = checkpoints.get(session)
        decided.append(Outcome(session, kind, reason, value, checkpoint, due_us, without))
    return decided


def decide(
    facts: RuleFacts, standing: Standing, negative_value: float = -1.0
) -> tuple[Kind, str | None, float | None]:
    """The kind, the reason and the value."""
    for rule in RULES:
        if not rule.holds(facts):
            continue
        if not (facts.over or rule.while_open):
            return "pending", STILL_OPEN, None
        if rule.kind == "excluded":
            return rule.kind, rule.reason, None
        worth = negative_value if standing.value is None else min(standing.value, negative_value)
        return rule.kind, rule.reason, worth
    if standing.state == "invalid":
        return "censored", f"invalid: {standing.reason}", None
    return standing.state, standing.reason, standing.value


def _facts(
    bucket: Bucket,
    tables: Mapping[str, pa.Table],
    consents: Mapping[str, str],
    limits: OutcomeLimits,
) -> dict[str, RuleFacts]:
    latest = {name: _latest(_moments(table)) for name, table in tables.items()}
    messages, edits = latest["user_messages"], latest["edits"]
    acted = {session for name in _BY_AGENT for session in latest[name]}
    ends, stops = _ends_and_stops(tables["events"])
    calls = _calls(tables["tool_calls"])
    whole_tables = [getattr(bucket, name) for name in TABLES]
    # Also after `as_of_us`: consent does not wait.
    refused = {session for session, consent in consents.items() if consent == "no_train"}
    for table in whole_tables:
        if table.num_rows and "consent" in table.column_names:
            refused.update(_sessions(table.filter(pc.equal(table["consent"], "no_train"))))
    stopped = {session for session, at in stops.items() if at > messages.get(session, _BEFORE_ALL)}
    kept = _may_be_kept(bucket, limits) if stopped & edits.keys() else set()
    facts = {}
    for session in {session for table in whole_tables for session in _sessions(table)}:
        moments = [of_table[session][0] for of_table in latest.values() if session in of_table]
        quiet_at_us = max(moments) + round(limits.quiet_s * SECOND) if moments else None
        quiet = quiet_at_us is not None and quiet_at_us <= bucket.as_of_us
        ended = ends.get(session, _BEFORE_ALL) > messages.get(session, _BEFORE_ALL)
        own_calls = calls.get(session, [])
        last_call = own_calls[-1][0] if own_calls else _BEFORE_ALL
        facts[session] = RuleFacts(
            consent="no_train" if session in refused else consents.get(session, "unknown"),
            over=ended or quiet,
            acted=session in acted,
            calls=tuple(invalid for _, invalid in own_calls),
            edited_after_last_call=edits.get(session, _BEFORE_ALL) > last_call,
            stopped=session in stopped,
            may_be_kept=session in kept,
            quiet_at_us=quiet_at_us,
        )
    return facts


def _may_be_kept(bucket: Bucket, limits: OutcomeLimits) -> set[str]:
    """The sessions with an edit that may still be there: it is at the latest horizon at which
    anybody knows, or nobody does. At 0 s everything is there: that says nothing."""
    rows = edit_persistence(bucket, limits.persistence)
    rows = rows.filter(pc.equal(rows["target_kind"], "edit")).sort_by("horizon_s")
    by_edit: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        by_edit.setdefault((row["session_id"], row["target_id"]), []).append(row)
    sessions = set()
    for (session, _), own in by_edit.items():
        values = [row["value"] for row in own if row["horizon_s"] and row["value"] is not None]
        if values:
            kept = values[-1] > limits.kept_min
        else:
            kept = not all(row["reason"] in _NOT_THERE for row in own)
        if kept:
            sessions.add(session)
    return sessions


def _calls(tool_calls: pa.Table) -> dict[str, list[tuple[Moment, bool]]]:
    """Each session's, in order, and whether each was invalid."""
    calls: dict[str, list[tuple[Moment, bool]]] = {}
    if tool_calls.num_rows:
        classes = tool_calls["error_class"].to_pylist()
        for (session, at), error_class in zip(_moments(tool_calls), classes, strict=True):
            calls.setdefault(session, []).append((at, error_class == "invalid_arguments"))
    return {session: sorted(own) for session, own in calls.items()}


def _ends_and_stops(events: pa.Table) -> tuple[dict[str, Moment], dict[str, Moment]]:
    """When each session ended, and when the user stopped it."""
    if not events.num_rows:
        return {}, {}
    events = events.filter(pc.is_in(events["type"], pa.array(["session_end", "interrupt"])))
    ends, stops = [], []
    columns = (_moments(events), events["type"].to_pylist(), events["payload"].to_pylist())
    for moment, kind, payload in zip(*columns, strict=True):
        if kind == "session_end":
            ends.append(moment)
        if kind == "interrupt" or _reason_of(payload) == "user_stop":
            stops.append(moment)
    return _latest(ends), _latest(stops)


def _reason_of(payload: str) -> object:
    try:
        return msgspec.json.decode(payload).get("reason")
    except (msgspec.DecodeError, AttributeError):
        return None


def _checkpoints(tables: Mapping[str, pa.Table]) -> dict[str, str]:
    """Of the sessions in which the agent acted by one checkpoint alone."""
    names: dict[str, set[str]] = {}
    for table in (tables[name] for name in _BY_AGENT):
        if table.num_rows:
            for row in table.group_by(["session_id", "checkpoint"]).aggregate([]).to_pylist():
                if row["checkpoint"] is not None:
                    names.setdefault(row["session_id"], set()).add(row["checkpoint"])
    return {session: min(own) for session, own in names.items() if len(own) == 1}


def _until(table: pa.Table, as_of_us: int) -> pa.Table:
    if not table.num_rows:
        return table
    return table.filter(pc.less_equal(table["ts"].cast(pa.int64()), as_of_us))


def _latest(moments: Iterable[tuple[str, Moment]]) -> dict[str, Moment]:
    latest: dict[str, Moment] = {}
    for session, at in moments:
        if at > latest.get(session, _BEFORE_ALL):
            latest[session] = at
    return latest


def _moments(table: pa.Table) -> Iterator[tuple[str, Moment]]:
    if table.num_rows:
        times = table["ts"].cast(pa.int64()).to_pylist()
        columns = (table["session_id"].to_pylist(), times, table["seq"].to_pylist())
        for session, ts, seq in zip(*columns, strict=True):
            yield session, (ts, seq or 0)


def _sessions(table: pa.Table) -> list[str]:
    return table["session_id"].unique().to_pylist() if table.num_rows else []
