"""Each list of the command line comes in pages, here and from afar: together they are the whole."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from penstock.access.keys import create_key
from penstock.core.endpoint import Page
from penstock.core.room import rooms
from penstock.core.settings import load_settings
from penstock.events.event import TENANT_DEFAULT
from penstock.ingest.tables import rejection_fuse
from penstock.lake.catalog import create_snapshot
from penstock.lake.lake import open_or_make
from penstock.registry.fleet.replicas import Report, record_report
from penstock_jobs.loop.tables import loop_cycle
from penstock_jobs.simulator.demo.server import running_server
from tests.support.commands import penstock
from tests.support.lakes import START_US, body_of, make_event
from tests.system.cli.test_from_anywhere import add_cycle, named, scored

#: A command, what an answer calls its list where it is not the list itself, and whether it can be
#: asked for from afar. The commands of the last ones begin with their newest page.
LISTS: dict[str, tuple[list[str], str | None, bool]] = {
    "keys": (["keys", "list"], None, True),
    "checkpoints": (["checkpoints", "list"], None, True),
    "channels": (["channels", "list"], None, True),
    "fleet": (["channels", "fleet", "production"], "replicas", True),
    "ledger": (["ledger"], "rows", True),
    "rejected": (["rejected", "list"], None, True),
    "fuses": (["rejected", "fuses"], None, True),
    "results": (["bench", "show", "core"], None, True),
    "webhooks": (["webhooks", "list"], None, False),
    "snapshots": (["snapshots", "list"], None, False),
    "cycles": (["loop", "history"], None, True),
    "cycles of one": (["loop", "history", "--loop", "core"], None, True),
    "history": (["channels", "history", "production"], "changes", True),
}
NEWEST_FIRST = {"cycles", "cycles of one", "history"}


@dataclass
class World:
    data: Path
    url: str
    key: str

    def ask(self, place: str, *arguments: str) -> tuple[Any, str]:
        if place == "here":
            done = penstock(*arguments, "--json", "--data", str(self.data))
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PENSTOCK_KEY", self.key)
                done = penstock(*arguments, "--json", "--url", self.url)
        return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("pages")
    data, names = folder / "data", ["a", "b", "c", "d", "e"]
    settings = load_settings(data, environment={})
    with open_or_make(settings) as lake:
        keys = [create_key(lake.database, "admin", TENANT_DEFAULT)[1] for _ in names]
    events = [make_event("s", number) | {"source": name} for number, name in enumerate(names)]
    wrong = [b'{"session_id": "s", "type": "edti"}\n' for _ in names]
    (folder / "lines.jsonl").write_bytes(body_of(events) + b"".join(wrong))
    for command in (
        ["import", str(folder / "lines.jsonl")],
        *(["checkpoints", "register", *named(name)] for name in names),
        *(
            ["promote", name, "--channel", channel, "--override", "--reason", "x", "--key", keys[0]]
            for channel, chosen in (("production", names), ("b", "a"), ("c", "a"), ("d", "a"))
            for name in chosen
        ),
        *(["webhooks", "add", f"https://{name}.example.com/"] for name in names),
    ):
        done = penstock(*command, "--data", str(data))
        assert done.returncode == 0, done.stderr
    scored(data, dict.fromkeys(names, 0.5))
    add_cycle(data)
    with open_or_make(settings) as lake:
        for name in names:
            create_snapshot(lake.database, name)
            report = Report(name="production", replica=name, sidecar="x" * 8, state="loading")
            record_report(lake.database, lake.settings, TENANT_DEFAULT, report)
        with lake.database.write() as connection:
            fuse = {"tenant": TENANT_DEFAULT, "tripped_at": START_US, "rejected": 9, "seen": 9}
            fuses = [fuse | {"source": name, "reason": "x"} for name in ["", *names]]
            connection.execute(sa.insert(rejection_fuse), fuses)
            cycle = dict(connection.execute(sa.select(loop_cycle)).mappings().one())
            # Two loops whose cycles were opened at one moment, and others.
            moments = [("core", 2, 9), ("core", 3, 7), ("other", 1, 0), ("other", 2, 9)]
            cycles = [
                cycle | {"loop": loop, "number": number, "opened_at": START_US + at}
                for loop, number, at in moments
            ]
            connection.execute(sa.insert(loop_cycle), cycles)
    with running_server(data) as server:
        yield World(data, server.url, keys[0])


def timeless(entries: list[Any]) -> list[str]:
    """A replica was heard of a moment ago, and a target is tried now."""
    return [re.sub(r'"(try_at|problem|waiting|tries)": [^,}]+', "", json.dumps(e)) for e in entries]


@pytest.mark.parametrize("place", ["here", "afar"])
@pytest.mark.parametrize("name", LISTS)
def test_the_pages_of_a_list_are_the_whole(world: World, name: str, place: str) -> None:
    command, field, asked_from_afar = LISTS[name]
    if place == "afar" and not asked_from_afar:
        pytest.skip("it works on the lake's own machine")
    whole, told = world.ask(place, *command)
    entries = whole[field] if field else whole
    assert len(entries) >= 3
    assert "--cursor" not in told
    size = ["--last" if name == "history" else "--limit", "2"]
    pages: list[list[Any]] = []
    cursor: list[str] = []
    while cursor or not pages:
        page, told = world.ask(place, *command, *size, *cursor)
        pages.append(page[field] if field else page)
        assert 0 < len(pages[-1]) <= 2
        more = re.search(r"The next page: --cursor (\S+)", told)
        behind = page["next"] if field and "next" in page else more and more[1]
        cursor = ["--cursor", behind] if behind else []
        assert len(pages) <= len(entries)
    in_order = pages[::-1] if name in NEWEST_FIRST else pages
    assert timeless([entry for page in in_order for entry in page]) == timeless(entries)


@pytest.mark.parametrize("name", LISTS)
def test_a_cursor_that_no_list_gave_is_refused(world: World, name: str) -> None:
    done = penstock(*LISTS[name][0], "--cursor", "~", "--data", str(world.data))
    assert done.returncode == 2
    assert "cursor" in done.stderr


def test_a_call_that_answers_pages_takes_a_limit_and_a_cursor() -> None:
    paged = [
        call
        for call in (endpoint for room in rooms() for endpoint in room.endpoints())
        if issubclass(call.answer, Page)
    ]
    assert len(paged) >= 10
    for call in paged:
        names = set(call.request.__struct_fields__)
        assert "cursor" in names, call.path
        assert names & {"limit", "last"}, call.path
