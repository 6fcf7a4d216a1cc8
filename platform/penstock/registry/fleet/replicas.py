"""The replicas of channels and their reports."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Literal, NamedTuple

import msgspec
import sqlalchemy as sa
from msgspec import Meta
from sqlalchemy import Connection

from penstock.backends.database.engine import Database, insert_of, now_us
from penstock.backends.terminal.output import time_text
from penstock.core.endpoint import Caller, Endpoint, ListRequest, Page, Request, page_of
from penstock.core.errors import PenstockError
from penstock.core.files import sha256_digest
from penstock.core.metrics import Metrics
from penstock.core.room import Endpoints
from penstock.core.settings import Settings
from penstock.lake.lake import Lake
from penstock.registry.channels.channel import channel_state_in
from penstock.registry.channels.tables import replica
from penstock.registry.checkpoints.checkpoint import TEXT_CHARS_MAX, check_name
from penstock.registry.fleet import FleetSettings
from penstock.registry.fleet.fleet_status import (
    STATES,
    PartName,
    PartStatus,
    ReplicaGroup,
    part_statuses,
)

FORGET_SECONDS = 3_600.0
REPLICAS_MAX = 2_000

FleetKey = tuple[str, str]


class ReplicaTaken(PenstockError, http_status=409):
    """Another sidecar already reports as the replica {replica} of {channel}. Give each replica its
    own name with --replica. A sidecar that was killed counts as silent soon."""


class ReplicasFull(PenstockError, http_status=409):
    """The channel {channel} already has {limit} replicas. No more are accepted."""


class Report(Request):
    """A replica with the state `left` is forgotten. `loaded` is null if unknown."""

    name: str
    replica: str
    state: Literal["waiting", "fetching", "loading", "loaded", "failed", "left"]
    sidecar: Annotated[str, Meta(pattern="^[A-Za-z0-9]{1,32}$")]
    part: PartName = "main"
    wanted: str | None = None
    version: Annotated[int, Meta(ge=0, le=2**63 - 1)] = 0
    loaded: str | None = None
    digest: str | None = None
    problem: str | None = None


class ReplicaAnswer(msgspec.Struct):
    replica: str
    part: str
    state: str
    wanted: str | None
    version: int
    loaded: str | None
    digest: str | None
    problem: str | None
    loaded_at: str | None
    since: str
    heard_at: str
    silent: bool


class FleetAnswer(Page):
    """The status of a fleet. Only `replicas` come in pages."""

    channel: str
    version: int
    checkpoint: str | None
    canary: str | None
    whole: bool
    mixed: bool
    parts: list[PartStatus]
    replicas: list[ReplicaAnswer]


def record_report(
    database: Database, settings: Settings, tenant: str, report: Report
) -> list[PartStatus]:
    """Record a report. Raises ChannelUnknown, ReplicaTaken, ReplicasFull, InvalidInput."""
    check_name("The name of a replica", report.replica)
    for name in filter(None, (report.wanted, report.loaded)):
        check_name("The name of a checkpoint", name)
    if report.digest is not None:
        sha256_digest(report.digest.lower())
    channel, key = report.name, (tenant, report.name)
    same = sa.and_(_of_fleet(key), replica.c.replica == report.replica)
    with database.write() as connection:
        state = channel_state_in(connection, tenant, channel)
        moments = _moments(connection, settings)
        known = connection.execute(sa.select(replica.c.sidecar, replica.c.heard_at).where(same))
        other = known.first()
        if other is not None:  # two sidecars with one name would hide each other
            if other.sidecar != report.sidecar and other.heard_at >= moments.silent:
                raise ReplicaTaken(replica=report.replica, channel=channel)
        elif report.state != "left":
            forgotten = replica.c.heard_at < moments.forgotten
            connection.execute(sa.delete(replica).where(_of_fleet(key), forgotten))
            count = sa.select(sa.func.count()).select_from(replica).where(_of_fleet(key))
            if connection.execute(count).scalar_one() >= REPLICAS_MAX:
                raise ReplicasFull(channel=channel, limit=REPLICAS_MAX)
        if report.state == "left":
            connection.execute(sa.delete(replica).where(same))
        else:
            _keep(connection, key, report, moments.now)
        return part_statuses(state, _groups(connection, moments, key)[key])


def fleet(database: Database, settings: Settings, tenant: str, channel: str) -> FleetAnswer:
    """The fleet of a channel. Raises ChannelUnknown."""
    key = (tenant, channel)
    with database.read() as connection:
        state = channel_state_in(connection, tenant, channel)
        moments = _moments(connection, settings)
        parts = part_statuses(state, _groups(connection, moments, key)[key])
        query = (
            sa.select(replica)
            .where(_of_fleet(key), replica.c.heard_at >= moments.forgotten)
            .order_by(replica.c.part.desc(), replica.c.replica)
        )
        rows = connection.execute(query).mappings().all()
    return FleetAnswer(
        channel=state.channel,
        version=state.version,
        checkpoint=state.checkpoint,
        canary=state.canary,
        whole=all(part.whole for part in parts),
        mixed=any(part.mixed for part in parts),
        parts=parts,
        replicas=[_replica_answer(row, moments.silent) for row in rows],
    )


def replicas_of(
    database: Database, settings: Settings, tenant: str, checkpoint: str
) -> list[tuple[str, ReplicaAnswer]]:
    """Replicas that have loaded a checkpoint, with their channels, sorted by name."""
    with database.read() as connection:
        moments = _moments(connection, settings)
        query = (
            sa.select(replica)
            .where(replica.c.tenant == tenant, replica.c.loaded == checkpoint)
            .where(replica.c.heard_at >= moments.forgotten)
            .order_by(replica.c.channel, replica.c.replica)
        )
        rows = connection.execute(query).mappings().all()
    return [(row["channel"], _replica_answer(row, moments.silent)) for row in rows]


def _replica_answer(row: sa.RowMapping, silent: int) -> ReplicaAnswer:
    fields = {name: row[name] for name in ReplicaAnswer.__struct_fields__ if name != "silent"}
    for name in ("loaded_at", "since", "heard_at"):
        fields[name] = time_text(row[name]) if row[name] is not None else None
    return ReplicaAnswer(**fields, silent=row["heard_at"] < silent)


def fleets(
    database: Database, settings: Settings
) -> Iterator[tuple[FleetKey, list[ReplicaGroup], list[PartStatus]]]:
    with database.read() as connection:
        for key, groups in _groups(connection, _moments(connection, settings)).items():
            yield key, groups, part_statuses(channel_state_in(connection, *key), groups)


class _Moments(NamedTuple):
    """Times by the database's clock. Replicas not heard since `silent` are silent."""

    now: int
    silent: int
    forgotten: int


