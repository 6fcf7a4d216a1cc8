"""Settings come from their rooms, in layers. Unknown ones are refused."""

import pickle
from pathlib import Path

import pytest

from penstock.core.errors import SettingInvalid
from penstock.core.settings import Settings, load_settings
from penstock.ingest.settings import IngestSettings
from penstock.lake import LakeSettings
from penstock_jobs.loop import LoopSettings


def test_each_room_gets_its_own_from_all_layers(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("flush_rows_max = 7\nlease_seconds = 20\n")
    environment = {"PENSTOCK_LEASE_SECONDS": "3", "PENSTOCK_LOOP": "x", "OTHER": "y"}
    made = load_settings(tmp_path, environment, {"flush_bytes_max": 9, "log_format": None})
    assert made.room(IngestSettings) == IngestSettings(flush_rows_max=7, flush_bytes_max=9)
    assert made.room(LakeSettings).lease_seconds == 3.0
    assert pickle.loads(pickle.dumps(made)) == made


def test_a_room_that_nothing_was_said_about_has_its_defaults(tmp_path: Path) -> None:
    assert Settings(data=tmp_path).room(LoopSettings) == LoopSettings()


@pytest.mark.parametrize("layer", ["file", "environment", "flags"])
def test_an_unknown_name_is_refused_with_the_nearest_known(tmp_path: Path, layer: str) -> None:
    if layer == "file":
        (tmp_path / "penstock.toml").write_text("loop_poll_second = 1\n")
    environment = {"PENSTOCK_LOOP_POLL_SECOND": "1"} if layer == "environment" else {}
    flags: dict[str, object] = {"loop_poll_second": 1} if layer == "flags" else {}
    with pytest.raises(SettingInvalid, match="did you mean loop_poll_seconds"):
        load_settings(tmp_path, environment, flags)
