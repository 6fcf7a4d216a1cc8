"""What is true of hostile files in every format: nothing hurts, what is wrong is said, and the
other files are in."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock_jobs.importers import stores
from penstock_jobs.importers.report import SessionImportReport
from tests.support.claude_code_rows import asks, write
from tests.support.session_sources import EXPECTED, cases, report_of

TEXTS = (".json", ".jsonl", ".traj")
PARENTS = ("parentUuid", "parent", "parent_id", "parentId", "parentID", "parent_span_id",
           "parent_observation_id", "parentObservationId", "parent_uuid")  # fmt: skip
IDS = ("uuid", "id", "span_id", "messageId")
GOOD = asks(0, "Mend it", sessionId="good-session")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """All fixtures, and a good session beside them."""
    for name, case in cases():
        copy_case(case, tmp_path / "home" / name)
    write(tmp_path / "home" / "good", GOOD, name="5d1f0c52-7a51-4b0e-9d4e-0c8f2c3f1a77.jsonl")
    return tmp_path / "home"


def copy_case(case: Path, to: Path) -> None:
    shutil.copytree(case, to / case.name, ignore=shutil.ignore_patterns(EXPECTED))


def files_of(home: Path) -> list[Path]:
    files = (path for path in sorted(home.rglob("*")) if path.is_file())
    return [path for path in files if path.parent.name != "good"]


def assert_good_is_in(report: SessionImportReport) -> None:
    assert hash("good-session") in report.formats["claude-code"].taken.sessions


def rewrite(home: Path, change: Callable[[Any], Any]) -> None:
    for path in files_of(home):
        if path.suffix in TEXTS:
            whole = path.read_text()
            texts = [line for line in whole.splitlines() if line.strip()]
            with suppress(json.JSONDecodeError):  # some fixtures have a torn file
                rows = map(json.loads, texts if path.suffix == ".jsonl" else [whole])
                path.write_text("".join(json.dumps(change(row)) + "\n" for row in [*rows]))


@pytest.mark.parametrize("kept", [0.5, 0.97])
def test_truncated(home: Path, kept: float) -> None:
    for path in files_of(home):
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * kept)])
    report = report_of(home)
    assert_good_is_in(report)
    assert not any("nobody expected" in why for _path, why in report.unfit)


def test_parents_in_a_circle(home: Path) -> None:
    def rows(value: Any) -> Iterator[dict[str, Any]]:
        if isinstance(value, dict):
            yield value
        for item in value.values() if isinstance(value, dict) else value:
            if isinstance(item, dict | list):
                yield from rows(item)

    def turn(case: Path) -> None:
        whole: list[dict[str, Any]] = []

        def listed(value: Any) -> Any:
            whole.extend(rows(value))
            return value

        def in_a_circle(value: Any) -> Any:
            for row in rows(value):
                own = next((row[each] for each in IDS if each in row), None)
                for key in set(PARENTS) & row.keys():
                    row[key] = row[key] + 1 if isinstance(row[key], int) else after.get(own)
            return value

        rewrite(case, listed)
        ids = [next((row[key] for key in IDS if key in row), None) for row in whole]
        after = dict(zip(ids, [*ids[1:], *ids[:1]], strict=True))
        rewrite(case, in_a_circle)

    for case in home.glob("*/*/"):
        turn(case)
    report = report_of(home)
    assert_good_is_in(report)
    assert report.unfit == []


def test_values_of_every_wrong_type(home: Path) -> None:
    kinds: Iterator[Any] = iter([None, 7, [], {}, "x", [[]], -1.5, True] * 10_000)

    def spoil(value: Any, depth: int = 0) -> Any:
        if depth > 2 and not isinstance(value, dict | list):
            return next(kinds)
        if isinstance(value, dict):
            return {key: spoil(item, depth + 1) for key, item in value.items()}
        return [spoil(item, depth + 1) for item in value] if isinstance(value, list) else value

    rewrite(home, spoil)
    assert_good_is_in(report_of(home))


DATABASES = [
    pytest.param((case, path.relative_to(case)), id=name)
    for name, case in cases()
    for path in case.rglob("*")
    if path.suffix in (".db", ".vscdb")
]


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    case, file = request.param
    copy_case(case, tmp_path / "home")
    write(tmp_path / "home" / "good", GOOD, name="5d1f0c52-7a51-4b0e-9d4e-0c8f2c3f1a77.jsonl")
    path: Path = tmp_path / "home" / case.name / file
    return path


def test_a_broken_database_is_said_to_be_one(database: Path, tmp_path: Path) -> None:
    content = database.read_bytes()
    for broken in (content[:100] + b"\xff" * 8000, content[:4096]):
        database.write_bytes(broken)
        report = report_of(tmp_path / "home")
        assert_good_is_in(report)
        ((path, why),) = report.unfit
        assert path == str(database)
        assert why.startswith("its database cannot be read: ")


def test_a_locked_database_is_said_to_be_locked(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "_BUSY_SECONDS", 0.01)
    writer = sqlite3.connect(database)
    writer.execute("PRAGMA locking_mode = EXCLUSIVE")
    writer.execute("CREATE TABLE held (a)")
    writer.commit()
    writer.execute("BEGIN EXCLUSIVE")
    writer.execute("INSERT INTO held VALUES (1)")
    try:
        report = report_of(tmp_path / "home")
    finally:
        writer.close()
    assert_good_is_in(report)
    assert [why for _path, why in report.unfit] == [
        "its database cannot be read: database is locked"
    ]
