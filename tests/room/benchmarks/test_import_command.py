"""`penstock bench import`, into a registry."""

import json
from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.settings import load_settings
from penstock.lake.lake import open_or_make
from penstock.registry.checkpoints.attempts import attempts_of
from penstock.registry.checkpoints.checkpoint import AttemptConflict, CheckpointUnknown
from penstock.registry.checkpoints.journal import AttemptScope
from penstock.registry.checkpoints.suites import SuiteTask, SuiteVersion, add_suite, suite_versions
from tests.support.benchmarks.import_folders import harbor_job, harbor_trial
from tests.support.commands import penstock
from tests.support.result_registry import TENANT, Registry


@pytest.fixture
def results(tmp_path: Path) -> Path:
    path = tmp_path / "r.jsonl"
    lines = [{"task": f"t-{at}", "attempt": 0, "score": 0.25 * at} for at in range(4)]
    lines += [{"task": "t-3", "attempt": 1, "error": "down"}]
    path.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    return path


def test_a_second_import_adds_nothing(registry: Registry, results: Path, tmp_path: Path) -> None:
    done = registry.take(results)
    assert (done.format, done.suite_version, done.attempts, done.new) == (
        "penstock", "imported", 5, 5,
    )  # fmt: skip
    assert (done.scored, done.errors, done.tasks, done.mean_score) == (4, 1, 4, 0.375)
    assert suite_versions(registry.database, TENANT, "core")[0].tasks == ()
    elsewhere = tmp_path / "else" / "where.jsonl"
    elsewhere.parent.mkdir()
    elsewhere.write_bytes(results.read_bytes())
    for path in (results, elsewhere):
        again = registry.take(path)
        assert (again.new, again.run) == (0, done.run)
    [run] = registry.runs()
    assert (run.id, run.kind, run.source) == (done.run, "penstock", str(results))


def test_more_of_the_same_adds_what_is_new(registry: Registry, results: Path) -> None:
    registry.take(results)
    with results.open("a", encoding="utf-8") as file:
        file.write('{"task": "t-9", "attempt": 0, "score": 1}\n')
    assert registry.take(results).new == 1
    assert len(registry.runs()) == 2


def test_other_results_for_a_known_attempt_are_refused_whole(
    registry: Registry, results: Path
) -> None:
    registry.take(results)
    text = results.read_text(encoding="utf-8").replace("0.25", "0.75")
    results.write_text(text + '{"task": "t-9", "attempt": 0, "score": 1}\n', encoding="utf-8")
    for dry_run in (True, False):
        with pytest.raises(AttemptConflict):
            registry.take(results, dry_run=dry_run)
    assert ("t-9", 0) not in registry.kept()
    assert len(registry.runs()) == 1
    assert registry.take(results, first_attempt=5).new == 6
    assert registry.kept()["t-1", 5] == 0.75


def test_a_dry_run_counts_what_takes_the_place_of_errors(registry: Registry, results: Path) -> None:
    registry.take(results)
    text = results.read_text(encoding="utf-8").replace('"error": "down"', '"score": 1')
    results.write_text(text, encoding="utf-8")
    assert registry.take(results, dry_run=True).new == 1
    assert registry.take(results).new == 1


def test_a_dry_run_changes_nothing(registry: Registry, results: Path) -> None:
    done = registry.take(results, dry_run=True)
    assert (done.new, done.dry_run) == (5, True)
    assert registry.kept() == {}
    assert registry.runs() == []
    assert suite_versions(registry.database, TENANT, "core") == []


def test_the_newest_version_of_the_suite_and_its_tasks(registry: Registry, results: Path) -> None:
    for version, names in (("sha256:1", ["t-0"]), ("sha256:2", ["t-0", "t-1", "t-7"])):
        tasks = tuple(SuiteTask(name) for name in names)
        add_suite(registry.database, TENANT, SuiteVersion("core", version, tasks))
    done = registry.take(results)
    assert done.suite_version == "sha256:2"
    assert {one.kind: one.count for one in done.problems} == {
        "a task of the suite has no result": 1,
        "a task that the suite does not have was left out": 2,
    }
    assert registry.kept("sha256:2") == {("t-0", 0): None, ("t-1", 0): 0.25}
    assert registry.take(results, suite_version="sha256:1").attempts == 1
    assert registry.take(results, suite_version="mine").attempts == 5
    with pytest.raises(InvalidInput, match="no known version has this digest"):
        registry.take(results, suite_version="sha256:3")


def test_what_is_named_must_be_there(registry: Registry, results: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointUnknown):
        registry.take(results, checkpoint="ckpt-9")
    for suite, version in (("core\nv1", None), ("", None), ("core", "v1\nckpt")):
        with pytest.raises(InvalidInput, match="it must be printable text"):
            registry.take(results, suite=suite, suite_version=version)
    with pytest.raises(InvalidInput, match="does not exist"):
        registry.take(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="have one score"):
        registry.take(results, metric="x")
    (tmp_path / "empty.jsonl").write_text('{"task": "", "score": 1}\n', encoding="utf-8")
    with pytest.raises(InvalidInput, match="no results to import: an attempt"):
        registry.take(tmp_path / "empty.jsonl")
    assert suite_versions(registry.database, TENANT, "core") == []


def test_as_a_person_types_it(tmp_path: Path) -> None:
    data, job = tmp_path / "data", tmp_path / "job"
    with open_or_make(load_settings(data)) as lake:
        Registry(lake.database, lake.settings)
    harbor_trial(job, "a__1", 1)
    harbor_trial(job, "a__2", None)
    harbor_job(job, 2)

    def run(*further: str, checkpoint: str = "ckpt-1") -> tuple[int, str, str]:
        named = ["--suite", "core", "--checkpoint", checkpoint, "--data", str(data)]
        done = penstock("bench", "import", str(job), *named, *further)
        return done.returncode, done.stdout, done.stderr

    status, out, said = run()
    rows = {" ".join(line.split()) for line in out.splitlines()}
    assert {"format harbor", "attempts 2", "errors 1", "mean score 1.0000", "new 2"} <= rows
    assert (status, "1 attempts say nothing about the model" in said) == (0, True)
    assert f"1 {_NO_REWARD} a job/a__2" in rows
    status, out, said = run("--json")
    assert (status, json.loads(out)["new"]) == (0, 0)
    failed = {"task": "a", "attempt": 1, "error": _NO_REWARD, "where": "job/a__2"}
    assert json.loads(out)["failed"] == [failed]
    status, out, said = run(checkpoint="ckpt-2")
    assert (status, "The checkpoint 'ckpt-2' does not exist" in said) == (2, True)
    with open_or_make(load_settings(data)) as lake:
        place = AttemptScope(TENANT, "core", "imported", "ckpt-1")
        results = [one.result for one in attempts_of(lake.database, place)]
    assert [(one.score, one.error) for one in results] == [(1, None), (None, _NO_REWARD)]


_NO_REWARD = "it has no reward reward"
