"""A shard that the metadata database knows, and what dropping one answers."""

from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, kw_only=True)
class RegisteredShard:
    id: str
    tenant: str
    name: str
    snapshot: str
    snap: int
    samples: int
    tokens: int
    trainable: int
    bytes: int
    created_at: str
    #: `dropping`, `dropped` or `erased` where its files are gone.
    gone: str | None
    gone_at: str | None
    gone_why: str | None

    @property
    def folder(self) -> str:
        """Where its files lie in the store."""
        from penstock.shards.manifest import shard_folder

        return shard_folder(self.tenant, self.id)


class ShardDropped(msgspec.Struct):
    """What was deleted now: no files where it was gone before. `needed` says what needed it and
    was overruled; its `snapshot` keeps files of the lake until it is dropped too."""

    shard: str
    files: int
    bytes: int
    needed: list[str]
    snapshot: str
