"""The evidence of a verdict, read at one moment: attempts of candidate and incumbent, the policy,
and the newest look at the canary. And approvals."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.backends.audit.chain import append
from penstock.backends.audit.entry import BEGINNING, Deed, Flaw, Head
from penstock.backends.database.engine import Database, clock_us, put_rows
from penstock.core.errors import InvalidInput
from penstock.registry.checkpoints.attempts import RecordedAttempt, result_values
from penstock.registry.checkpoints.checkpoint import (
    Checkpoint,
    check_channel_name,
    check_name,
    check_reason,
)
from penstock.registry.checkpoints.digests import text_digest
from penstock.registry.checkpoints.harness import Harness, harness_in
from penstock.registry.checkpoints.integrity import read_checked
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.lineage import MarkedTraining, learned_of, marked_training
from penstock.registry.checkpoints.registration import find_in
from penstock.registry.checkpoints.suites import SuiteVersion, read_versions, suite_scope
from penstock.registry.checkpoints.tables import benchmark_attempt
from penstock.registry.gate.designs import Design, design_in
from penstock.registry.gate.policy import CanarySteps, Policy, parse
from penstock.registry.gate.tables import approval, gate_policy, live_look


class GatedChannel(msgspec.Struct, frozen=True, kw_only=True):
    tenant: str
    name: str
    version: int = 0
    checkpoint: str | None = None
    policy: str | None = None
    canary: str | None = None
    #: The version at which the present canary started.
    canary_since: int = 0
    #: Time of the last rollback; earlier approvals do not count.
    rolled_back_at: int = 0
    #: How its history was altered.
    flaw: Flaw | None = None
    #: Whether a key of the lake signs its history and the journals.
    signed: bool = True


@dataclass(frozen=True)
class AttemptSource:
    kind: str
    source: str
    isolated: bool = True
    harness: Harness | None = None


@dataclass(frozen=True)
class SideEvidence:
    """Attempts of the candidate or the incumbent at the suite version that counts."""

    attempts: Sequence[RecordedAttempt] = ()
    #: Other versions of the suite with attempts.
    elsewhere: Sequence[str] = ()
    #: The plan of its attempts, if they were added until a decision.
    design: Design | None = None
    makers: Sequence[AttemptSource] = ()
    #: The journal up to now, and which rows differ from it.
    journal: Head = BEGINNING
    alterations: Sequence[str] = ()
    #: The version of these attempts, if it is an older one.
    version: str | None = None
    #: Sessions that tasks were made from, and that it learned from.
    seen: Sequence[str] = ()

    @property
    def tasks(self) -> set[str]:
        return {each.result.task for each in self.attempts}

    @property
    def digest(self) -> str:
        """The digest of these attempts in any order."""
        rows = ((result_values(each.result), each.run, each.scored_at) for each in self.attempts)
        return f"sha256:{hashlib.sha256(msgspec.json.encode(sorted(rows))).hexdigest()}"


class SuiteEvidence(msgspec.Struct, frozen=True):
    """`tasks` is empty if the suite's tasks are unknown."""

    suite: str
    version: str | None
    tasks: Sequence[str]
    candidate: SideEvidence
    incumbent: SideEvidence | None
    #: Why no version counts, though some exist.
    unlisted: str | None = None
    #: Tasks that are not the same at the incumbent's version, with the reason.
    apart: Mapping[str, str] = msgspec.field(default_factory=dict)
    journal: Head = BEGINNING
    alterations: Sequence[str] = ()


class LiveLook(msgspec.Struct, frozen=True):
    """The newest look at the running canary; without a document there was none."""

    since_version: int | None
    at: int | None = None
    document: dict[str, Any] | None = None


@dataclass(frozen=True)
class GivenApproval:
    actor: str
    reason: str
    at: int


