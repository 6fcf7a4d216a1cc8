"""What the replicas of channels said they serve, as the database keeps it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from penstock.channels.channel import ChannelState, channel_state_in
from penstock.checkpoints.checkpoint import TEXT_CHARS_MAX, check_digest, check_name
from penstock.database.engine import Database, insert_of, now_us
from penstock.errors import InvalidInput
from penstock.fleet.errors import ReplicasFull, ReplicaTaken
from penstock.fleet.fleet_status import PARTS, STATES, Group, Standing, standings
from penstock.fleet.settings import FleetSettings
from penstock.fleet.tables import replica
from penstock.metrics import Metrics
from penstock.settings import Settings

#: A replica that nobody heard of for so long is forgotten.
FORGET_SECONDS = 3_600.0
#: Of one channel.
REPLICAS_MAX = 2_000

#: A sidecar that ends well says so, and its replica is forgotten at once.
LEFT = "left"
_SIDECAR_CHARS_MAX = 32


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


@dataclass(frozen=True, kw_only=True)
class Replica:
    """What is known of a replica, and when it was heard."""

    replica: str
    part: str
    state: str
    wanted: str | None
    version: int
    loaded: str | None
    digest: str | None
    problem: str | None
    loaded_at: int | None
    since: int
    heard_at: int
    silent: bool


@dataclass(frozen=True)
class Fleet:
    """A channel, and how those stand that serve it."""

    channel: ChannelState
    parts: list[Standing]
    replicas: list[Replica]

    @property
    def whole(self) -> bool:
        return all(one.whole for one in self.parts)

    @property
    def mixed(self) -> bool:
        return any(one.mixed for one in self.parts)


def report(
    database: Database, settings: Settings, tenant: str, channel: str, said: Report
) -> list[Standing]:
    """Keep it, and tell how the fleet stands then. Raises ChannelUnknown, ReplicaTaken,
    ReplicasFull, InvalidInput."""
    _check(said)
    with database.write() as connection:
        pointed = channel_state_in(connection, tenant, channel)
        now = int(connection.execute(sa.select(now_us())).scalar_one())
        _refuse_other(connection, settings, (tenant, channel), said, now)
        if said.state == LEFT:
            place = _place(tenant, channel)
            connection.execute(sa.delete(replica).where(place, replica.c.replica == said.replica))
        else:
            _keep(connection, (tenant, channel), said, now)
        groups = [group for _, group in _groups(connection, settings, now, (tenant, channel))]
        return standings(pointed, groups)


def fleet(database: Database, settings: Settings, tenant: str, channel: str) -> Fleet:
    """All that serve a channel, by name. Raises ChannelUnknown."""
    with database.read() as connection:
        pointed = channel_state_in(connection, tenant, channel)
        now = int(connection.execute(sa.select(now_us())).scalar_one())
        groups = [group for _, group in _groups(connection, settings, now, (tenant, channel))]
        query = (
            sa.select(*_COLUMNS)
            .where(_place(tenant, channel), replica.c.heard_at >= _forgotten(settings, now))
            .order_by(replica.c.part.desc(), replica.c.replica)
        )
        rows = connection.execute(query).all()
    silent = _silent(settings, now)
    known = [Replica(**row._mapping, silent=row.heard_at < silent) for row in rows]
    return Fleet(pointed, standings(pointed, groups), known)


def fleets(
    database: Database, settings: Settings
) -> Iterator[tuple[tuple[str, str], list[Group], list[Standing]]]:
    """How each fleet stands, of all tenants."""
    with database.read() as connection:
        now = int(connection.execute(sa.select(now_us())).scalar_one())
        by_place: dict[tuple[str, str], list[Group]] = {}
        for place, group in _groups(connection, settings, now):
            by_place.setdefault(place, []).append(group)
        for place, groups in by_place.items():
            yield place, groups, standings(channel_state_in(connection, *place), groups)


_COLUMNS = [replica.c[one.name] for one in fields(Replica) if one.name != "silent"]


def _check(said: Report) -> None:
    check_name("The name of a replica", said.replica)
    for what, found, known in (
        ("part", said.part, PARTS),
        ("state", said.state, (*STATES, LEFT)),
    ):
        if found not in known:
            raise InvalidInput(what=f"The {what} {found!r}", why=f"it is one of {', '.join(known)}")
    for name in (said.wanted, said.loaded):
        if name is not None:
            check_name("The name of a checkpoint", name)
    if said.digest is not None:
        check_digest(said.digest)
    if not 0 < len(said.sidecar) <= _SIDECAR_CHARS_MAX or not said.sidecar.isalnum():
        why = f"it is 1 to {_SIDECAR_CHARS_MAX} letters and digits"
        raise InvalidInput(what="`sidecar`", why=why)
    if not 0 <= said.version < 2**63:
        raise InvalidInput(what="`version`", why="it is a version of the channel")


def _refuse_other(
    connection: Connection, settings: Settings, place: tuple[str, str], said: Report, now: int
) -> None:
    """Two sidecars of one name would hide each other."""
    columns = replica.c
    query = sa.select(columns.sidecar, columns.heard_at).where(
        _place(*place), columns.replica == said.replica
    )
    known = connection.execute(query).first()
    if known is not None:
        if known.sidecar != said.sidecar and known.heard_at >= _silent(settings, now):
            raise ReplicaTaken(replica=said.replica, channel=place[1])
        return
    if said.state == LEFT:
        return
    forgotten = columns.heard_at < _forgotten(settings, now)
    connection.execute(sa.delete(replica).where(_place(*place), forgotten))
    there = connection.scalar(sa.select(sa.func.count()).select_from(replica).where(_place(*place)))
    if (there or 0) >= REPLICAS_MAX:
        raise ReplicasFull(channel=place[1], limit=REPLICAS_MAX)


def _keep(connection: Connection, place: tuple[str, str], said: Report, now: int) -> None:
    row = {
        "part": said.part,
        "state": said.state,
        "wanted": said.wanted,
        "version": said.version,
        "loaded": said.loaded,
        "digest": said.digest,
        "problem": _shown(said.problem),
        "sidecar": said.sidecar,
        "heard_at": now,
    }
    named = {"tenant": place[0], "channel": place[1], "replica": said.replica}
    loaded_at = now if said.loaded is not None else None
    made = insert_of(connection)(replica).values(**named, **row, since=now, loaded_at=loaded_at)
    new, old = made.excluded, replica.c
    same = sa.and_(
        old.state == new.state, old.wanted.is_not_distinct_from(new.wanted), old.part == new.part
    )
    same_loaded = old.digest.is_not_distinct_from(new.digest)
    connection.execute(
        made.on_conflict_do_update(
            index_elements=list(replica.primary_key),
            set_={
                **{name: new[name] for name in row},
                "since": sa.case((same, old.since), else_=new.since),
                "loaded_at": sa.case((same_loaded, old.loaded_at), else_=new.loaded_at),
            },
        )
    )


def _shown(problem: str | None) -> str | None:
    """What a command said at its end may hold anything; its last characters are kept."""
    if problem is None:
        return None
    lines = ("".join(c if c.isprintable() else " " for c in line) for line in problem.split("\n"))
    return "\n".join(lines)[-TEXT_CHARS_MAX:]


def _groups(
    connection: Connection, settings: Settings, now: int, of: tuple[str, str] | None = None
) -> Iterator[tuple[tuple[str, str], Group]]:
    """With the tenant and the channel of each; of one, or of all."""
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
    if of is not None:
        query = query.where(_place(*of))
    said = query.subquery()  # or the moments in it would be others where it is grouped by
    same = (said.c.tenant, said.c.channel, said.c.part, said.c.state, said.c.loaded, said.c.silent)
    counts = sa.func.count(), sa.func.min(said.c.loaded_at), sa.func.max(said.c.loaded_at)
    for row in connection.execute(sa.select(*same, *counts).group_by(*same)):
        tenant, channel, part, state, loaded, silent, *counted = row
        yield (tenant, channel), Group(part, state, loaded, bool(silent), *counted)


def _place(tenant: str, channel: str) -> sa.ColumnElement[bool]:
    return sa.and_(replica.c.tenant == tenant, replica.c.channel == channel)


def _silent(settings: Settings, now: int) -> int:
    """Who was not heard since then is silent."""
    return now - round(settings.room(FleetSettings).replica_silent_seconds * 1_000_000)


def _forgotten(settings: Settings, now: int) -> int:
    silent_s = settings.room(FleetSettings).replica_silent_seconds
    return now - round(max(FORGET_SECONDS, silent_s) * 1_000_000)


_SILENT = "silent"


#: Tenant, channel and part.
_Part = tuple[str, str, str]


class FleetGauges:
    def __init__(self, database: Database, settings: Settings, metrics: Metrics) -> None:
        self._database = database
        self._settings = settings
        self._metrics = metrics
        self._shown: set[_Part] = set()

    def refresh(self) -> None:
        """Raises DatabaseUnreachable."""
        mixed: dict[_Part, int] = {}
        behind: dict[_Part, int] = {}
        states: Counter[tuple[_Part, str]] = Counter()
        for place, groups, parts in fleets(self._database, self._settings):
            for group in groups:
                state = _SILENT if group.silent else group.state
                states[(*place, group.part), state] += group.replicas
            for one in parts:
                mixed[(*place, one.part)] = int(one.mixed)
                behind[(*place, one.part)] = one.behind + one.unsure
        for tenant, channel, part in self._shown | set(mixed):
            names = {"tenant": tenant, "channel": channel, "part": part}
            key = (tenant, channel, part)
            self._metrics.set("fleet_mixed", mixed.get(key, 0), **names)
            self._metrics.set("replicas_behind", behind.get(key, 0), **names)
            for state in (*STATES, _SILENT):
                self._metrics.set("replicas", states[key, state], **names, state=state)
        self._shown |= set(mixed)