def _moments(connection: Connection, settings: Settings) -> _Moments:
    now = int(connection.execute(sa.select(now_us())).scalar_one())
    silent_s = settings.room(FleetSettings).replica_silent_seconds
    forget_s = max(FORGET_SECONDS, silent_s)
    return _Moments(now, now - round(silent_s * 1_000_000), now - round(forget_s * 1_000_000))


def _keep(connection: Connection, key: FleetKey, report: Report, now: int) -> None:
    row = msgspec.structs.asdict(report) | {"heard_at": now}
    del row["name"]
    if report.problem is not None:  # command output may hold anything; only its end is kept
        shown = (c if c.isprintable() or c == "\n" else " " for c in report.problem)
        row["problem"] = "".join(shown)[-TEXT_CHARS_MAX:]
    place = {"tenant": key[0], "channel": key[1], "replica": row.pop("replica")}
    loaded_at = now if report.loaded is not None else None
    insert = insert_of(connection)(replica).values(**place, **row, since=now, loaded_at=loaded_at)
    new, old = insert.excluded, replica.c
    same = sa.and_(
        old.state == new.state, old.wanted.is_not_distinct_from(new.wanted), old.part == new.part
    )
    same_loaded = old.digest.is_not_distinct_from(new.digest)
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=list(replica.primary_key),
            set_={
                **{name: new[name] for name in row},
                "since": sa.case((same, old.since), else_=new.since),
                "loaded_at": sa.case((same_loaded, old.loaded_at), else_=new.loaded_at),
            },
        )
    )


