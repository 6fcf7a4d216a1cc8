"""Whether a fleet is whole or mixed, and what the database keeps of its replicas."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock.backends.terminal.output import time_text
from penstock.core.errors import InvalidInput
from penstock.core.settings import Settings
from penstock.registry.channels.change import ChannelUnknown
from penstock.registry.channels.tables import replica
from penstock.registry.fleet import FleetSettings, replicas
from penstock.registry.fleet.fleet_status import (
    PartStatus,
    ReplicaGroup,
    describe_part,
    part_status,
)
from penstock.registry.fleet.replicas import (
    FleetAnswer,
    ReplicasFull,
    ReplicaTaken,
    Report,
    fleet,
    fleets,
    record_report,
)
from tests.support.checkpoint_factory import TENANT, add, digest_of, promote, rollback

SETTINGS = Settings(data=Path("/nonexistent"))
CHANNEL = "production"


def group(loaded: str | None, state: str = "loaded", **facts: Any) -> ReplicaGroup:
    first, last = facts.pop("at", (10, 10)) if loaded is not None else (None, None)
    known: dict[str, Any] = {"part": "main", "silent": False, "replicas": 1}
    return ReplicaGroup(
        state=state, loaded=loaded, loaded_first=first, loaded_last=last, **known | facts
    )


def of(*groups: ReplicaGroup, wanted: str | None = "new") -> PartStatus:
    return part_status("main", wanted, groups)


@pytest.mark.parametrize(
    ("groups", "whole", "mixed", "said"),
    [
        ([], False, False, "is unknown: no replica reported"),
        ([group("new", replicas=3)], True, False, "is whole: 3 replicas have new"),
        ([group("old", replicas=3)], False, False, "3 of 3 replicas have not loaded new"),
        ([group("new"), group("old")], False, True, "1 replica has new, 1 replica has old"),
        ([group("new"), group("old", "loading")], False, True, "is mixed"),
        ([group("new"), group(None, "fetching")], False, False, "1 of 2 replicas has not"),
        ([group("new"), group(None, "failed")], False, False, "1 replica failed to load it"),
        ([group("new"), group("new", "failed")], False, False, "is behind"),
        ([group("new"), group("new", silent=True)], True, False, "; 1 replica is silent"),
        ([group("new"), group("old", silent=True)], False, False, "is unsure"),
        ([group("new"), group(None, "loading", silent=True)], False, False, "may serve another"),
        ([group("new", silent=True)], False, False, "is unknown"),
    ],
)
def test_a_fleet_is_whole_when_all_have_what_is_wanted(
    groups: list[ReplicaGroup], whole: bool, mixed: bool, said: str
) -> None:
    found = of(*groups)
    assert (found.whole, found.mixed) == (whole, mixed)
    assert said in describe_part(CHANNEL, found)


def test_mixed_counts_from_when_the_second_checkpoint_was_loaded() -> None:
    old, new = group("old", at=(10, 50), replicas=2), group("new", at=(70, 90), replicas=2)
    assert of(old, new).since == time_text(70)
    assert of(old, new, group("newest", at=(95, 95))).since == time_text(70)


def said(who: str, loaded: str | None = None, **facts: Any) -> Report:
    known = {
        "name": CHANNEL,
        "replica": who,
        "part": "main",
        "state": "loaded" if loaded else "fetching",
        "sidecar": f"of{who}",
        "wanted": "one",
        "version": 1,
        "loaded": loaded,
        "digest": digest_of(loaded) if loaded else None,
    }
    return Report(**known | facts)


def tell(database: Database, *reports: Report) -> list[PartStatus]:
    return [record_report(database, SETTINGS, TENANT, one) for one in reports][-1]


def look(database: Database) -> FleetAnswer:
    return fleet(database, SETTINGS, TENANT, CHANNEL)


def turn_back(database: Database, name: str, seconds: float) -> None:
    """As if it had been heard so long ago."""
    with database.write() as connection:
        earlier = replica.c.heard_at - round(seconds * 1_000_000)
        connection.execute(
            sa.update(replica).where(replica.c.replica == name).values(heard_at=earlier)
        )


@pytest.fixture
def served(database: Database) -> Database:
    add(database, "one", "two")
    promote(database, "one")
    return database


def test_what_is_reported_is_found(served: Database) -> None:
    [found] = tell(served, said("a", "one"), said("b", problem="the disk\x00 is full\nreally"))
    assert (found.whole, found.behind, found.replicas) == (False, 1, 2)
    a, b = look(served).replicas
    assert (a.replica, a.state, a.loaded, a.wanted, a.silent) == (
        "a",
        "loaded",
        "one",
        "one",
        False,
    )
    assert b.problem == "the disk  is full\nreally"
    assert (b.loaded, b.loaded_at, b.digest) == (None, None, None)
    [found] = tell(served, said("b", "one"))
    assert found.whole
    assert found.since == look(served).replicas[1].loaded_at
    assert look(served).replicas[1].problem is None


def test_a_canary_s_replicas_are_a_fleet_of_their_own(served: Database) -> None:
    promote(served, "two", share=0.1)
    main, canary = tell(served, said("a", "one"), said("b", "two", part="canary"))
    assert (main.wanted, canary.wanted) == ("one", "two")
    found = look(served)
    assert (found.whole, found.mixed) == (True, False)
    rollback(served)
    main, canary = look(served).parts
    assert (canary.wanted, canary.whole, canary.mixed) == ("one", False, False)


def test_silent_ones_are_known_and_then_forgotten(served: Database) -> None:
    tell(served, said("a", "one"), said("b", "two"))
    turn_back(served, "b", SETTINGS.room(FleetSettings).replica_silent_seconds + 1)
    [found], part_status = look(served).parts, look(served).replicas
    assert [one.silent for one in part_status] == [False, True]
    assert (found.mixed, found.whole, found.silent, found.unsure) == (False, False, 1, 1)
    turn_back(served, "b", replicas.FORGET_SECONDS)
    assert look(served).whole
    assert len(look(served).replicas) == 1


def test_who_leaves_is_forgotten_at_once(served: Database) -> None:
    tell(served, said("a", "one"), said("b", "one"), said("a", state="left"))
    assert [one.replica for one in look(served).replicas] == ["b"]
    tell(served, said("nobody", state="left"))


def test_replicas_are_bounded_and_forgotten_ones_make_room(
    served: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "REPLICAS_MAX", 3)
    tell(served, *(said(name, "one") for name in "abc"))
    with pytest.raises(ReplicasFull):
        tell(served, said("d", "one"))
    tell(served, said("a", "one"))
    turn_back(served, "b", replicas.FORGET_SECONDS + 1)
    tell(served, said("d", "one"))
    assert [one.replica for one in look(served).replicas] == ["a", "c", "d"]


def test_two_sidecars_of_one_name_are_a_mistake(served: Database) -> None:
    tell(served, said("a", "one"))
    for other in (said("a", "two", sidecar="other"), said("a", state="left", sidecar="other")):
        with pytest.raises(ReplicaTaken):
            tell(served, other)
    turn_back(served, "a", SETTINGS.room(FleetSettings).replica_silent_seconds + 1)
    tell(served, said("a", "two", sidecar="other"))
    assert look(served).replicas[0].loaded == "two"


@pytest.mark.parametrize(
    "wrong",
    [
        {"replica": ""},
        {"replica": "a\nb"},
        {"part": "both"},
        {"state": "happy"},
        {"sidecar": "no spaces"},
        {"version": -1},
        {"digest": "sha256:short"},
        {"loaded": "x" * 200},
    ],
)
def test_what_is_no_report_is_refused(served: Database, wrong: dict[str, Any]) -> None:
    report = msgspec.to_builtins(said("a", **wrong))
    with pytest.raises((InvalidInput, msgspec.ValidationError)):
        tell(served, msgspec.convert(report, Report))
    assert look(served).replicas == []


def test_channels_and_tenants_are_kept_apart(served: Database) -> None:
    with pytest.raises(ChannelUnknown):
        record_report(served, SETTINGS, TENANT, said("a", name="staging"))
    with pytest.raises(ChannelUnknown):
        record_report(served, SETTINGS, "bolt", said("a"))
    promote(served, "two", channel="staging")
    record_report(served, SETTINGS, TENANT, said("a", "two", name="staging", wanted="two"))
    tell(served, said("a", "one"))
    found = {place: parts for place, _, parts in fleets(served, SETTINGS)}
    assert {place: parts[0].loaded for place, parts in found.items()} == {
        (TENANT, CHANNEL): {"one": 1},
        (TENANT, "staging"): {"two": 1},
    }
