"""Lines of our own form."""

import json
import shutil
from pathlib import Path
from typing import Any

from tests.support.benchmarks.import_folders import outcomes, read


def lines(path: Path, *values: Any) -> Path:
    text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in values)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def line(task: str, attempt: int | None, score: Any = 1.0, **facts: Any) -> dict[str, Any]:
    return {"task": task, "attempt": attempt, "score": score, "error": None} | facts


def test_lines_with_all_that_an_attempt_may_have(tmp_path: Path) -> None:
    facts = {
        "completion_tokens": 812, "prompt_tokens": 9, "cost_usd": 0.004, "latency_s": 31.5,
        "steps": 4, "tool_calls": 8, "invalid_tool_calls": 1, "edited": True, "asked": False,
        "retries": 2,
    }  # fmt: skip
    error = line("t", 1, None, error="the sandbox died")
    found = read(lines(tmp_path / "r.jsonl", line("t", 0, 0.5, **facts), error))
    assert outcomes(found) == {("t", 0): 0.5, ("t", 1): "the sandbox died"}
    assert {name: getattr(found.attempts[0], name) for name in facts} == facts
    assert not found.problems


def test_what_is_wrong_with_a_line_never_costs_its_neighbours(tmp_path: Path) -> None:
    found = read(
        lines(
            tmp_path / "r.jsonl",
            line("good", 0),
            "{",
            "[1]",
            '{"task": "cut", "attempt": 0, "sco',
            line("late", -1),
            line("odd", 0.5),  # type: ignore[arg-type]
            {"score": 1},
            line("a" * 300, 0),
            "",
            line("nan", 0, float("nan")),
            line("seven", 0, 7),
            line("text", 0, "good"),
            line("silent", 0, None),
            line("both", 0, 1, error="x"),
            line("measured", 0, 1, cost_usd=float("inf"), steps=-1, completion_tokens=1.5,
                 edited="yes", retries=None, latency_s=2),
            line("extra", 0, seed=7),
        )
    )  # fmt: skip
    assert outcomes(found) == {
        ("good", 0): 1,
        ("nan", 0): "its score is not a finite number",
        ("seven", 0): "its score is 7, not between 0 and 1",
        ("text", 0): "its score cannot be read: 'good'",
        ("silent", 0): "it has no score",
        ("both", 0): "x",
        ("measured", 0): 1,
        ("extra", 0): 1,
    }
    assert found.problems == {
        "a line that cannot be read was left out": 5,
        "an attempt that cannot be kept was left out": 2,
        "of a score and an error the error counts": 1,
        "a cost_usd that nothing can have was left out": 1,
        "a steps that nothing can have was left out": 1,
        "a completion_tokens that nothing can have was left out": 1,
        "a edited that nothing can have was left out": 1,
        "the unknown field 'seed' was passed over": 1,
    }
    [measured] = [one for one in found.attempts if one.task == "measured"]
    assert (measured.cost_usd, measured.steps, measured.latency_s) == (None, None, 2)


def test_lines_without_numbers_are_numbered_as_they_stand(tmp_path: Path) -> None:
    scores = [0.0, 1.0, 0.5]
    many = [line("a", None, one) for one in scores] + [{"task": "b", "score": 1}]
    mixed = [line("c", 0), line("c", None)]
    lines(tmp_path / "1.jsonl", *many, *mixed)
    shutil.copy(tmp_path / "1.jsonl", tmp_path / "2.jsonl")
    found = read(tmp_path)
    assert outcomes(found) == {
        ("a", 0): 0, ("a", 1): 1, ("a", 2): 0.5, ("b", 0): 1, ("c", 0): 1,
    }  # fmt: skip
    assert found.problems == {
        "a line without a number was left out: other lines of its task have one": 1,
        "a copy of another file was passed over": 1,
    }
