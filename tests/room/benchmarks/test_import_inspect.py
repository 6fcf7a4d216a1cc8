"""Logs of Inspect."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from penstock.core.errors import InvalidInput
from tests.support.benchmarks.import_folders import eval_log, header, outcomes, read, sample, write


@pytest.fixture(params=["deflate", "zstd", "json", "indented"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Writes the same log in each form that there is."""

    def log(head: dict[str, Any], samples: list[dict[str, Any]]) -> Path:
        if request.param in ("deflate", "zstd"):
            path = tmp_path / "log.eval"
            return eval_log(path, head, samples, zstd=request.param == "zstd")
        path = write(tmp_path / "log.json", head | {"plan": {}, "samples": samples})
        if request.param == "indented":
            path.write_text(json.dumps(json.loads(path.read_text()), indent=2), encoding="utf-8")
        return path

    return log


def test_each_kind_of_score(make: Any) -> None:
    values = {"c": "C", "i": "I", "p": "P", "n": "N", "yes": "yes", "one": 1, "half": 0.5,
              "true": True, "text": "0.25"}  # fmt: skip
    found = read(make(header(list(values)), [sample(k, v) for k, v in values.items()]))
    assert outcomes(found) == {
        ("c", 0): 1, ("i", 0): 0, ("p", 0): 0.5, ("n", 0): 0, ("yes", 0): 1, ("one", 0): 1,
        ("half", 0): 0.5, ("true", 0): 1, ("text", 0): 0.25,
    }  # fmt: skip
    assert found.problems == {"no answer (N) counts 0, as Inspect counts it": 1}


def test_what_is_no_score_is_an_error(make: Any) -> None:
    samples = [
        sample("nan", float("nan")),
        sample("seven", 7),
        sample("odd", "maybe"),
        sample("list", [1, 0]),
        sample("none", None),
        sample("failed", "C", error={"message": "no sandbox", "traceback": "…"}),
        sample("void", "C", invalidation={"author": "…"}),
        sample("hand", "I", limit={"type": "operator", "limit": 1}),
    ]
    samples[0]["scores"]["match"]["reason"] = "grader_failed"
    found = outcomes(read(make(header([one["id"] for one in samples]), samples)))
    assert found == {
        ("nan", 0): "its score is not a finite number (grader_failed)",
        ("seven", 0): "its score is 7, not between 0 and 1",
        ("odd", 0): "its score cannot be read: 'maybe'",
        ("list", 0): "its score cannot be read: [1, 0]",
        ("none", 0): "it has no score match",
        ("failed", 0): "no sandbox",
        ("void", 0): "a person took it for invalid",
        ("hand", 0): "a person stopped it",
    }


def test_a_limit_of_the_model_counts_as_scored_and_is_told(make: Any) -> None:
    found = read(make(header(["a"]), [sample("a", "I", limit={"type": "token", "limit": 9})]))
    assert outcomes(found) == {("a", 0): 0}
    assert found.problems == {"a sample that came to the limit token counts as scored": 1}


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({}, (None, None)),
        ({"input_tokens": 0, "output_tokens": 0}, (None, None)),
        ({"output_tokens": 7}, (None, 7)),
        ({"input_tokens": 9, "output_tokens": 0}, (9, 0)),
    ],
)
def test_tokens_that_nobody_reported_are_not_0(
    make: Any, usage: dict[str, int], tokens: tuple[int | None, int | None]
) -> None:
    [attempt] = read(make(header(["a"]), [sample("a", model_usage={"m/x": usage})])).attempts
    assert (attempt.prompt_tokens, attempt.completion_tokens) == tokens


def test_tokens_are_those_of_the_model_that_was_tried(make: Any) -> None:
    usage = {
        "m/x": {"input_tokens": 5, "output_tokens": 7, "input_tokens_cache_read": 100,
                "total_cost": 0.25},
        "grader": {"input_tokens": 1000, "output_tokens": 1000},
    }  # fmt: skip
    one = sample("a", model_usage=usage, total_time=3.5, turn_count=4, error_retries=[{}])
    [attempt] = read(make(header(["a"]), [one])).attempts
    assert (attempt.prompt_tokens, attempt.completion_tokens, attempt.cost_usd) == (105, 7, 0.25)
    assert (attempt.latency_s, attempt.steps, attempt.retries) == (3.5, 4, 1)


def test_epochs_are_attempts_and_missing_ones_are_errors(make: Any) -> None:
    head = header([1, 2], config={"epochs": 2}, status="error")
    found = read(make(head, [sample(1, "C", 1), sample(1, "I", 2), sample(2, "C", 2)]))
    missing = "only the summary names it"
    assert outcomes(found) == {("1", 0): 1, ("1", 1): 0, ("2", 0): missing, ("2", 1): 1}


def test_several_scores_are_never_guessed(make: Any) -> None:
    one = sample("a")
    one["scores"] = {"m": {"value": {"x": 1, "y": 0}}, "other": {"value": 0.5}}
    log = make(header(["a"]), [one])
    with pytest.raises(InvalidInput, match=r"several: m\.x, m\.y, other; name one with --metric"):
        read(log)
    with pytest.raises(InvalidInput, match="there are: m"):
        read(log, metric="m")
    assert outcomes(read(log, metric="m.y")) == {("a", 0): 0}


