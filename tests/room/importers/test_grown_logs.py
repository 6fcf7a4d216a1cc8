"""Logs that grow are read on from where reading stopped, and from their beginning where that is
not safe."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.backends.database.engine import Database
from penstock.core.settings import load_settings
from penstock.lake.lake import open_or_make
from penstock_jobs.importers.progress import ImportProgress, KeptReadings
from penstock_jobs.importers.report import FormatReport
from tests.support.claude_code_rows import answers, asks, result, said, uses, write
from tests.support.session_sources import FIXTURES, Event, EventCollector, stored, take

CODEX = next((FIXTURES / "codex/patch").glob("*.jsonl"))
STORES = "penstock_jobs.importers.progress.STORED_STEP_BYTES"

RUNS = [
    asks(0, "Fix the price"),
    answers(1, "m1", said("I look."), uses("t1", "Read", file_path="/code/shop/a.py")),
    answers(2, "m1", uses("t2", "Edit", file_path="/a.py", old_string="a", new_string="b")),
    result(3, "t1", "a = 1"),
    answers(4, "m1", said("Late."), usage=20),
    result(5, "t2"),
    answers(6, "m2", said("Done.")),
    asks(7, "Again"),
    asks(8, "Rather this", parentUuid="u6"),
    asks(8, "Rather this", parentUuid="u6"),
    answers(9, "m1", said("Later still.")),
    asks(10, "In a subagent", isSidechain=True, parentUuid=None),
    answers(11, "m3", said("Chained."), isSidechain=True, parentUuid="u10"),
    answers(12, "m4", said("End."), model="claude-opus-4-5"),
]


def claude_log(folder: Path) -> Path:
    return write(folder, *RUNS)


def codex_log(folder: Path) -> Path:
    folder.mkdir()
    file = folder / CODEX.name
    file.write_bytes(CODEX.read_bytes())
    return file


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_or_make(load_settings(tmp_path_factory.mktemp("lake"))) as lake:
        yield lake.database


class Imports:
    def __init__(self, database: Database | None = None, kept: KeptReadings | None = None) -> None:
        self._database, self._kept = database, kept
        self.events: dict[tuple[str, str], Event] = {}

    def take(self, file: Path) -> FormatReport:
        progress = ImportProgress(self._database, "default") if self._database else None
        collector = EventCollector(progress, self._kept)
        collector.take_all(file)
        for event in collector.events:
            self.events.setdefault((event["session_id"], event["event_id"]), event)
        (report,) = collector.report.formats.values()
        return report


@pytest.fixture(params=["kept", "stored"])
def imports(
    request: pytest.FixtureRequest, database: Database, monkeypatch: pytest.MonkeyPatch
) -> Imports:
    if request.param == "kept":
        return Imports(kept=KeptReadings())
    monkeypatch.setattr(STORES, 1)
    return Imports(database)


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_jobs.importers.fields.is_recent", lambda *_: True)


def grown(file: Path) -> Iterator[Path]:
    content = file.read_bytes()
    ends = range(content.index(b"\n") + 1, len(content))
    for end in [*sorted(random.Random(3).sample(ends, 6)), len(content)]:
        file.write_bytes(content[:end])
        yield file


@pytest.mark.parametrize("is_live", [True, False])
@pytest.mark.parametrize("log", [claude_log, codex_log])
def test_read_on_it_gives_the_events_that_it_gives_as_a_whole(
    log: object, is_live: bool, imports: Imports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert callable(log)
    monkeypatch.setattr("penstock_jobs.importers.fields.is_recent", lambda *_: is_live)
    file, whole, once = log(tmp_path / "log"), Imports(), Imports()
    for each in grown(file):
        whole.take(each)
        imports.take(each)
    monkeypatch.setattr("penstock_jobs.importers.fields.is_recent", lambda *_: False)
    for way in (whole, imports, once):
        way.take(file)
    assert imports.events == whole.events
    if is_live:
        assert imports.events == once.events


@pytest.mark.usefixtures("live")
def test_only_what_was_appended_is_read(imports: Imports, tmp_path: Path) -> None:
    file = claude_log(tmp_path / "log")
    content = file.read_bytes()
    middle = content.index(b"Rather this")
    file.write_bytes(content[:middle])
    assert imports.take(file).read_bytes == middle
    file.write_bytes(content)
    line = content.rindex(b"\n", 0, middle) + 1
    assert imports.take(file).read_bytes == len(content) - line


@pytest.mark.usefixtures("live")
def test_small_logs_are_read_again_between_runs(database: Database, tmp_path: Path) -> None:
    imports, file = Imports(database), claude_log(tmp_path / "log")
    assert imports.take(file).read_bytes == file.stat().st_size
    with file.open("a") as more:
        more.write(json.dumps(asks(20, "More")) + "\n")
    assert imports.take(file).read_bytes == file.stat().st_size


def cut_off(file: Path, content: bytes) -> None:
    lines = content.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-3]))


def replaced_by_one_as_long(file: Path, content: bytes) -> None:
    other = file.with_suffix(".new")
    other.write_bytes(content.replace(b"Fix the price", b"Fix the index"))
    other.rename(file)


def written_over(file: Path, content: bytes) -> None:
    with file.open("r+b") as opened:
        opened.write(content.replace(b"Rather this", b"Rather that"))


def written_over_and_longer(file: Path, content: bytes) -> None:
    written_over(file, content)
    with file.open("a") as more:
        more.write(json.dumps(asks(20, "More")) + "\n")


@pytest.mark.usefixtures("live")
@pytest.mark.parametrize(
    "change", [cut_off, replaced_by_one_as_long, written_over, written_over_and_longer]
)
def test_a_log_that_is_another_now_is_read_from_its_beginning(
    change: object, imports: Imports, tmp_path: Path
) -> None:
    assert callable(change)
    file, anew = claude_log(tmp_path / "log"), Imports()
    imports.take(file)
    change(file, file.read_bytes())
    assert imports.take(file).read_bytes == file.stat().st_size
    anew.take(file)
    assert anew.events.keys() <= imports.events.keys()


@pytest.mark.usefixtures("live")
def test_a_last_line_without_its_end_is_read_again(tmp_path: Path) -> None:
    imports, file = Imports(kept=KeptReadings()), claude_log(tmp_path / "log")
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    imports.take(file)
    file.write_bytes(content)
    assert imports.take(file).read_bytes == len(content)


@pytest.mark.usefixtures("live")
def test_what_did_not_reach_the_log_of_the_lake_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(STORES, 1)
    data, file = tmp_path / "data", claude_log(tmp_path / "log")
    take(data, [file])
    more = [asks(20, "More"), answers(21, "m9", said("Yes.")), asks(22, "Thanks")]
    write(file.parent, *RUNS, *more)

    def kill(*_arguments: object, **_more: object) -> None:
        raise ConnectionError("killed")

    with monkeypatch.context() as now:
        now.setattr("penstock.ingest.file_import.FileImporter.take_body", kill)
        with pytest.raises(ConnectionError):
            take(data, [file])
    take(data, [file])
    take(tmp_path / "once", [file])
    assert stored(data) == stored(tmp_path / "once")
