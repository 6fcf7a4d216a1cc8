"""Everything that a verdict rests on: the results of a checkpoint and of the incumbent, the policy,
the newest look at the canary. All of it is read as it was at one moment."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.checkpoints.attempt import Attempt, AttemptScope, RecordedAttempt
from penstock.checkpoints.registration import find_in
from penstock.checkpoints.scores import read_attempts
from penstock.checkpoints.suites import SuiteVersion, read_versions
from penstock.checkpoints.tables import benchmark_attempt, benchmark_run
from penstock.database.engine import now_us
from penstock.errors import InvalidInput
from penstock.gate.designs import Design, read_design
from penstock.gate.policy import CanarySteps, Policy, digest_of, parse
from penstock.gate.tables import gate_policy, live_look


@dataclass(frozen=True, kw_only=True)
class GatedChannel:
    """The channel that a checkpoint is judged for, as it is at one moment. Version 0 is a channel
    that nobody has used yet."""

    tenant: str
    name: str
    version: int = 0
    checkpoint: str | None = None
    #: The digest of its gate policy.
    policy: str | None = None
    canary: str | None = None
    #: The version at which its present canary began.
    canary_since: int = 0


@dataclass(frozen=True)
class CheckpointIdentity:
    name: str
    digest: str
    state: str = "registered"


@dataclass(frozen=True, order=True)
class AttemptSource:
    """Who made attempts: an agent by its command, or an import of a format. Of an import nobody
    knows whether its attempts were isolated."""

    kind: str
    source: str
    isolated: bool = True


@dataclass(frozen=True)
class SideEvidence:
    """What one of the two has shown on a suite, at the version that counts; and the other versions
    at which it was tried."""

    attempts: Sequence[RecordedAttempt] = ()
    elsewhere: Sequence[str] = ()
    #: By which its attempts were made, where they were made until the verdict stands.
    design: Design | None = None
    makers: Sequence[AttemptSource] = ()

    @property
    def digest(self) -> str:
        return digest_of_attempts(self.attempts)


@dataclass(frozen=True)
class SuiteEvidence:
    """`version` is None where nobody knows the suite, or not the version that the policy names;
    `tasks` is empty where nobody knows which there should be."""

    suite: str
    version: str | None
    tasks: Sequence[str]
    candidate: SideEvidence
    incumbent: SideEvidence | None
    #: Why no version counts, though there are some.
    unlisted: str | None = None


@dataclass(frozen=True)
class LiveLook:
    """The newest look at the canary that runs; without a document nobody has looked yet."""

    since_version: int | None
    at: int | None = None
    document: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that a verdict rests on, and nothing else."""

    channel: str
    channel_version: int
    candidate: CheckpointIdentity
    incumbent: CheckpointIdentity | None
    policy: Policy | None
    #: The policy's name, and why it cannot be used.
    policy_digest: str | None = None
    policy_problem: str | None = None
    suites: dict[str, SuiteEvidence] = field(default_factory=dict)
    full: bool = True
    live: LiveLook | None = None
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
    """Read all that a verdict on a checkpoint rests on, in the transaction that read the channel.
    Raises CheckpointUnknown."""
    candidate = _identity(connection, channel.tenant, checkpoint)
    incumbent = (
        _identity(connection, channel.tenant, channel.checkpoint) if channel.checkpoint else None
    )
    policy, problem = _read_policy(connection, channel)
    full = full or _nearly_full(policy, share)
    names = (candidate.name, incumbent.name if incumbent else None)
    suites = {
        suite: _suite(connection, channel.tenant, suite, pinned, names)
        for suite, pinned in (_pinned_versions(policy) if policy else {}).items()
    }
    live = _live(connection, channel, candidate.name) if channel.version and full else None
    # After all else: nothing that was read is from after this.
    now = at_us if at_us is not None else connection.scalar(sa.select(now_us()))
    return Evidence(
        channel=channel.name,
        channel_version=channel.version,
        candidate=candidate,
        incumbent=incumbent,
        policy=policy,
        policy_digest=channel.policy,
        policy_problem=problem,
        suites=suites,
        full=full,
        live=live,
        at=now or 0,
        code=code_version(),
    )


def digest_of_attempts(attempts: Iterable[RecordedAttempt]) -> str:
    """The name of a set of results, whatever their order."""
    rows = sorted(
        ([getattr(one.result, each.name) for each in fields(Attempt)], one.run, one.scored_at)
        for one in attempts
    )
    return f"sha256:{hashlib.sha256(msgspec.json.encode(rows)).hexdigest()}"


def code_version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:  # a checkout that was not installed
        return "0"


def _nearly_full(policy: Policy | None, share: float | None) -> bool:
    """A canary with more than the last of its steps is no canary any more."""
    steps = (policy.canary if policy and policy.canary else CanarySteps()).steps
    return share is not None and share > steps[-1]


