"""Shards that were built before tenants had folders stay where they lie."""

import sqlalchemy as sa

from penstock.database import migrations
from penstock.database.engine import Database

BEFORE, AFTER = "0035", "0036"
IDS = {tenant: f"sha256:{digit * 64}" for tenant, digit in (("acme", "a"), ("Bolt & Co", "b"))}


def fill(database: Database) -> None:
    with database.write() as connection:
        tables = sa.MetaData()
        tables.reflect(connection, only=["shard", "shard_file", "shard_mark", "shard_record"])
        shard, file = tables.tables["shard"], tables.tables["shard_file"]
        mark, record = tables.tables["shard_mark"], tables.tables["shard_record"]
        for tenant, id_ in IDS.items():
            counts = dict.fromkeys(("snap", "samples", "tokens", "trainable", "bytes"), 7)
            row: dict[str, object] = {"id": id_, "tenant": tenant, "name": "sft", "snapshot": "s"}
            row |= {"created_at": 1, "added_snap": 1, "session_filter": b"\0\xff"}
            connection.execute(sa.insert(shard).values(row | counts))
            names = [f"shards/{id_[7:23]}/part-{number:05d}.parquet" for number in range(2)]
            connection.execute(sa.insert(file), [{"name": name, "shard": id_} for name in names])
            marked: dict[str, object] = {"shard": id_, "tenant": tenant, "session_id": "s"}
            marked |= {"reason": "no_train", "marked_at": 1}
            connection.execute(sa.insert(mark).values(marked))
            kept = {"shard": id_, "tenant": tenant, "document": "{}", "recorded_at": 1}
            connection.execute(sa.insert(record).values(kept))
        # What a drop of an older version may have left.
        connection.execute(sa.insert(file).values(name="shards/x/y.parquet", shard="sha256:x"))


def read(database: Database, sql: str) -> list[tuple[object, ...]]:
    with database.read() as connection:
        return [tuple(row) for row in connection.execute(sa.text(sql))]


def test_rows_of_before_say_where_their_files_lie(database: Database) -> None:
    migrations.upgrade(database, BEFORE)
    fill(database)
    marks = read(database, "select * from shard_mark order by shard")
    records = read(database, "select * from shard_record order by shard")
    migrations.upgrade(database, AFTER)
    tenants = list(IDS.items())
    assert read(database, "select tenant, id, folder from shard order by id") == [
        (tenant, id_, f"shards/{id_[7:23]}") for tenant, id_ in tenants
    ]
    assert read(database, "select samples, added_snap, gone from shard") == [(7, 1, None)] * 2
    [(content,), _] = read(database, "select session_filter from shard")
    assert bytes(content) == b"\0\xff"  # type: ignore[call-overload]
    assert read(database, "select tenant, shard, name from shard_file order by name") == [
        (tenant, id_, f"shards/{id_[7:23]}/part-{number:05d}.parquet")
        for tenant, id_ in tenants
        for number in range(2)
    ]
    assert read(database, "select * from shard_mark order by shard") == marks
    assert read(database, "select * from shard_record order by shard") == records
    # From now on another tenant may build the same one.
    copied = "snap, snapshot, samples, tokens, trainable, bytes, session_filter, created_at"
    with database.write() as connection:
        connection.execute(
            sa.text(
                f"insert into shard (id, tenant, name, {copied}, added_snap, folder)"
                f" select id, 'third', name, {copied}, added_snap, 'shards/t-third/a' from shard"
                " where tenant = 'acme'"
            )
        )
    assert read(database, "select count(*) from shard") == [(3,)]
