"""An encrypted lake in S3: sealed by Penstock, whatever the bucket does."""

from pathlib import Path

from penstock.lake.catalog import current
from penstock.lake.merges import merge
from penstock.lake.statement_processes import StatementProcesses
from penstock.storage import open_store
from tests.room.encryption.test_key_services import new_master, write_private
from tests.support.lakes import hand_lake, make_event
from tests.support.servers.s3 import S3Server


def test_a_bucket_holds_no_text_and_statements_read_it(s3: S3Server, tmp_path: Path) -> None:
    masters = write_private(tmp_path / "masters", new_master())
    kept = {"encryption": "file", "encryption_key_file": str(masters)}
    with hand_lake(tmp_path / "data", store_url=s3.store_url(s3.new_prefix()), **kept) as lake:
        for number in range(3):
            lake.store([make_event("s", number), make_event(f"only-{number}", 0)])
        lake.lake.statements = StatementProcesses(distant_files=True)
        asked = lake.lake.query("SELECT text FROM user_messages WHERE session_id = 's'")
        assert asked.table().num_rows == 3
        merge(lake.lake, current(lake.lake.database).segments)
        assert lake.lake.query("SELECT * FROM events").table().num_rows == 6
        plain = open_store(lake.lake.settings)
        for stored in plain.list():
            with plain.open(stored.name) as source:
                assert source.read().startswith(b"PSEALED1")