def _identity(connection: Connection, tenant: str, checkpoint: str) -> CheckpointIdentity:
    known = find_in(connection, tenant, checkpoint)
    return CheckpointIdentity(known.name, known.digest, known.state)


def _read_policy(connection: Connection, channel: GatedChannel) -> tuple[Policy | None, str | None]:
    """The channel's policy, or why it cannot be used. Both are None where it has none."""
    if channel.policy is None:
        return None, None
    query = sa.select(gate_policy.c.text).where(
        gate_policy.c.tenant == channel.tenant, gate_policy.c.digest == channel.policy
    )
    text = connection.scalar(query)
    if text is None or digest_of(text) != channel.policy:
        return None, f"the policy {channel.policy} is not there as it was written"
    try:
        return parse(text, f"the policy of the channel {channel.name}"), None
    except InvalidInput as error:
        return None, str(error)


def _pinned_versions(policy: Policy) -> dict[str, str | None]:
    """Each suite that the policy names, with the version that it names, if any."""
    return {suite: policy.versions.get(suite) for suite in policy.suites}


def _suite(
    connection: Connection,
    tenant: str,
    suite: str,
    pinned: str | None,
    names: tuple[str, str | None],
) -> SuiteEvidence:
    versions = read_versions(connection, tenant, suite)
    counts = _counting(versions, pinned)
    unlisted = _unlisted(versions, counts) if counts and pinned is None else None
    if unlisted is not None:
        counts = None
    sides = [
        _side(connection, tenant, suite, counts.version if counts else None, name) if name else None
        for name in names
    ]
    return SuiteEvidence(
        suite=suite,
        version=counts.version if counts else None,
        tasks=tuple(sorted(one.name for one in counts.tasks)) if counts else (),
        candidate=sides[0] or SideEvidence(),
        incumbent=sides[1],
        unlisted=unlisted,
    )


def _unlisted(versions: Sequence[SuiteVersion], counts: SuiteVersion) -> str | None:
    """Results of a few tasks under a new version are not to pass for the whole suite."""
    listing = [one.version for one in versions if one.tasks]
    if counts.tasks or not listing:
        return None
    return (
        f"of the newest version of {counts.suite}, {counts.version}, nobody knows the tasks, as of"
        f" {listing[-1]}: name the one that counts under [suites] of the policy"
    )


def _counting(versions: Sequence[SuiteVersion], pinned: str | None) -> SuiteVersion | None:
    """The one that the policy names, else the newest one."""
    known = [one for one in versions if pinned in (None, one.version)]
    return known[-1] if known else None


def _side(
    connection: Connection, tenant: str, suite: str, counts: str | None, checkpoint: str
) -> SideEvidence:
    mine = benchmark_attempt.c
    query = sa.select(mine.suite_version).where(
        mine.tenant == tenant, mine.suite == suite, mine.checkpoint == checkpoint
    )
    tried = sorted(connection.scalars(query.distinct()))
    if counts is None:
        return SideEvidence(elsewhere=tried)
    place = AttemptScope(tenant, suite, counts, checkpoint)
    attempts = read_attempts(connection, place)
    return SideEvidence(
        attempts,
        [one for one in tried if one != counts],
        read_design(connection, place),
        _makers(connection, {one.run for one in attempts}),
    )


def _makers(connection: Connection, runs: Collection[str]) -> list[AttemptSource]:
    columns = (benchmark_run.c.kind, benchmark_run.c.source, benchmark_run.c.conditions)
    rows = connection.execute(sa.select(*columns).where(benchmark_run.c.id.in_(runs)))
    return sorted({AttemptSource(kind, source, _isolated(text)) for kind, source, text in rows})


def _isolated(conditions: str | None) -> bool:
    found = msgspec.json.decode(conditions) if conditions else {}
    return found.get("isolated") is not False


def _live(connection: Connection, channel: GatedChannel, candidate: str) -> LiveLook:
    """The newest look at the present canary. Looks at an earlier canary with the same checkpoint
    do not count."""
    if channel.canary != candidate:
        return LiveLook(None)
    query = (
        sa.select(live_look.c.at, live_look.c.document)
        .where(
            live_look.c.tenant == channel.tenant,
            live_look.c.channel == channel.name,
            live_look.c.candidate == candidate,
            live_look.c.incumbent == channel.checkpoint,
            live_look.c.since_version >= channel.canary_since,
        )
        .order_by(live_look.c.id.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    if row is None:
        return LiveLook(channel.canary_since)
    try:
        document = msgspec.json.decode(row.document)
    except msgspec.DecodeError:
        document = None
    return LiveLook(channel.canary_since, row.at, document if isinstance(document, dict) else {})
