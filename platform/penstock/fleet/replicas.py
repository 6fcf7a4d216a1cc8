"""What the replicas of channels said they serve, as the database keeps it."""

from collections import Counter
from collections.abc import Iterator

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.channels.channel import channel_state_in
from penstock.checkpoints.checkpoint import TEXT_CHARS_MAX, check_digest, check_name
from penstock.database.engine import Database, insert_of, now_us
from penstock.errors import InvalidInput
from penstock.fleet.errors import ReplicasFull, ReplicaTaken
from penstock.fleet.fleet_status import PARTS, STATES, ReplicaGroup, StandingAnswer, standings
from penstock.fleet.settings import FleetSettings
from penstock.fleet.tables import replica
from penstock.metrics import Metrics
from penstock.settings import Settings
from penstock.terminal.output import time_of

#: A replica that nobody heard of for so long is forgotten.
FORGET_SECONDS = 3_600.0
#: Of one channel.
REPLICAS_MAX = 2_000

#: A sidecar that ends well says so, and its replica is forgotten at once.
LEFT = "left"
_SIDECAR_CHARS_MAX = 32

#: Tenant and channel.
FleetKey = tuple[str, str]


class Report(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a sidecar says of its replica. `state` is waiting, fetching, loading, loaded, failed, or
    left: then the replica is forgotten. `loaded` is null where it does not know."""

    replica: str
    state: str
    sidecar: str
    part: str = "main"
    wanted: str | None = None
    version: int = 0
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


class FleetAnswer(msgspec.Struct):
    """Who serves a channel, and whether that is one checkpoint for each part."""

    channel: str
    version: int
    checkpoint: str | None
    canary: str | None
    whole: bool
    mixed: bool
    parts: list[StandingAnswer]
    replicas: list[ReplicaAnswer]


def record_report(
    database: Database, settings: Settings, tenant: str, channel: str, report: Report
) -> list[StandingAnswer]:
    """Keep a report, and tell how the fleet stands then. Raises ChannelUnknown, ReplicaTaken,
    ReplicasFull, InvalidInput."""
    _check(report)
    key = (tenant, channel)
    with database.write() as connection:
        state = channel_state_in(connection, tenant, channel)
        now = int(connection.execute(sa.select(now_us())).scalar_one())
        _refuse_other(connection, settings, key, report, now)
        if report.state == LEFT:
            same = replica.c.replica == report.replica
            connection.execute(sa.delete(replica).where(_of_fleet(key), same))
        else:
            _keep(connection, key, report, now)
        groups = [group for _, group in _groups(connection, settings, now, key)]
        return standings(state, groups)


def fleet(database: Database, settings: Settings, tenant: str, channel: str) -> FleetAnswer:
    """All that serve a channel, by name. Raises ChannelUnknown."""
    key = (tenant, channel)
    with database.read() as connection:
        state = channel_state_in(connection, tenant, channel)
        now = int(connection.execute(sa.select(now_us())).scalar_one())
        groups = [group for _, group in _groups(connection, settings, now, key)]
        query = (
            sa.select(replica)
            .where(_of_fleet(key), replica.c.heard_at >= _forgotten(settings, now))
            .order_by(replica.c.part.desc(), replica.c.replica)
        )
        rows = connection.execute(query).mappings().all()
    parts = standings(state, groups)
    silent = _silent(settings, now)
    return FleetAnswer(
        channel=state.name,
        version=state.version,
        checkpoint=state.checkpoint,
        canary=state.canary,
        whole=all(part.whole for part in parts),
        mixed=any(part.mixed for part in parts),
        parts=parts,
        replicas=[_replica_answer(row, silent) for row in rows],
    )


def _replica_answer(row: sa.RowMapping, silent: int) -> ReplicaAnswer:
    fields = {name: row[name] for name in ReplicaAnswer.__struct_fields__ if name != "silent"}
    for name in ("loaded_at", "since", "heard_at"):
        fields[name] = time_of(row[name]).isoformat() if row[name] is not None else None
    return ReplicaAnswer(**fields, silent=row["heard_at"] < silent)


def fleets(
    database: Database, settings: Settings
) -> Iterator[tuple[FleetKey, list[ReplicaGroup], list[StandingAnswer]]]:
    """How each fleet stands, of all tenants."""
    with database.read() as connection:
        now = int(connection.execute(sa.select(now_us())).scalar_one())
        by_key: dict[FleetKey, list[ReplicaGroup]] = {}
        for key, group in _groups(connection, settings, now):
            by_key.setdefault(key, []).append(group)
        for key, groups in by_key.items():
            yield key, groups, standings(channel_state_in(connection, *key), groups)


def _check(report: Report) -> None:
    check_name("The name of a replica", report.replica)
    for field, value, known in (
        ("part", report.part, PARTS),
        ("state", report.state, (*STATES, LEFT)),
    ):
        if value not in known:
            why = f"it is one of {', '.join(known)}"
            raise InvalidInput(what=f"The {field} {value!r}", why=why)
    for name in (report.wanted, report.loaded):
        if name is not None:
            check_name("The name of a checkpoint", name)
    if report.digest is not None:
        check_digest(report.digest)
    if not 0 < len(report.sidecar) <= _SIDECAR_CHARS_MAX or not report.sidecar.isalnum():
        why = f"it is 1 to {_SIDECAR_CHARS_MAX} letters and digits"
        raise InvalidInput(what="`sidecar`", why=why)
    if not 0 <= report.version < 2**63:
        raise InvalidInput(what="`version`", why="it is a version of the channel")


def _refuse_other(
    connection: Connection, settings: Settings, key: FleetKey, report: Report, now: int
) -> None:
    """Two sidecars of one name would hide each other."""
    columns = replica.c
    query = sa.select(columns.sidecar, columns.heard_at).where(
        _of_fleet(key), columns.replica == report.replica
    )
    known = connection.execute(query).first()
    if known is not None:
        if known.sidecar != report.sidecar and known.heard_at >= _silent(settings, now):
            raise ReplicaTaken(replica=report.replica, channel=key[1])
        return
    if report.state == LEFT:
        return
    forgotten = columns.heard_at < _forgotten(settings, now)
    connection.execute(sa.delete(replica).where(_of_fleet(key), forgotten))
    count = connection.scalar(sa.select(sa.func.count()).select_from(replica).where(_of_fleet(key)))
    if (count or 0) >= REPLICAS_MAX:
        raise ReplicasFull(channel=key[1], limit=REPLICAS_MAX)


def _keep(connection: Connection, key: FleetKey, report: Report, now: int) -> None:
    place = {"tenant": key[0], "channel": key[1], "replica": report.replica}
    row = msgspec.structs.asdict(report) | {"problem": _shown(report.problem), "heard_at": now}
    del row["replica"]
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


def _shown(problem: str | None) -> str | None:
    """The output of a command may hold anything; its last characters are kept."""
    if problem is None:
        return None
    lines = ("".join(c if c.isprintable() else " " for c in line) for line in problem.split("\n"))
    return "\n".join(lines)[-TEXT_CHARS_MAX:]


def _groups(
    connection: Connection, settings: Settings, now: int, key: FleetKey | None = None
) -> Iterator[tuple[FleetKey, ReplicaGroup]]:
    """With the fleet of each; of one fleet, or of all."""
    columns = replica.c
    query = sa.select(
        columns.tenant,
        columns.channel,
        columns.part,
        columns.state,
        columns.loaded,
        (columns.heard_at < _silent(settings, now)).label("silent"),
        columns.loaded_at,
    ).where(columns.heard_at >= _forgotten(settings, now))
    if key is not None:
        query = query.where(_of_fleet(key))
    reports = query.subquery()  # or the moments in it would be others where it is grouped by
    same = (
        reports.c.tenant,
        reports.c.channel,
        reports.c.part,
        reports.c.state,
        reports.c.loaded,
        reports.c.silent,
    )
    counts = sa.func.count(), sa.func.min(reports.c.loaded_at), sa.func.max(reports.c.loaded_at)
    for row in connection.execute(sa.select(*same, *counts).group_by(*same)):
        tenant, channel, part, state, loaded, silent, *counted = row
        yield (tenant, channel), ReplicaGroup(part, state, loaded, bool(silent), *counted)


def _of_fleet(key: FleetKey) -> sa.ColumnElement[bool]:
    return sa.and_(replica.c.tenant == key[0], replica.c.channel == key[1])


def _silent(settings: Settings, now: int) -> int:
    """A replica that was not heard since then is silent."""
    return now - round(settings.room(FleetSettings).replica_silent_seconds * 1_000_000)


def _forgotten(settings: Settings, now: int) -> int:
    silent_s = settings.room(FleetSettings).replica_silent_seconds
    return now - round(max(FORGET_SECONDS, silent_s) * 1_000_000)


_SILENT = "silent"

#: Tenant, channel and part.
_PartKey = tuple[str, str, str]


class FleetGauges:
    def __init__(self, database: Database, settings: Settings, metrics: Metrics) -> None:
        self._database = database
        self._settings = settings
        self._metrics = metrics
        self._shown: set[_PartKey] = set()

    def refresh(self) -> None:
        """Raises DatabaseUnreachable."""
        parts: dict[_PartKey, StandingAnswer] = {}
        states: Counter[tuple[_PartKey, str]] = Counter()
        for key, groups, standings_ in fleets(self._database, self._settings):
            for group in groups:
                state = _SILENT if group.silent else group.state
                states[(*key, group.part), state] += group.replicas
            parts |= {(*key, part.part): part for part in standings_}
        self._shown |= set(parts)
        for part_key in self._shown:
            names = dict(zip(("tenant", "channel", "part"), part_key, strict=True))
            part = parts.get(part_key)
            self._metrics.set("fleet_mixed", int(part.mixed) if part else 0, **names)
            behind = part.behind + part.unsure if part else 0
            self._metrics.set("replicas_behind", behind, **names)
            for state in (*STATES, _SILENT):
                self._metrics.set("replicas", states[part_key, state], **names, state=state)
