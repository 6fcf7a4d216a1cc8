import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.core.settings import load_settings
from penstock.lake import RestoreCutOff
from penstock.lake.lake import open_existing, open_or_make
from penstock.lake.upkeep.backup import back_up, restore
from penstock_jobs.simulator.demo.server import running_server
from tests.room.lake.test_backup import events_of, filled
from tests.support.lakes import body_of, make_event
from tests.support.waiting import eventually


@pytest.mark.parametrize("form", ["copy", "copy.tar"])
def test_a_backup_of_a_served_lake_holds_all_that_was_acknowledged(
    tmp_path: Path, form: str
) -> None:
    data = tmp_path / "lake"
    acknowledged: set[str] = set()
    done = threading.Event()
    settings = {"PENSTOCK_FLUSH_SECONDS_MAX": "0.05", "PENSTOCK_LOG_BYTES_MAX": str(8 << 20)}
    with running_server(data, settings=settings) as server:

        def send() -> None:
            with server.client() as client:
                for number in range(100_000):
                    events = [
                        make_event(f"s{number}", n, payload={"text": "x" * 2000}) for n in range(20)
                    ]
                    client.send_events(body_of(events))
                    acknowledged.add(f"s{number}")
                    if done.is_set():
                        return

        sender = threading.Thread(target=send)
        sender.start()
        try:
            with open_existing(data) as lake:
                for number in range(2):
                    _wait_for_more_than(acknowledged, 20 * number + 10)
                    before = set(acknowledged)
                    back_up(lake, tmp_path / f"{number}-{form}")
                    held = _restored_sessions(tmp_path / f"{number}-{form}")
                    assert before <= held.keys()
                    assert set(held.values()) == {20}  # each once, and no request in part
        finally:
            done.set()
            sender.join()


def _wait_for_more_than(sessions: set[str], count: int) -> None:
    eventually(lambda: len(sessions) > count)


def _restored_sessions(backup: Path) -> dict[str, int]:
    """How many events of each session are in the lake that is made of it."""
    again = backup.with_name(f"again-{backup.stem}")
    restore(backup, again)
    with open_existing(again) as lake:
        counts = lake.query("select session_id, count(*) from events group by all").arrow()
    return dict(zip(*counts.to_pydict().values(), strict=True))


_KILLED = """
import os, signal, sys
from pathlib import Path
import penstock.lake.upkeep.backup as backup
from penstock.lake.lake import open_existing

step, source, target, place = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
kind = {"finish": backup._Reader, "rename": Path, "verify": backup}[place]
name = {"finish": "finish", "rename": "rename", "verify": "_verify"}[place]
inner = getattr(kind, name)

def counted(*arguments, **named):
    global step
    if step == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    step -= 1
    return inner(*arguments, **named)

setattr(kind, name, counted)
if (source / "penstock.db").exists() and not (source / "backup.json").exists():
    with open_existing(source) as lake:
        backup.back_up(lake, target)
else:
    backup.restore(source, target)
"""


def _killed(step: int, source: Path, target: Path, place: str) -> None:
    arguments = [str(step), str(source), str(target), place]
    done = subprocess.run([sys.executable, "-c", _KILLED, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("form", "step"), [("copy", 0), ("copy.tar", 3)])
def test_a_backup_that_is_killed_is_none_and_the_next_one_is_whole(
    tmp_path: Path, form: str, step: int
) -> None:
    with filled(tmp_path / "lake"):
        pass
    _killed(step, tmp_path / "lake", tmp_path / form, "finish")
    assert not (tmp_path / form).exists()
    with open_existing(tmp_path / "lake") as lake:
        back_up(lake, tmp_path / form)
    restore(tmp_path / form, tmp_path / "again")
    assert not list(tmp_path.glob("*.unfinished*"))


@pytest.mark.parametrize(
    ("step", "place"), [(2, "finish"), (0, "verify"), (0, "rename"), (1, "rename"), (2, "rename")]
)
def test_a_restore_that_is_killed_leaves_no_lake_and_the_next_one_makes_it(
    tmp_path: Path, step: int, place: str
) -> None:
    with filled(tmp_path / "lake") as by_hand:
        back_up(by_hand.lake, tmp_path / "copy")
        before = events_of(by_hand.lake)
    _killed(step, tmp_path / "copy", tmp_path / "again", place)
    with pytest.raises(RestoreCutOff, match="Run `penstock restore` again"):
        open_or_make(load_settings(tmp_path / "again", {}))
    restore(tmp_path / "copy", tmp_path / "again")
    with open_existing(tmp_path / "again") as lake:
        assert events_of(lake) == before
