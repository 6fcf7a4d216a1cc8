"""A lake whose files are sealed: nothing of it is read without the keys, all of it with them."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from penstock.encryption.data_keys import DataKeys
from penstock.encryption.errors import (
    DataKeyMissing,
    DataKeyUnfit,
    EncryptionOff,
    KeyServiceUnreachable,
    NotEncrypted,
    SealedFileDamaged,
)
from penstock.encryption.sealed_store import SealedStore
from penstock.encryption.tables import data_key
from penstock.lake.backup import back_up, restore
from penstock.lake.catalog import current
from penstock.lake.errors import LakeDamaged
from penstock.lake.intents import announce_file, withdraw_intent
from penstock.lake.key_rotation import delete_unneeded_keys, list_data_keys, rotate_data_key
from penstock.lake.lake import TAILS_BYTES_MAX, open_existing
from penstock.lake.merges import merge
from penstock.lake.pinned_files import FileTails
from penstock.lake.segments import sessions_name
from penstock.lake.statement_processes import StatementProcesses
from penstock.lake.upkeep import collect
from penstock.lake.verification import verify
from penstock.privacy.erasure import carry_out, order_erasure
from penstock.privacy.orders import ErasureScope
from penstock.storage import FileStore
from tests.room.encryption.test_key_services import new_master, write_private
from tests.support.lakes import START_US, HandLake, hand_lake, make_event
from tests.support.servers.scripted_server import Answer
from tests.support.servers.transit import TOKEN, transit_server

MARKER = "PLANTED-MARKER-4711"
TEXTS = "SELECT session_id, text FROM user_messages WHERE session_id > 'r'"


@pytest.fixture
def masters(tmp_path: Path) -> Path:
    return write_private(tmp_path / "masters", new_master())


@pytest.fixture
def lake(tmp_path: Path, masters: Path) -> Iterator[HandLake]:
    with hand_lake(tmp_path / "data", **sealed_by(masters)) as lake:
        yield lake


def sealed_by(masters: Path) -> dict[str, object]:
    return {"encryption": "file", "encryption_key_file": str(masters)}


def planted(session: str, number: int = 0) -> dict[str, object]:
    return make_event(session, number, payload={"text": f"{MARKER} {session} {number}"})


def store_three(lake: HandLake, tenant: str = "acme") -> None:
    for number in range(3):
        lake.store([planted("s", number), planted(f"t{number}")], tenant)


def files_with_marker(lake: HandLake) -> list[str]:
    files = [path for path in (lake.lake.settings.data / "lake").rglob("*") if path.is_file()]
    assert files
    return [path.name for path in files if MARKER.encode() in path.read_bytes()]


def sealed_store(lake: HandLake) -> SealedStore:
    store = lake.lake.store
    assert isinstance(store, SealedStore)
    return store


def keys_of(lake: HandLake) -> set[str | None]:
    """The keys of the live segments."""
    live = current(lake.lake.database).segments
    return {sealed_store(lake).key_of(segment.name) for segment in live}


def without_memory(lake: HandLake) -> HandLake:
    """As another process has it: no data key is unwrapped yet, and no file read."""
    keys = sealed_store(lake).keys
    sealed_store(lake).keys = DataKeys(keys.database, keys.service)
    lake.lake.tails = FileTails(TAILS_BYTES_MAX)
    return lake


def test_files_hold_no_text_and_everything_reads_them(lake: HandLake, tmp_path: Path) -> None:
    store_three(lake)
    lake.store(b"no json " + MARKER.encode() + b"\n", "acme")
    files = {path.name for path in (lake.lake.settings.data / "lake").iterdir()}
    assert files == {"events", "rejected"}
    assert not files_with_marker(lake)
    assert len(lake.rows(TEXTS, tenant="acme")) == 6
    assert not lake.rows(TEXTS, tenant="other")
    merge(lake.lake, current(lake.lake.database).segments)
    assert len(lake.rows("SELECT * FROM sessions", tenant="acme")) == 4
    assert len(lake.rows(TEXTS, tenant="acme")) == 6
    assert not verify(lake.lake).findings
    assert not files_with_marker(lake)


def test_a_statement_gets_what_files_hold_and_no_key(lake: HandLake) -> None:
    store_three(lake)
    lake.lake.statements = StatementProcesses(distant_files=not lake.lake.store.local)
    assert lake.lake.query(TEXTS, tenant="acme").table().num_rows == 6
    assert not lake.lake.query(TEXTS, tenant="other").table().num_rows


def test_an_older_lake_is_read_and_sealed_as_it_is_merged(tmp_path: Path, masters: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        store_three(lake)
        assert files_with_marker(lake)
    with hand_lake(tmp_path / "data", **sealed_by(masters)) as lake:
        store_three(lake, "other")
        lake.store([planted("u")], "acme")
        assert len(lake.rows(TEXTS, tenant="acme")) == 7
        for tenant in ("acme", "other"):
            live = current(lake.lake.database).segments
            merge(lake.lake, [segment for segment in live if segment.tenant == tenant])
        assert len(lake.rows(TEXTS, tenant="acme")) == 7
        assert None not in keys_of(lake)
        assert len(keys_of(lake)) == 2


def test_without_the_right_key_nothing_opens(lake: HandLake, masters: Path, tmp_path: Path) -> None:
    store_three(lake)
    with pytest.raises(EncryptionOff):
        open_existing(lake.lake.settings.data)
    masters.write_text(new_master())
    with pytest.raises(DataKeyUnfit, match="is not in"):
        without_memory(lake).rows(TEXTS, tenant="acme")
    with pytest.raises(DataKeyUnfit):
        verify(lake.lake)


def test_a_key_of_one_tenant_does_not_open_files_of_another(lake: HandLake) -> None:
    store_three(lake, "acme")
    store_three(lake, "other")
    names = {segment.tenant: segment.name for segment in current(lake.lake.database).segments}
    folder = lake.lake.settings.data / "lake"
    shutil.copy(folder / names["other"], folder / names["acme"])
    with pytest.raises(SealedFileDamaged):
        lake.lake.store.open(names["acme"]).read()
    with lake.lake.database.write() as connection:
        wrapped = dict(connection.execute(sa.select(data_key.c.owner, data_key.c.wrapped)).all())
        swapped = sa.update(data_key).where(data_key.c.owner == "t-acme")
        connection.execute(swapped.values(wrapped=wrapped["t-other"]))
    with pytest.raises(DataKeyUnfit):
        sealed_store(without_memory(lake)).keys.current("t-acme")


def test_rotation_deletes_keys_that_no_file_needs(lake: HandLake) -> None:
    store_three(lake)
    (first,) = keys_of(lake)
    assert (rotation := rotate_data_key(lake.lake, "acme")).kept == 1
    assert rotation.deleted == 0
    merge(lake.lake, current(lake.lake.database).segments)
    assert rotate_data_key(lake.lake, "acme").deleted == 0  # the replaced files still have it
    collect(lake.lake, grace_s=0)
    third = rotate_data_key(lake.lake, "acme")
    assert (third.deleted, third.kept) == (2, 1)
    assert first not in {state.id for state in list_data_keys(lake.lake)}
    assert len(without_memory(lake).rows(TEXTS, tenant="acme")) == 6


def test_a_key_that_a_writer_may_have_yet_is_kept(lake: HandLake) -> None:
    store_three(lake)
    name = "events/t-acme/p-0000/under-way.parquet"
    announce_file(lake.lake.database, name, 0, "writer")
    with lake.lake.store.create(name) as file:
        sealed_store(lake).keys.rotate("t-acme")
        for segment in current(lake.lake.database).segments:
            lake.lake.store.delete(segment.name)
            lake.lake.store.delete(sessions_name(segment.name))
        assert delete_unneeded_keys(lake.lake, "t-acme", seconds_max=0) == 0
        file.write(b"text")
    assert lake.lake.store.open(name).read() == b"text"
    with lake.lake.database.write() as connection:
        withdraw_intent(connection, name)
    assert delete_unneeded_keys(lake.lake, "t-acme") == 0
    lake.lake.store.delete(name)
    assert delete_unneeded_keys(lake.lake, "t-acme") == 1


def test_erasing_a_tenant_ends_its_keys(lake: HandLake, tmp_path: Path) -> None:
    store_three(lake, "acme")
    store_three(lake, "other")
    kept = {state.id for state in list_data_keys(lake.lake) if state.owner != "t-acme"}
    shutil.copytree(lake.lake.settings.data / "lake", tmp_path / "stolen")
    scope = ErasureScope("acme", "tenant", "acme", START_US + 10**12)
    report = carry_out(lake.lake, order_erasure(lake.lake, scope, reason="", by="tester"))
    assert report["removed"]["data keys"] == 1
    left = {state.id for state in list_data_keys(lake.lake) if state.retired_at is None}
    assert kept < left
    stolen = SealedStore(FileStore(tmp_path / "stolen"), sealed_store(without_memory(lake)).keys)
    for file in stolen.list("events/t-acme"):
        with pytest.raises(DataKeyMissing):
            stolen.open(file.name)
    assert len(lake.rows(TEXTS, tenant="other")) == 6
    lake.store([make_event("z", 1, ts="2026-12-24T00:00:00Z")], "acme")
    assert len(lake.rows("SELECT * FROM events", tenant="acme")) == 1


def test_commands_need_an_encrypted_lake(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as plain, pytest.raises(NotEncrypted):
        rotate_data_key(plain.lake, "acme")


def test_a_changed_file_is_damage_that_is_named(lake: HandLake) -> None:
    store_three(lake)
    (*_, damaged) = current(lake.lake.database).segments
    path = lake.lake.settings.data / "lake" / damaged.name
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    (finding,) = verify(lake.lake).findings
    assert finding.name == damaged.name
    assert "cannot be opened" in finding.problem
    with pytest.raises(LakeDamaged, match="does not fit its key"):
        lake.rows(TEXTS, tenant="acme")
    with pytest.raises(LakeDamaged, match="does not fit its key"):
        merge(lake.lake, current(lake.lake.database).segments)


def test_a_new_key_is_for_new_files_and_merges_bring_it_to_old_ones(lake: HandLake) -> None:
    store_three(lake)
    (first,) = keys_of(lake)
    sealed_store(lake).keys.rotate("t-acme")
    store_three(lake)
    lake.store([planted("u")], "acme")
    assert len(keys_of(lake)) == 2
    assert len(without_memory(lake).rows(TEXTS, tenant="acme")) == 7
    merge(lake.lake, current(lake.lake.database).segments)
    assert len(keys_of(lake)) == 1
    assert first not in keys_of(lake)
    assert len(lake.rows(TEXTS, tenant="acme")) == 7


def test_a_new_master_key_wraps_all_data_keys(lake: HandLake, masters: Path) -> None:
    store_three(lake)
    masters.write_text(new_master() + masters.read_text())
    assert sealed_store(lake).keys.rewrap() == 1
    masters.write_text(masters.read_text().splitlines()[0] + "\n")
    assert len(without_memory(lake).rows(TEXTS, tenant="acme")) == 6


def test_a_data_key_that_is_gone_takes_its_files_with_it(lake: HandLake) -> None:
    store_three(lake)
    with lake.lake.database.write() as connection:
        connection.execute(sa.delete(data_key))
    with pytest.raises(DataKeyMissing):
        without_memory(lake).rows(TEXTS, tenant="acme")


def test_events_wait_in_the_log_while_the_key_service_is_away(tmp_path: Path) -> None:
    token = write_private(tmp_path / "token", TOKEN)
    with transit_server() as service:
        kms = {"encryption": "kms", "kms_url": service.url, "kms_token_file": str(token)}
        with hand_lake(tmp_path / "data", **kms) as lake:
            store_three(lake)
            there, service.script = service.script, lambda _asked: Answer(503, "{}")
            lake.store([planted("u")], "acme")
            assert len(lake.rows(TEXTS, tenant="acme")) == 7
            accepted = lake.send([planted("v")], "new")
            assert len(accepted.values) == 1
            with pytest.raises(KeyServiceUnreachable):
                lake.writer().drain()
            with pytest.raises(KeyServiceUnreachable):
                without_memory(lake).rows(TEXTS, tenant="acme")
            service.script = there
            lake.store(tenant="new")
            assert len(lake.rows(TEXTS, tenant="new")) == 1
            assert len(lake.rows(TEXTS, tenant="acme")) == 7


def test_a_backup_is_sealed_and_is_a_lake_again_with_the_keys(
    lake: HandLake, masters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_three(lake)
    back_up(lake.lake, tmp_path / "copy")
    files = list((tmp_path / "copy").rglob("*.parquet"))
    assert files
    assert not [path for path in files if MARKER.encode() in path.read_bytes()]
    monkeypatch.setenv("PENSTOCK_ENCRYPTION", "file")
    monkeypatch.setenv("PENSTOCK_ENCRYPTION_KEY_FILE", str(masters))
    restore(tmp_path / "copy", tmp_path / "again")
    with hand_lake(tmp_path / "again", **sealed_by(masters)) as again:
        assert len(again.rows(TEXTS, tenant="acme")) == 6
