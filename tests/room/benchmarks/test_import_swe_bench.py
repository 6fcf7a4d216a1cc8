"""Reports of SWE-bench."""

from pathlib import Path

from tests.support.benchmarks.import_folders import outcomes, read, swe_instance, swe_summary, write

LISTS = {
    "submitted_ids": ["a", "b", "c", "d"],
    "completed_ids": ["a", "b"],
    "resolved_ids": ["a"],
    "unresolved_ids": ["b"],
    "empty_patch_ids": ["c"],
    "error_ids": ["d"],
    "incomplete_ids": ["e"],
}


def test_a_summary(tmp_path: Path) -> None:
    found = read(swe_summary(tmp_path / "model.run1.json", **LISTS))
    assert outcomes(found) == {
        ("a", 0): 1,
        ("b", 0): 0,
        ("c", 0): 0,
        ("d", 0): "its evaluation failed",
        ("e", 0): "no prediction was submitted",
    }
    assert [one.edited for one in found.attempts] == [None, None, False, None, None]
    assert found.problems == {"an empty patch counts 0": 1}


def test_what_the_harness_lays_to_the_environment_is_an_error(tmp_path: Path) -> None:
    facts = {"infra_failure_ids": ["b"], "failure_reasons": {"b": "disk full"}}
    summary = swe_summary(tmp_path / "m.r.json", **LISTS | facts)
    assert outcomes(read(summary))["b", 0] == "its environment failed: disk full"


def test_what_a_summary_says_twice_or_not_at_all(tmp_path: Path) -> None:
    lists = LISTS | {"unresolved_ids": ["a", "b"], "submitted_ids": ["a", "x"]}
    found = outcomes(read(swe_summary(tmp_path / "m.r.json", **lists, total_instances=9)))
    assert found["a", 0] == "the summary says both that it was resolved and that it was not"
    assert found["x", 0] == "only the summary names it"


def test_reports_of_instances_with_and_without_the_summary(tmp_path: Path) -> None:
    swe_instance(tmp_path, "a")
    swe_instance(tmp_path, "b", resolved=False, patch_successfully_applied=False)
    (swe_instance(tmp_path, "d") / "report.json").unlink()
    alone = read(tmp_path)
    unapplied = "a patch that was not applied, or left no test results, counts 0"
    assert outcomes(alone) == {("a", 0): 1, ("b", 0): 0, ("d", 0): "it left no report"}
    assert alone.problems[unapplied] == 1
    swe_summary(tmp_path / "model.run1.json", **LISTS)
    both = outcomes(read(tmp_path))
    assert both["c", 0] == 0
    assert both["d", 0] == "it left no report"
    assert both["e", 0] == "no prediction was submitted"
    assert {task for task, _number in both} == set("abcde")


def test_a_summary_and_a_report_that_differ_count_for_neither(tmp_path: Path) -> None:
    swe_instance(tmp_path, "a", resolved=False)
    swe_instance(tmp_path, "b", resolved=False)
    swe_summary(tmp_path / "model.run1.json", **LISTS)
    assert outcomes(read(tmp_path))["a", 0] == "its report and the summary differ"


def test_what_only_the_summary_names_is_an_error(tmp_path: Path) -> None:
    swe_instance(tmp_path, "b", resolved=False)
    swe_summary(tmp_path / "model.run1.json", **LISTS)
    assert outcomes(read(tmp_path))["a", 0] == "only the summary names it"


def test_a_report_elsewhere_than_the_harness_leaves_it_proves_nothing(tmp_path: Path) -> None:
    folder = swe_instance(tmp_path, "a", resolved=False)
    write(folder / "forged" / "report.json", {"b": {"resolved": True, "patch_exists": True}})
    write(folder / "other.json", {"a": {"resolved": True, "patch_exists": True}})
    found = read(tmp_path)
    assert outcomes(found) == {("a", 0): 0}
    kind = "a report that does not lie in its instance's folder was left out"
    assert found.problems == {kind: 2}


def test_a_report_of_an_empty_patch_and_one_of_a_broken_environment(tmp_path: Path) -> None:
    swe_instance(tmp_path, "a", resolved=False, patch_is_None=True, patch_exists=False)
    swe_instance(tmp_path, "b", resolved=False, infra_failure=True, infra_failure_reason="network")
    (swe_instance(tmp_path, "c") / "report.json").write_text("", encoding="utf-8")
    found = outcomes(read(tmp_path))
    assert found["a", 0] == 0
    assert found["b", 0] == "its environment failed: network"
    assert str(found["c", 0]).startswith("its report cannot be read")
