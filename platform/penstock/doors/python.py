"""The lakes that `penstock.open` returns: one on this machine, or a service's."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Self, TypeVar, Unpack, overload

from penstock.backends.terminal.options import actor
from penstock.core.endpoint import Answer, Caller, Client
from penstock.core.errors import InvalidInput
from penstock.core.room import rooms
from penstock.core.settings import load_settings
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import LocalClient, RemoteClient, asked_service
from penstock.lake.lake import Lake, check_lake
from penstock.lake.query.lake_query import QueryRows
from penstock.registry.channels.change import CHANNEL_DEFAULT, ChannelState
from penstock.registry.channels.channel import channel_state
from penstock.registry.channels.endpoints import SHOW_CHANNEL, ChannelRequest
from penstock.registry.channels.promotion_endpoints import (
    PROMOTE,
    ROLL_BACK,
    PromoteRequest,
    PromotionAnswer,
    RollbackAnswer,
    RollbackRequest,
)
from penstock.registry.checkpoints.checkpoint import Checkpoint
from penstock.registry.checkpoints.endpoints import (
    LIST_CHECKPOINTS,
    SHOW_CHECKPOINT,
    CheckpointRequest,
    CheckpointsRequest,
)

if TYPE_CHECKING:
    from penstock.lake.query.lake_query import LakeQuery, OwnQuery
    from penstock.registry.checkpoints.checkpoint import State
    from penstock.shards.manifest import Manifest
    from penstock.shards.reader import ReadingOptions, ShardReader

_PAGE_ENTRIES = 1000

QueryT = TypeVar("QueryT", bound=QueryRows)


class _Registry(Generic[QueryT]):
    """A lake as it is here and over a service. `tenant` is whose rows and names are meant; at a
    service the key decides it."""

    def _client(self, tenant: str) -> Client:
        raise NotImplementedError

    def _query(self, sql: str, tenant: str) -> QueryT:
        raise NotImplementedError

    def sessions(self, where: str = "true", *, tenant: str = TENANT_DEFAULT) -> QueryT:
        """Make a query of sessions, the newest first: `sessions("project = 'web' and edits > 0")`.
        `where` is SQL over the columns of the view `sessions`."""
        return self._query(f"from sessions where ({where}\n) order by last_ts desc", tenant)

    def rewards(self, where: str = "true", *, tenant: str = TENANT_DEFAULT) -> QueryT:
        """Make a query of the rewards of now: `rewards("definition = 'default'")`. `where` is SQL
        over the columns of the view `rewards`."""
        current = "superseded_at is null"
        sql = f"from rewards where {current} and ({where}\n) order by session_id, name, horizon_s"
        return self._query(sql, tenant)

    def promote(
        self,
        checkpoint: str,
        *,
        reason: str,
        channel: str = CHANNEL_DEFAULT,
        expect: str | None = None,
        tenant: str = TENANT_DEFAULT,
    ) -> PromotionAnswer:
        """Point a channel at a checkpoint that passes the gate; with `expect` only if it points at
        that one now. Raises GateRefused, PromotionConflict, ChannelPinned."""
        order = PromoteRequest(name=channel, checkpoint=checkpoint, reason=reason)
        if expect is not None:
            order.expect = expect
        return self._client(tenant).call(PROMOTE, order)

    def rollback(
        self,
        *,
        reason: str,
        channel: str = CHANNEL_DEFAULT,
        to: str | None = None,
        tenant: str = TENANT_DEFAULT,
    ) -> RollbackAnswer:
        """Roll a channel back to the last good checkpoint, or `to` one, and pin it there. The gate
        is not asked. Raises NothingToRollBackTo."""
        order = RollbackRequest(name=channel, reason=reason, to=to)
        return self._client(tenant).call(ROLL_BACK, order)

    def __dir__(self) -> list[str]:
        """The names that are public: completion shows no others."""
        own = {name for kind in (_Registry, type(self)) for name in vars(kind)}
        return sorted(name for name in own if not name.startswith("_"))

    def checkpoint(self, name: str, *, tenant: str = TENANT_DEFAULT) -> Checkpoint:
        """A checkpoint, by its name or its digest. Raises CheckpointUnknown."""
        return self._client(tenant).call(SHOW_CHECKPOINT, CheckpointRequest(name=name))

    def checkpoints(
        self, *, state: "State | None" = None, tenant: str = TENANT_DEFAULT
    ) -> list[Checkpoint]:
        """List all checkpoints, or those in one state, the newest last."""
        question, checkpoints = CheckpointsRequest(state=state, limit=_PAGE_ENTRIES), []
        while True:
            page = self._client(tenant).call(LIST_CHECKPOINTS, question)
            checkpoints += page.checkpoints
            if page.next is None:
                return checkpoints
            question.cursor = page.next


class Shards:
    """Training shards of a lake on this machine."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def build(self, recipe: str | Path, *, tenant: str = TENANT_DEFAULT) -> "Manifest":
        """Build a shard by the recipe in a file. The same recipe over the same snapshot makes the
        same bytes. Raises InvalidInput."""
        known = {name: work for room in rooms() for name, work in room.python().items()}
        built: Manifest = known["build_shard"](self._lake, Path(recipe), tenant, actor(None))
        return built


