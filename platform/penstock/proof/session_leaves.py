"""The sessions of a shard as leaves of a hash tree: their digests in order, each with the consent
that its session had when the shard was built.

A digest is keyed, so that nobody learns a name from it, or that a guessed one is right. Its salt,
told to whoever asks about one session, lets everybody see that the digest is of that session, and
opens no other one. Digests of one session in two shards differ."""

import hashlib
import hmac
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from penstock.lake.lake import Lake
from penstock.lake.spill import sorting_engine
from penstock.proof.merkle import leaf_hash, merkle_path, merkle_root
from penstock.sealed_texts import SecretSeal
from penstock.shards.files import read_rows
from penstock.shards.manifest import StoredShard

if TYPE_CHECKING:
    import duckdb

_PURPOSE = "session digests"
_KEY_NAME_HEX = 16
_BATCH_ROWS = 10_000
_LEAVES = pa.schema([("digest", pa.binary()), ("consent", pa.string())])


@dataclass(frozen=True)
class SessionLeaf:
    """`consent` is train, no_train or unknown."""

    digest: bytes
    consent: str

    @property
    def hash(self) -> bytes:
        return leaf_hash(self.digest + self.consent.encode())


@dataclass(frozen=True)
class SessionDigests:
    """Makes the digests of one shard's sessions."""

    secret: bytes
    tenant: str
    shard: str

    @classmethod
    def of(cls, seal: SecretSeal, tenant: str, shard: str) -> Self:
        """Raises SecretKeyUnfit."""
        return cls(seal.key_for(_PURPOSE), tenant, shard)

    @property
    def key_name(self) -> str:
        """Digests of another key are others."""
        return hashlib.sha256(b"penstock digests\0" + self.secret).hexdigest()[:_KEY_NAME_HEX]

    def salt(self, session: str) -> bytes:
        content = "\0".join((self.tenant, self.shard, session)).encode()
        return hmac.digest(self.secret, content, hashlib.sha256)

    def digest(self, session: str) -> bytes:
        return hashlib.sha256(self.salt(session) + session.encode()).digest()


class SessionTree:
    """The leaves of a shard, in order. Beyond some memory they are on disk."""

    def __init__(self, connection: "duckdb.DuckDBPyConnection") -> None:
        self._connection = connection
        rows = connection.execute("select consent, count(*) from leaves group by 1 order by 1")
        self.consents: dict[str, int] = dict(rows.fetchall())
        self.size = sum(self.consents.values())

    @property
    def root(self) -> bytes:
        return merkle_root(leaf.hash for leaf in self.leaves())

    def leaves(self) -> Iterator[SessionLeaf]:
        answer = self._connection.cursor().execute(
            "select digest, consent from leaves order by place"
        )
        while rows := answer.fetchmany(_BATCH_ROWS):
            yield from (SessionLeaf(digest, consent) for digest, consent in rows)

    def place_of(self, digest: bytes) -> int:
        """At which index it stands, or would stand."""
        query = "select count(*) from leaves where digest < ?"
        [(place,)] = self._connection.execute(query, [digest]).fetchall()
        return int(place)

    def leaf_at(self, index: int) -> SessionLeaf | None:
        query = "select digest, consent from leaves where place = ?"
        row = self._connection.execute(query, [index]).fetchone()
        return None if row is None else SessionLeaf(*row)

    def path(self, index: int) -> list[bytes]:
        return merkle_path((leaf.hash for leaf in self.leaves()), index, self.size)


@contextmanager
def session_tree(lake: Lake, shard: StoredShard, digests: SessionDigests) -> Generator[SessionTree]:
    """From the shard's files. Raises ShardDamaged."""
    rows = pa.RecordBatchReader.from_batches(_LEAVES, _leaves(shard, digests))
    with sorting_engine(lake.settings.data) as connection:
        connection.register("found", rows)
        connection.execute(
            "create table leaves as select row_number() over (order by digest, consent) - 1"
            " as place, digest, consent from (select distinct digest, consent from found)"
        )
        yield SessionTree(connection)


def _leaves(shard: StoredShard, digests: SessionDigests) -> Iterator[pa.RecordBatch]:
    """A session may come more than once. All rows of one have the same consent."""
    columns = ["session_id", "consent"]
    for table in read_rows(shard, columns):
        known = table.group_by(columns).aggregate([])
        values = [digests.digest(session) for session in known["session_id"].to_pylist()]
        consents = known["consent"].cast(pa.string()).fill_null("unknown").combine_chunks()
        yield pa.record_batch([pa.array(values, pa.binary()), consents], schema=_LEAVES)
