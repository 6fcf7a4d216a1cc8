"""Every fixture of every format: recognised by its importer alone, counted as expected, and the
same lake however it is read."""

import json
import shutil
from pathlib import Path

import pytest

from penstock_jobs.importers.formats.opencode import StoredSession
from penstock_jobs.importers.import_run import plan_import
from penstock_jobs.importers.importer import all_importers
from penstock_jobs.importers.sources import Candidate
from tests.support.session_sources import EXPECTED, EventCollector, cases, events_of, stored, take

CASES = [pytest.param(*case, id=f"{case[0]}-{case[1].name}") for case in cases()]


def sources_of(folder: Path, to: Path) -> Path:
    copied = to / folder.name
    shutil.copytree(folder, copied, ignore=shutil.ignore_patterns(EXPECTED))
    return copied


def test_each_importer_has_a_fixture() -> None:
    assert {importer.name for importer in all_importers()} == {name for name, _ in cases()}


@pytest.mark.parametrize(("name", "folder"), CASES)
def test_one_importer_takes_what_is_expected_wherever_it_lies(
    name: str, folder: Path, tmp_path: Path
) -> None:
    here, there = sources_of(folder, tmp_path / "a"), sources_of(folder, tmp_path / "b")
    for source, _importer, _size in plan_import([here]).sources:
        if source.real.exists():
            candidate = Candidate(source.path, source.folder, source.names, source.is_folder)
        else:  # in a Git repository
            candidate = Candidate(source.folder, source.folder.parent, (source.folder.name,), True)
        assert [each.name for each in all_importers() if each.recognises(candidate)] == [name]
    collector = EventCollector()
    collector.take_all(here)
    report = collector.report
    assert report.formats.keys() == {name}
    assert report.unfit == []
    taken = report.formats[name].taken
    skipped = {kind: items.count for kind, items in report.formats[name].skipped.items()}
    counted = {"taken": {"sessions": len(taken.sessions)} | taken.counts, "skipped": skipped}
    assert counted == json.loads((folder / EXPECTED).read_text())
    assert collector.events == events_of(there, marks=True)
    # An event that stands twice in a source is the same event.
    by_id: dict[tuple[str, str], object] = {}
    for event in collector.events:
        key = event["session_id"], event["event_id"]
        assert by_id.setdefault(key, event["payload"]) == event["payload"]


def test_content_alone_decides_whatever_a_file_is_called(tmp_path: Path) -> None:
    for name, folder in cases():
        here = sources_of(folder, tmp_path / name)
        for source, _importer, _size in plan_import([here]).sources:
            if not source.exists() or isinstance(source, StoredSession):
                continue  # such a store is known by its folders
            shutil.copy(source.real, renamed := tmp_path / "download (1)")
            candidate = Candidate(renamed, tmp_path, (renamed.name,))
            assert [each.name for each in all_importers() if each.recognises(candidate)] == [name]


def test_each_source_is_taken_skipped_with_a_reason_or_unknown(tmp_path: Path) -> None:
    for name, folder in cases():
        sources_of(folder, tmp_path / name)
    (tmp_path / "cut").mkdir()
    for path in [each for each in tmp_path.rglob("*") if each.is_file() and each.stat().st_size]:
        cut = tmp_path / "cut" / f"{path.parent.name}-{path.name}"
        cut.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    (tmp_path / "diary.xyz").write_text("Nobody knows this format.")
    plan = plan_import([tmp_path])
    collector = EventCollector()
    collector.take_all(tmp_path)
    read = {importer.name for _source, importer, _size in plan.sources}
    assert collector.report.formats.keys() == read == {each.name for each in all_importers()}
    for name, report in collector.report.formats.items():
        skipped = sum(kind.count for kind in report.skipped_sources.values())
        assert report.sources == report.taken_sources + skipped, name
        assert report.sources == sum(each[1].name == name for each in plan.sources)
        assert all(report.skipped_sources)
    assert plan.unknown[".xyz"].count == 1


def test_twice_in_pieces_and_backwards_the_lake_is_the_same(tmp_path: Path) -> None:
    folders = [sources_of(folder, tmp_path / "sources" / name) for name, folder in cases()]
    take(tmp_path / "once", [tmp_path / "sources"])
    once = stored(tmp_path / "once")
    assert once
    take(tmp_path / "pieces", [*reversed(folders), tmp_path / "sources"])
    assert stored(tmp_path / "pieces") == once