@dataclass(frozen=True, kw_only=True)
class Evidence:
    channel: GatedChannel
    candidate: Checkpoint
    incumbent: Checkpoint | None
    policy: Policy | None
    policy_problem: str | None = None
    suites: dict[str, SuiteEvidence] = field(default_factory=dict)
    full: bool = True
    live: LiveLook | None = None
    #: Sessions of the candidate's training that were erased or lost their consent.
    training: MarkedTraining = field(default_factory=MarkedTraining)
    #: By actor, since the last rollback.
    approvals: Sequence[GivenApproval] = ()
    at: int
    code: str


def gather_evidence(
    connection: Connection,
    channel: GatedChannel,
    checkpoint: str,
    *,
    full: bool = True,
    share: float | None = None,
    at_us: int | None = None,
) -> Evidence:
    """Gather evidence in the transaction that read the channel. Raises CheckpointUnknown."""
    tenant = channel.tenant
    candidate = find_in(connection, tenant, checkpoint)
    incumbent = find_in(connection, tenant, channel.checkpoint) if channel.checkpoint else None
    policy, problem = _read_policy(connection, channel)
    # A share above the last step is no canary.
    steps = (policy.canary if policy and policy.canary else CanarySteps()).steps
    full = full or (share is not None and share > steps[-1])
    names = (candidate.name, incumbent.name if incumbent else None)
    pinned = {suite: policy.versions.get(suite) for suite in policy.suites} if policy else {}
    suites = {
        suite: _suite_evidence(connection, tenant, suite, version, names)
        for suite, version in pinned.items()
    }
    return Evidence(
        channel=channel,
        candidate=candidate,
        incumbent=incumbent,
        policy=policy,
        policy_problem=problem,
        suites=suites,
        full=full,
        live=_live_look(connection, channel, candidate.name) if channel.version and full else None,
        training=marked_training(connection, candidate),
        approvals=_approvals(connection, channel, candidate.name),
        # Last, so that nothing read is later.
        at=clock_us(connection) if at_us is None else at_us,
        code=metadata.version("penstock"),
    )


def _approvals(
    connection: Connection, channel: GatedChannel, candidate: str
) -> list[GivenApproval]:
    columns = approval.c
    query = (
        sa.select(columns.actor, columns.reason, columns.at)
        .where(columns.tenant == channel.tenant, columns.channel == channel.name)
        .where(columns.checkpoint == candidate, columns.at > channel.rolled_back_at)
        .order_by(columns.actor)
    )
    return [GivenApproval(*row) for row in connection.execute(query)]


def _read_policy(connection: Connection, channel: GatedChannel) -> tuple[Policy | None, str | None]:
    """The channel's policy, or why it cannot be used; None for both without a policy."""
    if channel.policy is None:
        return None, None
    columns = gate_policy.c
    query = sa.select(columns.text).where(columns.tenant == channel.tenant)
    text = connection.scalar(query.where(columns.digest == channel.policy))
    if text is None or text_digest(text) != channel.policy:
        return None, f"the stored policy {channel.policy} is missing or changed"
    try:
        return parse(text, f"the policy of the channel {channel.name}"), None
    except InvalidInput as error:
        return None, str(error)