def test_what_has_not_ended_is_taken_on_demand_alone(tmp_path: Path) -> None:
    head = header(["a", "b"])
    log = eval_log(tmp_path / "l.eval", head, [sample("a")], header="_journal/start.json")
    with ZipFile(log, "w") as archive:  # no status: as a killed run leaves it
        archive.writestr("_journal/start.json", json.dumps({"version": 2, "eval": head["eval"]}))
        archive.writestr("samples/a_epoch_1.json", json.dumps(sample("a")))
    with pytest.raises(InvalidInput, match="1 of 2 samples are missing"):
        read(log)
    found = read(log, unfinished=True)
    assert outcomes(found) == {("a", 0): 1, ("b", 0): "only the summary names it"}


def test_a_later_log_of_an_eval_goes_on_where_the_earlier_ended(tmp_path: Path) -> None:
    failed = sample("b", None, error={"message": "down"})
    eval_log(tmp_path / "2.eval", header(["a", "b"], status="error"), [sample("a"), failed])
    later = header(["a", "b"], created="2026-11-21T12:00:00+00:00")
    eval_log(tmp_path / "1.eval", later, [sample("a"), sample("b", "I")])
    found = read(tmp_path)
    assert outcomes(found) == {("a", 0): 1, ("b", 0): 0}
    assert [one.retries for one in found.attempts] == [0, 1]
    assert found.problems == {"an error of an earlier try was tried again": 1}


def test_tries_that_contradict_each_other_count_for_neither(tmp_path: Path) -> None:
    eval_log(tmp_path / "1.eval", header(["a"]), [sample("a", "C")])
    later = header(["a"], created="2026-11-21T12:00:00+00:00")
    eval_log(tmp_path / "2.eval", later, [sample("a", "I")])
    found = read(tmp_path)
    assert outcomes(found) == {("a", 0): "two results of it differ"}
    assert found.problems == {"of two results that differ neither was taken": 1}


def test_another_eval_is_further_attempts(tmp_path: Path) -> None:
    eval_log(tmp_path / "b.eval", header(["a"], task_id="T2"), [sample("a", "I")])
    earlier = header(["a"], created="2026-11-20T10:00:00+00:00", config={"epochs": 2})
    eval_log(tmp_path / "c.eval", earlier, [sample("a", "C"), sample("a", "P", 2)])
    assert outcomes(read(tmp_path)) == {("a", 0): 1, ("a", 1): 0.5, ("a", 2): 0}


def test_logs_of_several_models_are_not_mixed(tmp_path: Path) -> None:
    eval_log(tmp_path / "1.eval", header(["a"]), [sample("a", "I")])
    eval_log(tmp_path / "2.eval", header(["a"], model="m/y", task_id="T2"), [sample("a", "C")])
    with pytest.raises(InvalidInput, match="several: t m/x; t m/y; name one with --only"):
        read(tmp_path)
    assert outcomes(read(tmp_path, only="m/y")) == {("a", 0): 1}
    with pytest.raises(InvalidInput, match="exactly one of: t m/x; t m/y"):
        read(tmp_path, only="t")


def test_a_log_cut_off_is_refused_alone_and_told_in_a_folder(tmp_path: Path) -> None:
    good = eval_log(tmp_path / "good.eval", header(["a"]), [sample("a")])
    cut = tmp_path / "cut.eval"
    cut.write_bytes(good.read_bytes()[:-30])
    text = json.dumps(header(["a"]) | {"samples": [sample("a")]})
    (tmp_path / "cut.json").write_text(text[:-20], encoding="utf-8")
    for path in (cut, tmp_path / "cut.json"):
        with pytest.raises(InvalidInput, match=r"zip archive|truncated"):
            read(path, "inspect")
    found = read(tmp_path)
    assert outcomes(found) == {("a", 0): 1}
    assert found.problems == {"a log that cannot be read was left out": 2}


def test_names_that_lead_elsewhere_lead_nowhere(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    with ZipFile(inside / "l.eval", "w") as archive:
        archive.writestr("header.json", json.dumps(header(["../../x"])))
        archive.writestr("samples/../../x_epoch_1.json", json.dumps(sample("../../x")))
        archive.writestr("../../evil.json", "{}")
        archive.writestr("/etc/evil", "")
    assert outcomes(read(inside)) == {("../../x", 0): 1}
    assert [one.name for one in tmp_path.rglob("*")] == ["in", "l.eval"]


def test_a_zip_bomb_costs_no_more_than_its_bounds(tmp_path: Path) -> None:
    bomb = sample("b") | {"messages": ["x" * 4_000_000]}
    log = eval_log(tmp_path / "l.eval", header(["a", "b"]), [sample("a"), bomb])
    assert log.stat().st_size < 50_000
    found = outcomes(read(tmp_path, document_bytes_max=1_000_000))
    assert found["a", 0] == 1
    assert "longer than 1000000 bytes unpacked" in str(found["b", 0])
    with pytest.raises(InvalidInput, match="more than 1000000 bytes unpacked"):
        read(log, document_bytes_max=5_000_000, unpacked_bytes_max=1_000_000)


@pytest.mark.parametrize("zstd", [False, True])
def test_a_damaged_sample_is_an_error_of_its_own(tmp_path: Path, zstd: bool) -> None:
    samples = [sample("a", filler="x" * 500), sample("b")]
    log = eval_log(tmp_path / "l.eval", header(["a", "b"]), samples, zstd=zstd)
    data = bytearray(log.read_bytes())
    at = data.index(b"samples/a") + len("samples/a_epoch_1.json") + 20
    data[at : at + 8] = bytes(8)
    log.write_bytes(data)
    found = outcomes(read(log))
    assert str(found["a", 0]).startswith("it cannot be read: it is damaged")
    assert found["b", 0] == 1
