"""The lakes that `penstock.open` returns: one on this machine, or a service's."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack, overload

from penstock.core.endpoint import Answer, Caller, Client
from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.client import LocalClient, RemoteClient
from penstock.lake.lake import Lake, check_lake
from penstock.lake.query.lake_query import QueryRows
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.channel import channel_state
from penstock.registry.channels.endpoints import SHOW_CHANNEL, ChannelRequest
from penstock.registry.checkpoints.checkpoint import Checkpoint
from penstock.registry.checkpoints.endpoints import (
    LIST_CHECKPOINTS,
    SHOW_CHECKPOINT,
    CheckpointRequest,
    CheckpointsRequest,
)

if TYPE_CHECKING:
    from penstock.backends.http.client import ServiceClient
    from penstock.registry.checkpoints.checkpoint import State
    from penstock.shards.reader import ReadingOptions, ShardReader

_ANSWER_SECONDS_MAX = 600.0
_PAGE_ENTRIES = 1000


class _Registry:
    def _client(self, tenant: str) -> Client:
        raise NotImplementedError

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


class LakeWithChannels(_Registry, Lake):
    """A lake on this machine. Use it as a context manager, or close it.

    `tenant` says whose rows and names are meant."""

    def channel(self, name: str, *, tenant: str = TENANT_DEFAULT) -> ChannelState:
        """The present state of a channel; see `penstock.assign`. Raises ChannelUnknown."""
        return channel_state(self.database, tenant, name)

    def read_shard(self, shard: str, **options: "Unpack[ReadingOptions]") -> "ShardReader":
        """A reader of a shard, by its id, the beginning of it, or its name: see
        `penstock.read_shard`. Raises ShardUnknown."""
        from penstock.shards.reader import read_shard

        return read_shard(self.settings.data, shard, **options)

    def _client(self, tenant: str) -> Client:
        return LocalClient(self, Caller(tenant, "python", is_local=True))


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


class RemoteLake(_Registry):
    """The lake of a service; the key decides whose rows are read. Use it as a context manager, or
    close it. Not safe to share between threads."""

    def __init__(self, url: str, key: str | None = None) -> None:
        """Connect; `key` defaults to PENSTOCK_KEY, then to the key of `penstock login`.

        Raises InvalidInput."""
        self.url = url
        self._key = key
        self._closing = ExitStack()
        self._service = self._closing.enter_context(_client(url, key))

    def query(self, sql: str, *, as_of: str | None = None) -> RemoteQuery:
        """Make a query of the views in docs/reference/sql.md, as of a snapshot or a time."""
        return RemoteQuery(RemoteClient(self._service), sql, as_of)

    def channel(self, name: str) -> ChannelState:
        """The present state of a channel; see `penstock.assign`. Raises ChannelUnknown."""
        return RemoteClient(self._service).call(SHOW_CHANNEL, ChannelRequest(name=name))

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

    def _client(self, tenant: str) -> Client:
        if tenant != TENANT_DEFAULT:
            raise InvalidInput(what=f"tenant={tenant!r}", why="the key decides the tenant")
        return RemoteClient(self._service)


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


def _client(url: str, key: str | None) -> "ServiceClient":
    from penstock.backends.http.client import ServiceClient
    from penstock.backends.http.login import service_key

    return ServiceClient(url, key or service_key(url), _ANSWER_SECONDS_MAX)
