"""What was computed again since goes by a rule of retention, and what counts now stays."""

import re

from penstock.access.privacy.retention import RetentionScope
from penstock.lake.catalog import create_snapshot
from penstock.lake.upkeep.verification import verify
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.erasure import SUPERSEDED
from tests.support.lakes import START_US, HandLake
from tests.support.repository import ROOT
from tests.support.reward_runs import CURRENT, SECOND, run_at, seen, thumbs, whole, worked

HISTORY = "select session_id, outcome, computed_at from outcomes order by all"


def _scope(seconds: float, *, breaks_snapshots: bool = False) -> RetentionScope:
    return RetentionScope("default", START_US + round(seconds * SECOND), breaks_snapshots)


def _computed_three_times(lake: HandLake) -> None:
    """At 86,400 s, 86,500 s and 90,000 s for `s`, once for `other`."""
    lake.store([*worked("s"), seen("s", 303), *worked("other"), seen("other", 303)])
    run_at(lake, 86_400)
    create_snapshot(lake.lake.database, "before")
    lake.store([thumbs("s", 400, "down")])
    run_at(lake, 86_500)
    lake.store([thumbs("s", 500, "up")])
    run_at(lake, 90_000)


def test_what_the_docs_ask_of_outcomes_is_one_row_a_session(lake: HandLake) -> None:
    lake.store([*worked("s"), *worked("other")])
    for seconds, late in ((86_400, "up"), (86_500, "down")):
        lake.store([thumbs("s", seconds, late)])
        for name in ("default", "comparing"):
            run_at(lake, seconds + 301, find_definition(name))
    for page in ("README.md", "docs/ask.md", "docs/rewards.md", "docs/tutorial.md"):
        asked = re.findall(r'penstock query "(.*from outcomes .*?)"', (ROOT / page).read_text())
        assert asked, page
        for query in asked:
            assert sorted(row["session_id"] for row in lake.rows(query)) == ["other", "s"], query


def test_earlier_answers_go_when_they_were_superseded_long_ago(lake: HandLake) -> None:
    _computed_three_times(lake)
    now, rewards = whole(lake), lake.rows(f"{CURRENT} order by all")
    assert len(lake.rows(HISTORY)) == 4
    assert SUPERSEDED.run(lake.lake, _scope(86_499)).rows == 0
    assert SUPERSEDED.count(lake.lake, _scope(86_500)).rows == 1
    assert SUPERSEDED.run(lake.lake, _scope(86_500)).rows == 1
    assert len(lake.rows(HISTORY)) == 3
    assert SUPERSEDED.run(lake.lake, _scope(100_000)).rows == 1
    assert SUPERSEDED.run(lake.lake, _scope(100_000)).rows == 0
    assert [row["session_id"] for row in lake.rows(HISTORY)] == ["other", "s"]
    assert (whole(lake), lake.rows(f"{CURRENT} order by all")) == (now, rewards)
    assert verify(lake.lake).findings == []
    assert run_at(lake, 90_001).sessions == 0  # nothing is computed again for it


def test_a_snapshot_shows_what_it_showed_unless_the_rule_breaks_it(lake: HandLake) -> None:
    _computed_three_times(lake)
    before = whole(lake, "before")
    SUPERSEDED.run(lake.lake, _scope(100_000))
    assert whole(lake, "before") == before
    SUPERSEDED.run(lake.lake, _scope(100_000, breaks_snapshots=True))
    assert whole(lake, "before") == {"other": before["other"]}
    assert verify(lake.lake).findings == []
