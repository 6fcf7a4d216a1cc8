"""The page of numbers is what the results say, and a stranger finds what was missed and when."""

from pathlib import Path

from bench.catalogue import MEASUREMENTS
from bench.figures import Figure
from bench.numbers import PAGE, numbers_page
from bench.results import Machine, MachineWatch, Result, read_results, write_results

_MISSED = Figure("share of the ceiling", "0.47", "≥ 0.65", reached=False)
_REACHED = Figure("  bytes", "382")


def _result(others: float | None = 0.4, size: str = "quick") -> Result:
    machine = Machine("2026-11-26", 2, 24, others)
    return Result(name="ingest", size=size, machine=machine, figures=(_MISSED, _REACHED))


def test_the_page_is_what_make_numbers_writes() -> None:
    assert PAGE.read_text(encoding="utf-8") == numbers_page(read_results())


def test_the_page_says_what_was_missed_and_how_busy_the_machine_was() -> None:
    page = numbers_page({"ingest": _result()})
    assert "- Ingest: share of the ceiling: 0.47, goal ≥ 0.65" in page
    assert "on a busy machine: others used 40% of it, at the size of `quick`" in page
    assert "| share of the ceiling | 0.47 | ≥ 0.65, missed |" in page
    assert "| bytes | 382 | |" in page


def test_a_quiet_machine_is_called_so_and_an_unwatched_one_nothing() -> None:
    assert "quiet machine" in str(_result(0.01).machine)
    assert "machine" not in str(_result(None).machine)


def test_the_page_names_what_has_no_figures() -> None:
    others = [name for name in MEASUREMENTS if name != "ingest"]
    page = numbers_page({"ingest": _result()})
    assert all(f"`{name}`" in page for name in others)


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_results({"ingest": _result()}, path)
    assert read_results(path) == {"ingest": _result()}


def test_a_watch_knows_the_machine() -> None:
    seen = MachineWatch().seen()
    assert seen.cores >= 1
    assert seen.others is not None
