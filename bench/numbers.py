"""The page of numbers, made of `results.json` and of the prose in `pages/numbers.template.md`."""

from collections.abc import Mapping
from pathlib import Path

from bench.catalogue import MEASUREMENTS
from bench.figures import Figure
from bench.results import Result, read_results

PAGE = Path(__file__).with_name("pages") / "numbers.md"
_TEMPLATE = PAGE.with_name("numbers.template.md")


def write_page() -> None:
    PAGE.write_text(numbers_page(read_results()), encoding="utf-8")


def numbers_page(results: Mapping[str, Result]) -> str:
    """The page as it has to stand."""
    parts = {
        "missed": _missed(results),
        "measurements": "\n\n".join(
            _section(name, results[name]) for name in MEASUREMENTS if name in results
        ),
        "never": ", ".join(f"`{name}`" for name in MEASUREMENTS if name not in results) or "none",
    }
    page = _TEMPLATE.read_text(encoding="utf-8")
    for name, text in parts.items():
        page = page.replace(f"{{{{{name}}}}}", text)
    return page


def _missed(results: Mapping[str, Result]) -> str:
    lines = [
        f"- {MEASUREMENTS[name].title}: {figure.what.strip()}: {figure.value}, goal {figure.goal}"
        for name in MEASUREMENTS
        if name in results
        for figure in results[name].figures
        if not figure.reached
    ]
    return "\n".join(lines) or "- none"


def _goal(figure: Figure) -> str:
    """The last cell of a row."""
    missed = "" if figure.reached else ", missed"
    return f" {figure.goal}{missed} |" if figure.goal else " |"


def _section(name: str, result: Result) -> str:
    measurement = MEASUREMENTS[name]
    about = " ".join(measurement.about.split())
    size = "" if result.size == "whole" else f", at the size of `{result.size}`"
    remark = f" {result.remark}" if result.remark else ""
    rows = [
        f"| {figure.what.strip()} | {figure.value} |{_goal(figure)}" for figure in result.figures
    ]
    return "\n".join(
        [
            f"## {measurement.title}",
            "",
            f"{about} `{name}`, {result.machine}{size}.{remark}",
            "",
            "| figure | measured | goal |",
            "|---|---|---|",
            *rows,
        ]
    )


if __name__ == "__main__":
    write_page()