class LakeWithChannels(_Registry["LakeQuery"], Lake):
    """A lake on this machine. Use it as a context manager, or close it.

    `tenant` says whose rows and names are meant."""

    @property
    def shards(self) -> Shards:
        """The shards: `shards.build("recipe.toml")`."""
        return Shards(self)

    def query(
        self, sql: "str | OwnQuery", *, as_of: str | int | None = None, tenant: str = TENANT_DEFAULT
    ) -> "LakeQuery":
        """Make a query to be run. docs/reference/sql.md lists the views."""
        return super().query(sql, as_of=as_of, tenant=tenant)

    def close(self) -> None:
        """Close it; so does the end of a `with` block."""
        super().close()

    def channel(self, name: str, *, tenant: str = TENANT_DEFAULT) -> ChannelState:
        """The present state of a channel; see `penstock.assign`. Raises ChannelUnknown."""
        return channel_state(self.database, tenant, name)

    def read_shard(self, shard: str, **options: "Unpack[ReadingOptions]") -> "ShardReader":
        """A reader of a shard, by its id, the beginning of it, or its name: see
        `penstock.read_shard`. Raises ShardUnknown."""
        from penstock.shards.reader import read_shard

        return read_shard(self.settings.data, shard, **options)

    def _client(self, tenant: str) -> Client:
        return LocalClient(self, Caller(tenant, actor(None), is_local=True))

    def _query(self, sql: str, tenant: str) -> "LakeQuery":
        return self.query(sql, tenant=tenant)


@dataclass(frozen=True)
class RemoteQuery(QueryRows):
    """A query that a service runs: `arrow()`, `df()`, `pl()` or `batches()` gives its rows."""

    client: Client
    sql: str
    as_of: str | None

    @contextmanager
    def run(self) -> Iterator[Answer]:
        """Run the query and read its rows as they arrive."""
        with self.client.rows(self.sql, self.as_of) as answer:
            yield answer


class RemoteLake(_Registry[RemoteQuery]):
    """The lake of a service; the key decides whose rows are read. Use it as a context manager, or
    close it. Not safe to share between threads."""

    def __init__(self, url: str, key: str | None = None) -> None:
        """Connect; `key` defaults to PENSTOCK_KEY, then to the key of `penstock login`.

        Raises InvalidInput."""
        self.url = url
        self._key = key
        self._closing = ExitStack()
        self._remote = RemoteClient(self._closing.enter_context(asked_service(url, key)))

    def query(self, sql: str, *, as_of: str | None = None) -> RemoteQuery:
        """Make a query of the views in docs/reference/sql.md, as of a snapshot or a time."""
        return RemoteQuery(self._remote, sql, as_of)

    def channel(self, name: str) -> ChannelState:
        """The present state of a channel; see `penstock.assign`. Raises ChannelUnknown."""
        return self._remote.call(SHOW_CHANNEL, ChannelRequest(name=name))

    def read_shard(self, shard: str, **options: "Unpack[ReadingOptions]") -> "ShardReader":
        """A reader of a shard, by its id, the beginning of it, or its name: see
        `penstock.read_shard`. Raises ShardUnknown."""
        from penstock.shards.reader import read_shard

        options.setdefault("key", self._key)
        return read_shard(self.url, shard, **options)

    def close(self) -> None:
        self._closing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _query(self, sql: str, tenant: str) -> RemoteQuery:
        return RemoteQuery(self._client(tenant), sql, None)

    def _client(self, tenant: str) -> Client:
        if tenant != TENANT_DEFAULT:
            raise InvalidInput(what=f"tenant={tenant!r}", why="the key decides the tenant")
        return self._remote


@overload
def open_lake(data: str | Path | None = None) -> LakeWithChannels: ...


@overload
def open_lake(data: str, *, key: str | None) -> RemoteLake: ...


def open_lake(
    data: str | Path | None = None, *, key: str | None = None
) -> LakeWithChannels | RemoteLake:
    """Open the lake of a data directory, or of a service at its URL.

    `key` needs the role `read`. It defaults to PENSTOCK_KEY, then to the key of `penstock login`.
    Raises LakeMissing; no lake is created."""
    if isinstance(data, str) and data.startswith(("http://", "https://")):
        return RemoteLake(data, key)
    settings = load_settings(data)
    check_lake(settings)
    return LakeWithChannels(settings)
