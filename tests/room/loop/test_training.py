"""What every trainer does, a command or an address: what it is told, what it may answer, and how it
is ended; and what only a command does. What only an address does is in test_trainer_http."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock_jobs.loop.cycles import StageLost, TrainerFailed
from penstock_jobs.loop.trainers import ANSWER_BYTES_MAX, TrainedCheckpoint, Trainer, TrainingTask
from tests.support.loop.trainers import by_address, by_command, task
from tests.support.loop_world import is_alive
from tests.support.repository import ROOT
from tests.support.servers.scripted_server import Answer, Asked, Server, serving
from tests.support.waiting import eventually

DIGEST = "sha256:" + "a" * 64


@dataclass
class Twin:
    """A kind of trainer, and how it is brought to behave in some way."""

    folder: Path
    server: Server | None

    @property
    def trainer(self) -> Trainer:
        if self.server is None:
            return by_command(self.folder, (self.folder / "command").read_text())
        return by_address(self.server.url)

    def answers(self, text: str) -> None:
        if self.server is None:
            (self.folder / "text").write_text(text)
            self._command('cp text "$PENSTOCK_ANSWER"')
        else:
            self.server.script = lambda _asked: Answer(200, text)

    def fails_once(self, status: int, said: str, then: str) -> None:
        """And says something before, that is longer than anybody wants to read."""
        if self.server is None:
            (self.folder / "text").write_text(then)
            (self.folder / "said").write_text("x" * 5_000 + said)
            once = 'once="$PENSTOCK_WORK/once"; test -e "$once" || '
            fail = f'{{ touch "$once"; cat said; exit {status}; }}'
            self._command(f'{once}{fail}; cp text "$PENSTOCK_ANSWER"')
        else:
            failed: list[Asked] = []

            def script(asked: Asked) -> Answer:
                if not failed:
                    failed.append(asked)
                    return Answer(500, said + "x" * 5_000)
                return Answer(200, then)

            self.server.script = script

    def hangs(self) -> None:
        if self.server is None:
            self._command(
                f"env > '{self.folder}/told'; sleep 300 & echo $! > '{self.folder}/pid'; wait"
            )
        else:
            jobs = {"Location": "/jobs/1"}
            self.server.script = lambda _asked: Answer(202, '{"detail": "step 7"}', jobs)

    def told(self) -> dict[str, Any]:
        """Of what hangs: once it was asked."""
        if self.server is None:
            eventually(lambda: self._pid() is not None)
            lines = (self.folder / "told").read_text().splitlines()
            found = dict(one.split("=", 1) for one in lines if "=" in one)
            names = {one: f"PENSTOCK_{one.upper()}" for one in task().facts}
            return {name: found[known] for name, known in names.items()}
        eventually(lambda: self.server is not None and self.server.asked)
        return {name: str(value) for name, value in self.server.asked[0].document.items()}

    def runs(self) -> bool:
        """Whether what hangs goes on."""
        if self.server is None:
            pid = self._pid()
            return pid is not None and is_alive(pid)
        return "DELETE" not in self.server.methods

    def _command(self, text: str) -> None:
        (self.folder / "command").write_text(text)

    def _pid(self) -> int | None:
        path = self.folder / "pid"
        text = path.read_text().strip() if path.exists() else ""
        return int(text) if text else None


@pytest.fixture(params=["command", "address"])
def twin(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Twin]:
    if request.param == "command":
        yield Twin(tmp_path, None)
        return
    with serving() as server:
        yield Twin(tmp_path, server)


def answer(**facts: object) -> str:
    return json.dumps({"uri": "s3://models/1", "digest": DIGEST} | facts)


def train(
    twin: Twin, wanted: TrainingTask | None = None, lost: Event | None = None
) -> TrainedCheckpoint:
    return twin.trainer.train(wanted or task(), lost or Event())


def test_it_answers_what_it_made(twin: Twin) -> None:
    twin.answers(answer(digest=f"sha256:{'A' * 64}", form="delta", note="ok"))
    assert train(twin) == TrainedCheckpoint("s3://models/1", DIGEST, "delta", "ok")
    twin.answers(answer())
    assert train(twin) == TrainedCheckpoint("s3://models/1", DIGEST)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "malformed|truncated"),
        ("hello", "malformed"),
        ("\udcff", "malformed|invalid"),
        ("{}", "missing required field `uri`"),
        ("[1]", "Expected `object`"),
        (answer(uri=3), "Expected `str`"),
        (answer(score=1), "unknown field `score`"),
        (answer(form="half"), "Invalid enum value 'half'"),
        (answer(digest="md5:1"), "64 hexadecimal digits"),
        (answer(uri="weights"), "a path must be absolute"),
        (answer(uri="https://user:secret@x/1"), "must not contain keys"),
        ("x" * (ANSWER_BYTES_MAX + 1), f"longer than {ANSWER_BYTES_MAX} bytes"),
    ],
)
def test_nonsense_is_no_answer(twin: Twin, text: str, why: str) -> None:
    twin.answers(text.replace("\udcff", "\x00"))
    with pytest.raises(
        TrainerFailed, match=rf"(?s)its answer .* cannot be used: .*({why})"
    ) as unfit:
        train(twin)
    assert "secret" not in str(unfit.value)


def test_a_failure_tells_some_of_what_it_said_and_may_be_tried_again(twin: Twin) -> None:
    twin.fails_once(7, "no memory", then=answer())
    with pytest.raises(TrainerFailed, match=r"(?s)status (7|500).*no memory") as failed:
        train(twin)
    assert len(str(failed.value)) < 3_000
    assert train(twin, task(attempt=2)).digest == DIGEST


def test_it_is_told_the_same_facts_by_the_same_names(twin: Twin) -> None:
    twin.hangs()
    lost, found = Event(), []

    def until_lost() -> None:
        with pytest.raises(StageLost):
            train(twin, lost=lost)
        found.append(True)

    thread = Thread(target=until_lost)
    thread.start()
    assert twin.told() == {name: str(value) for name, value in task().facts.items()}
    lost.set()
    thread.join()
    assert found
    if twin.server is None:  # whoever has the stage now runs it anew
        eventually(lambda: not twin.runs())
    assert twin.runs() == (twin.server is not None)


def test_one_that_hangs_is_ended_at_its_limit(twin: Twin) -> None:
    twin.hangs()
    with pytest.raises(TrainerFailed, match=r"had not finished after 0\.5 s"):
        train(twin, task(limit_s=0.5))
    eventually(lambda: not twin.runs())


@pytest.mark.system
@pytest.mark.parametrize("how", ["command", "address"])
def test_one_whose_runner_is_killed(tmp_path: Path, how: str) -> None:
    """A command does not outlive it. What an address does goes on, and is found again."""
    with serving() as server:
        twin = Twin(tmp_path, server if how == "address" else None)
        twin.hangs()
        script = (
            "import sys; from pathlib import Path; from threading import Event\n"
            "from tests.support.loop.trainers import by_address, by_command, task\n"
            "trainer = by_address(sys.argv[3]) if sys.argv[1] == 'address' else\\\n"
            "    by_command(Path(sys.argv[2]), Path(sys.argv[2], 'command').read_text())\n"
            "trainer.train(task(), Event())"
        )
        command = [sys.executable, "-c", script, how, str(tmp_path), server.url]
        runner = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
        twin.told()
        runner.kill()
        runner.wait()
        if how == "command":
            eventually(lambda: not twin.runs())
            return
        assert twin.runs()
        key = server.asked[0].headers["idempotency-key"]
        server.script = lambda asked: Answer(
            200, answer() if asked.headers["idempotency-key"] == key else ""
        )
        assert train(twin, task(attempt=2)).digest == DIGEST


# By command alone


def test_it_has_folders_of_its_own_and_one_that_stays(tmp_path: Path) -> None:
    (tmp_path / "text").write_text(answer())
    command = (
        'test -z "$(ls "$PENSTOCK_OUTPUT")" && touch "$PENSTOCK_OUTPUT/x"\n'
        'echo try >> "$PENSTOCK_WORK/tries"\n'
        'test -n "$PENSTOCK_DATA" && cp text "$PENSTOCK_ANSWER"'
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
