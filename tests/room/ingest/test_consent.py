"""A session's consent is the strictest that was ever said, for all its events; as of a snapshot,
that was said until then."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.lake.catalog import create_snapshot, current
from penstock.lake.upkeep.merges import merge
from tests.support.lakes import Event, HandLake, hand_lake, make_event

pytestmark = pytest.mark.usefixtures("each_database")


@pytest.fixture(params=[1, 2**27], ids=["nothing remembered", "all remembered"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[HandLake]:
    with hand_lake(tmp_path, known_bytes_max=request.param) as opened:
        yield opened


def start(consent: str, number: int, session: str = "s") -> Event:
    return make_event(session, number, "session_start", payload={"consent": consent})


def consents(lake: HandLake, as_of: str | None = None, session: str = "s") -> set[str]:
    """Of each event and of the session: one, when they agree."""
    where = f"where session_id = '{session}'"
    events = lake.rows(f"select distinct consent from events {where}", as_of)
    sessions = lake.rows(f"select consent from sessions {where}", as_of)
    return {row["consent"] for row in events + sessions}


def test_a_start_that_comes_after_other_events_counts_for_them_too(lake: HandLake) -> None:
    lake.store([make_event("s", 1), make_event("t", 1)])
    create_snapshot(lake.lake.database, "before")
    assert consents(lake) == {"unknown"}
    lake.send([start("train", 0)])
    assert consents(lake) == {"train"}  # fresh, from the log
    lake.store()
    assert consents(lake) == {"train"}
    assert consents(lake, "before") == {"unknown"}
    assert consents(lake, session="t") == {"unknown"}


def test_no_train_holds_from_when_it_was_said(lake: HandLake) -> None:
    lake.store([start("train", 0), make_event("s", 1)])
    create_snapshot(lake.lake.database, "allowed")
    lake.store([make_event("s", 2)])
    lake.store([start("no_train", 3)])
    create_snapshot(lake.lake.database, "denied")
    merge(lake.lake, current(lake.lake.database).segments)
    lake.store([make_event("s", 4), start("train", 5)])
    lake.send([make_event("s", 6), start("unknown", 7)])
    assert consents(lake, "allowed") == {"train"}
    assert consents(lake, "denied") == {"no_train"}
    assert consents(lake) == {"no_train"}


def test_within_one_flush_the_order_does_not_matter(lake: HandLake) -> None:
    lake.store([make_event("s", 1), start("no_train", 2), start("train", 3), make_event("s", 4)])
    assert consents(lake) == {"no_train"}


def test_tenants_have_consents_of_their_own(lake: HandLake) -> None:
    lake.store([make_event("s", 1)], "acme")
    lake.store([make_event("s", 1)], "umbrella")
    lake.store([start("no_train", 2)], "acme")
    lake.store([start("train", 2)], "umbrella")
    for tenant, consent in (("acme", "no_train"), ("umbrella", "train")):
        found = lake.rows("select distinct consent from events", tenant=tenant)
        assert found == [{"consent": consent}]
