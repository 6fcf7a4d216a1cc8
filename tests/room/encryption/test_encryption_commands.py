"""`penstock encryption` from a shell."""

import json
from pathlib import Path

import pytest

from tests.room.encryption.test_key_services import new_master, write_private
from tests.support.commands import penstock
from tests.support.lakes import hand_lake, make_event


def test_keys_are_listed_rotated_and_wrapped_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    masters = write_private(tmp_path / "masters", new_master())
    data = str(tmp_path / "data")
    with hand_lake(tmp_path / "data") as lake:
        lake.store([make_event("s", 1)])
    refused = penstock("encryption", "rotate", "default", "--data", data)
    assert refused.returncode == 2
    assert "is not encrypted" in refused.stderr
    monkeypatch.setenv("PENSTOCK_ENCRYPTION", "file")
    monkeypatch.setenv("PENSTOCK_ENCRYPTION_KEY_FILE", str(masters))
    absent = penstock("encryption", "rotate", "acme", "--data", data)
    assert absent.returncode == 2
    assert "acme has no data key" in absent.stderr
    with hand_lake(tmp_path / "data", encryption="file", encryption_key_file=str(masters)) as lake:
        lake.store([make_event("s", 2)])
    rotated = json.loads(
        penstock("encryption", "rotate", "default", "--data", data, "--json").stdout
    )
    assert (rotated["deleted"], rotated["kept"]) == (0, 1)
    masters.write_text(new_master() + masters.read_text())
    assert "2 data keys" in penstock("encryption", "rewrap", "--data", data).stderr
    masters.write_text(masters.read_text().splitlines()[0] + "\n")
    keys = json.loads(penstock("encryption", "keys", "--data", data, "--json").stdout)
    assert [key["owner"] for key in keys] == ["t-default", "t-default"]
    assert [key["retired_at"] is None for key in keys] == [False, True]
    counted = penstock("query", "select count(*) as n from events", "--data", data, "--json")
    assert json.loads(counted.stdout)[0] == {"n": 2}
    assert '"rotate"' in penstock("audit", "list", "--data", data, "--json").stdout
    monkeypatch.delenv("PENSTOCK_ENCRYPTION")
    off = penstock("query", "select 1 from events", "--data", data)
    assert off.returncode == 2
    assert "has sealed files" in off.stderr