def _groups(
    connection: Connection, moments: _Moments, key: FleetKey | None = None
) -> defaultdict[FleetKey, list[ReplicaGroup]]:
    columns = replica.c
    silent = (columns.heard_at < moments.silent).label("silent")
    same = (columns.part, columns.state, columns.loaded)
    query = sa.select(columns.tenant, columns.channel, *same, silent, columns.loaded_at)
    query = query.where(columns.heard_at >= moments.forgotten)
    if key is not None:
        query = query.where(_of_fleet(key))
    reports = query.subquery()  # a subquery, so that grouping uses the same times
    *shared, loaded_at = reports.c
    counts = sa.func.count(), sa.func.min(loaded_at), sa.func.max(loaded_at)
    groups: defaultdict[FleetKey, list[ReplicaGroup]] = defaultdict(list)
    for row in connection.execute(sa.select(*shared, *counts).group_by(*shared)):
        tenant, channel, part, state, loaded, is_silent, *counted = row
        group = ReplicaGroup(part, state, loaded, bool(is_silent), *counted)
        groups[tenant, channel].append(group)
    return groups


def _of_fleet(key: FleetKey) -> sa.ColumnElement[bool]:
    return sa.and_(replica.c.tenant == key[0], replica.c.channel == key[1])


@dataclass
class FleetGauges:
    database: Database
    settings: Settings
    metrics: Metrics
    _shown: set[tuple[str, str, str]] = field(default_factory=set)

    def refresh(self) -> None:
        """Update the metrics of fleets. Raises DatabaseUnreachable."""
        mixed: Counter[tuple[str, str, str]] = Counter()
        behind: Counter[tuple[str, str, str]] = Counter()
        states: Counter[tuple[str, ...]] = Counter()
        for key, groups, parts in fleets(self.database, self.settings):
            for group in groups:
                state = "silent" if group.silent else group.state
                states[(*key, group.part, state)] += group.replicas
            for part in parts:
                mixed[(*key, part.part)] = int(part.mixed)
                behind[(*key, part.part)] = part.behind + part.unsure
        self._shown |= set(mixed)
        for place in self._shown:
            names = dict(zip(("tenant", "channel", "part"), place, strict=True))
            self.metrics.set("fleet_mixed", mixed[place], **names)
            self.metrics.set("replicas_behind", behind[place], **names)
            for state in (*STATES, "silent"):
                self.metrics.set("replicas", states[(*place, state)], **names, state=state)


class FleetRequest(ListRequest, kw_only=True):
    name: str


class ReportAnswer(msgspec.Struct):
    """The status of the fleet, this report included."""

    channel: str
    parts: list[PartStatus]


def _fleet(lake: Lake, caller: Caller, request: FleetRequest) -> FleetAnswer:
    whole = fleet(lake.database, lake.settings, caller.tenant, request.name)
    page, after = page_of(whole.replicas, request, lambda replica: replica.replica)
    return msgspec.structs.replace(whole, replicas=list(page), next=after)


def _report(lake: Lake, caller: Caller, report: Report) -> ReportAnswer:
    parts = record_report(lake.database, lake.settings, caller.tenant, report)
    return ReportAnswer(report.name, parts)


SHOW_FLEET = Endpoint(
    "GET /v1/channels/{name}/replicas",
    _fleet,
    ("read", "serve", "promote"),
    "The replicas of a channel, and what each has loaded",
)
REPORT_REPLICA = Endpoint(
    "POST /v1/channels/{name}/replicas",
    _report,
    ("serve",),
    "Report what a replica has loaded",
    description="A sidecar reports each change, and repeats its report regularly.",
    refused={409: None},
)

ENDPOINTS: Endpoints = [SHOW_FLEET, REPORT_REPLICA]