def _suite_evidence(
    connection: Connection,
    tenant: str,
    suite: str,
    pinned: str | None,
    names: tuple[str, str | None],
) -> SuiteEvidence:
    """`pinned` is the version that the policy names; otherwise the newest one counts."""
    checked = read_checked(connection, suite_scope(tenant, suite))
    versions = [] if checked.alterations else read_versions(connection, tenant, suite)
    matching = [known for known in versions if pinned in (None, known.version)]
    counting, unlisted = (matching[-1] if matching else None), None
    listing = [known.version for known in versions if known.tasks]
    if counting and pinned is None and listing and not counting.tasks:
        # A few results under a new version must not pass for the whole suite.
        unlisted = (
            f"the tasks of {suite} at its newest version {counting.version} are unknown; those at"
            f" {listing[-1]} are known: name the version under [suites] of the policy"
        )
        counting = None
    candidate, incumbent = (
        _side_evidence(connection, tenant, suite, counting, name) if name else None
        for name in names
    )
    apart: dict[str, str] = {}
    missing = incumbent and not (incumbent.attempts or incumbent.alterations)
    if counting and names[1] and incumbent and missing:
        # A suite was renewed since: the tasks that stayed the same count.
        older = [known for known in versions if known.version in incumbent.elsewhere]
        same = older[-1].shares(counting) if older else set()
        if same:
            side = _side_evidence(connection, tenant, suite, older[-1], names[1])
            kept = [each for each in side.attempts if each.result.task in same]
            at = older[-1].version
            incumbent = replace(side, attempts=kept, elsewhere=(), version=at)
            reason = f"{names[1]} was scored at {at}, which has no such task"
            apart = {task.name: reason for task in counting.tasks if task.name not in same}
    tasks = tuple(sorted(task.name for task in counting.tasks)) if counting else ()
    version = counting.version if counting else None
    told = unlisted, apart, checked.journal.head, checked.alterations
    return SuiteEvidence(suite, version, tasks, candidate or SideEvidence(), incumbent, *told)


def _side_evidence(
    connection: Connection, tenant: str, suite: str, counting: SuiteVersion | None, name: str
) -> SideEvidence:
    columns = benchmark_attempt.c
    query = sa.select(columns.suite_version).where(columns.tenant == tenant, columns.suite == suite)
    tried = sorted(connection.scalars(query.where(columns.checkpoint == name).distinct()))
    if counting is None:
        return SideEvidence(elsewhere=tried)
    scope = AttemptScope(tenant, suite, counting.version, name)
    checked = read_checked(connection, scope)
    attempts = checked.attempts
    sources = set()
    for run in {each.run for each in attempts} & checked.journal.runs.keys():
        facts = checked.journal.runs[run]
        conditions = facts["conditions"] or {}
        isolated = conditions.get("isolated") is not False
        made = AttemptSource(facts["kind"], facts["source"], isolated, harness_in(conditions))
        sources.add(made)
    elsewhere = [version for version in tried if version != counting.version]
    makers = sorted(sources, key=str)
    made_from = counting.content.sessions if counting.content else ()
    seen = learned_of(connection, find_in(connection, tenant, name), made_from)
    told = design_in(checked.journal), makers, checked.journal.head, checked.alterations
    return SideEvidence(attempts, elsewhere, *told, seen=seen)


def _live_look(connection: Connection, channel: GatedChannel, candidate: str) -> LiveLook:
    """The newest look since the present canary started."""
    if channel.canary != candidate:
        return LiveLook(None)
    columns, since = live_look.c, channel.canary_since
    query = (
        sa.select(columns.at, columns.document)
        .where(columns.tenant == channel.tenant, columns.channel == channel.name)
        .where(columns.candidate == candidate, columns.incumbent == channel.checkpoint)
        .where(columns.since_version >= since)
        .order_by(columns.id.desc())
    )
    row = connection.execute(query.limit(1)).first()
    if row is None:
        return LiveLook(since)
    try:
        document = msgspec.json.decode(row.document)
    except msgspec.DecodeError:
        document = None
    return LiveLook(since, row.at, document if isinstance(document, dict) else {})


def approve(
    database: Database, *, tenant: str, channel: str, checkpoint: str, actor: str, reason: str
) -> GivenApproval:
    """Approve a checkpoint by name or digest; a repetition renews it. Raises CheckpointUnknown,
    InvalidInput."""
    check_channel_name(channel)
    actor, reason = check_name("Who does it", actor), check_reason(reason)
    with database.write() as connection:
        name = find_in(connection, tenant, checkpoint).name
        place = {"tenant": tenant, "channel": channel, "checkpoint": name, "actor": actor}
        given = GivenApproval(actor, reason, clock_us(connection))
        put_rows(connection, approval, [place | {"reason": reason, "at": given.at}])
        facts = {"channel": channel}
        append(connection, Deed(tenant, actor, "approve", f"checkpoint {name}", facts))
    return given
