"""What stands between a checkout and a release."""

from typing import Any

import pytest

from bench.release import undecided

URLS = {
    name: f"https://code.test/{name}"
    for name in ("Homepage", "Documentation", "Source", "Changelog")
}
PROJECT = {"version": "0.1.0", "urls": URLS}
CHANGES = "# Changes\n\n## 0.1.0, 2026-12-01\n"


def test_nothing_is_left_to_decide() -> None:
    assert list(undecided(PROJECT, CHANGES, "", "v0.0.9\n")) == []


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"project": {"version": "0.1.0"}}, "lacks Homepage, Documentation, Source, Changelog"),
        (
            {"project": PROJECT | {"urls": URLS | {"Source": "https://penstock.example/source"}}},
            "Source is no address that exists",
        ),
        ({"changes": "## 0.1.0, not released yet\n"}, "the heading of 0.1.0 has no date"),
        ({"altered": " M README.md\n"}, "not committed"),
        ({"tags": "v0.1.0\n"}, "released already"),
    ],
)
def test_what_is_undecided_is_named(changed: dict[str, Any], said: str) -> None:
    facts: dict[str, Any] = {"project": PROJECT, "changes": CHANGES, "altered": "", "tags": ""}
    [problem] = undecided(**facts | changed)
    assert said in problem
