"""Every measurement has the one shape, and runs at a tiny size. Nothing here says how fast."""

import sys
from pathlib import Path

import pytest

from bench.catalogue import MEASUREMENTS
from bench.figures import Figure
from bench.measurement import QUICK, TINY, WHOLE
from bench.rivals import contest
from bench.rivals.contest import Contender, running_contest

#: They start no server and take a second or two.
_SMALL = ("session-import", "gate-decision", "simulator", "shard-build")
#: They start servers, or processes.
_LARGE = ("cycle", "ingest", "short-sessions", "shard-plan", "promotion-notice")


@pytest.mark.parametrize("name", MEASUREMENTS)
def test_a_measurement_says_what_it_is(name: str) -> None:
    measurement = MEASUREMENTS[name]
    assert measurement.name == name
    assert measurement.title
    assert measurement.about.strip().endswith(".")
    assert all((goal.at_least is None) != (goal.at_most is None) for goal in measurement.goals)


def measured(name: str, folder: Path) -> list[Figure]:
    return list(MEASUREMENTS[name].run(TINY, folder))


@pytest.mark.parametrize("name", _SMALL + _LARGE)
def test_a_measurement_has_a_figure_for_each_goal(name: str, tmp_path: Path) -> None:
    figures = measured(name, tmp_path)
    for goal in MEASUREMENTS[name].goals:
        assert any(figure.what.startswith(goal.what) and figure.goal for figure in figures)


def test_sizes_share_out_and_keep_the_least() -> None:
    assert WHOLE.of(1_000) == 1_000
    assert QUICK.of(1_000) == 50
    assert TINY.of(1_000, 20) == 20


def test_without_rivals_a_contest_says_so_and_measures_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "PYTHON", tmp_path / "no-python")
    figures = measured("rivals-records", tmp_path)
    absent = {figure.what for figure in figures if figure.value.startswith("not measured: there")}
    assert absent == {"Hugging Face datasets", "DuckDB, grouping", "DuckDB, plain copy"}
    assert any(figure.what.startswith("Penstock: sessions per CPU second") for figure in figures)


def test_a_rival_that_fails_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "why_absent", lambda _package: "")
    monkeypatch.setattr(contest, "PYTHON", Path(sys.executable))
    scan = {"parts": [], "length": 1}
    contenders = [
        Contender("scan", "bench.rivals.scan_samples", scan),
        Contender("rival", "bench.rivals.no_such_module", scan, "litdata"),
    ]
    with running_contest(contenders) as running:
        rounds = running.take_turns(2)
        absent = running.absent()
    assert len(rounds["scan"].spent) == 2
    assert [(figure.what, figure.value) for figure in absent] == [
        ("rival", "not measured: it ended with 1")
    ]
