"""`penstock observe --url`: of a service, with a key that may only send."""

import json
import os
import time
from pathlib import Path

import pytest

from tests.support.commands import penstock
from tests.support.service import Service


@pytest.mark.smoke
def test_of_a_service(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "app.py").write_text("key = 'AKIAIOSFODNN7EXAMPL3'\n")
    edit = {"path": str(folder / "app.py"), "before": "", "after": "key\n", "edit_id": "e1"}
    event = {"session_id": "s-1", "event_id": "1", "type": "edit", "payload": edit,
             "ts": time.time_ns() // 1000 - 610 * 1_000_000}  # fmt: skip
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PENSTOCK_KEY", service.keys["ingest"])
    assert service.post("/v1/events", json.dumps(event).encode()).status == 200
    observe = ("observe", str(folder), "--url", service.server.url, "--once", "--json")
    done = [json.loads(penstock(*observe).stdout) for _ in range(2)]
    assert [(each["edits"], each["sent"]) for each in done] == [(1, 1), (0, 0)]
    [row] = service.query("select path, text, edit_ids from observations")
    assert row["path"] == str(folder / "app.py")
    assert "AKIAIOSFODNN7EXAMPL3" not in row["text"]  # masked before it left

    asked = service.client("ingest").get(f"/v1/edited-files?folder={folder}")
    assert [each["edit_id"] for each in asked.json()["edits"]] == ["e1"]
    others = service.client("bolt").get(f"/v1/edited-files?folder={folder}")
    assert others.json()["edits"] == []
    assert service.client("ingest").get("/v1/edited-files?folder=shop").status == 400
    of_all = service.client("ingest").get("/v1/edited-files?folder=/")
    assert of_all.json() == asked.json()
    away = penstock(*observe[:3], "http://127.0.0.1:9", *observe[4:])
    assert away.returncode == 3
    assert os.listdir(tmp_path / "state" / "penstock" / "observe")  # noqa: PTH208
