"""What is of trainers by command alone: their folders, their processes."""

from pathlib import Path
from threading import Event, Timer

import pytest

from penstock.errors import InvalidInput
from penstock.settings import load_settings
from penstock_jobs.loop.cycles import StageLost
from tests.support.loop.trainers import by_command, task
from tests.support.loop_world import is_alive
from tests.support.waiting import eventually

DIGEST = "sha256:" + "a" * 64


ANSWERS = f"""echo '{{"uri": "/x", "digest": "{DIGEST}"}}' > "$PENSTOCK_ANSWER"\n"""


def test_it_has_folders_of_its_own_and_one_that_stays(tmp_path: Path) -> None:
    command = (
        'test -z "$(ls "$PENSTOCK_OUTPUT")" && touch "$PENSTOCK_OUTPUT/x"\n'
        'echo try >> "$PENSTOCK_WORK/tries"\n'
        'test -n "$PENSTOCK_DATA"\n' + ANSWERS
    )
    for attempt in (1, 2):
        by_command(tmp_path, command).train(task(attempt=attempt), Event())
    assert (tmp_path / "cycle" / "work" / "tries").read_text() == "try\ntry\n"
    assert len(list((tmp_path / "cycle").glob("try-*/checkpoint/x"))) == 2


def test_a_trainer_may_read_the_settings_of_penstock(tmp_path: Path) -> None:
    told = ("ANSWER", "DATA", "OUTPUT", "WORK", *(one.upper() for one in task().facts))
    load_settings(tmp_path, {f"PENSTOCK_{name}": "x" for name in told})


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "cycle").write_text("a file")
    with pytest.raises(InvalidInput, match="output folder"):
        by_command(tmp_path, "true").train(task(), Event())


def test_one_whose_stage_is_lost_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    lost = Event()
    timer = Timer(0.3, lost.set)
    timer.start()
    command = "sleep 300 & echo $! > child; echo $$ > shell; wait"
    with pytest.raises(StageLost):
        by_command(tmp_path, command).train(task(), lost)
    timer.join()
    files = tmp_path / "shell", tmp_path / "child"
    eventually(lambda: all(one.exists() and one.read_text().strip() for one in files))
    found = [int(one.read_text()) for one in files]
    eventually(lambda: not any(is_alive(one) for one in found))
