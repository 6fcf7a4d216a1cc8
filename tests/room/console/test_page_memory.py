"""Pages that add up a whole lake: the newest is shown, and made anew behind the visitor's back."""

import asyncio
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from penstock.access.keys import Grant
from penstock.access.quotas import Quotas
from penstock.backends.execution.calls import InlineExecutor
from penstock.backends.http.request_limits import RequestSlots
from penstock.core.endpoint import Request
from penstock.core.errors import InvalidInput, PenstockError
from penstock.doors.console.console import PageMemory, key_of
from penstock.doors.console.page import ConsolePage, PageFrame, Visitor, all_pages
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import LakeQuery, OwnQuery
from penstock.lake.query.view_sources import LAKE_VIEWS
from penstock_jobs.rewards.definition import find_definition
from penstock_jobs.rewards.runs import RunRequest, run
from tests.support.lakes import hand_lake, make_event
from tests.support.manual_clock import ManualClock


class Window(Request):
    since: str = ""


PAGE: ConsolePage[Any] = ConsolePage(
    path="/rewards", title="Rewards", request=Window, work=lambda _visitor, _asked: {}
)
ASKED = Window()


class Scene:
    """`shown` is what a visitor sees, and whether it is fresh."""

    def __init__(self, seconds_max: float = 60) -> None:
        self.clock = ManualClock()
        self.memory = PageMemory(self.clock, seconds_max)
        self.made = 0

    def visitor(self, **grant: Any) -> Visitor:
        place = {"tenant": "acme", "role": "read"} | grant
        nothing = cast(Quotas, None), self.clock
        return Visitor(Grant(**place), cast(Lake, None), *nothing)

    def make(self, took_s: float, visitor: Visitor | None = None, asked: Request = ASKED) -> None:
        def work() -> dict[str, int]:
            self.made += 1
            self.clock.advance(took_s)
            return {"number": self.made}

        key = key_of(PAGE, visitor or self.visitor(), asked)
        self.memory.keep(key, self.memory.make(work))

    def shown(self, visitor: Visitor | None = None, asked: Request = ASKED) -> tuple[Any, bool]:
        known, is_fresh = self.memory.find(key_of(PAGE, visitor or self.visitor(), asked))
        content = known and cast(Mapping[str, Any], known.content)
        return content and content["number"], is_fresh


def test_a_page_that_took_long_is_shown_until_there_is_a_newer_one() -> None:
    scene = Scene()
    assert scene.shown() == (None, False)
    scene.make(took_s=1)
    scene.clock.advance(29)
    assert scene.shown() == (1, True), "30 times as long as it took"
    scene.clock.advance(1)
    assert scene.shown() == (1, False)
    scene.make(took_s=1)
    assert scene.shown() == (2, True)
    scene.make(took_s=90)
    scene.clock.advance(59)
    assert scene.shown() == (3, True), "no longer than the setting says"
    scene.clock.advance(1)
    assert scene.shown() == (3, False)
    scene.clock.advance(600)
    assert scene.shown() == (None, False), "what it shows may have been erased"
    scene.make(took_s=0.1)
    assert scene.shown() == (4, False), "what is quickly made is made for each visit"


def test_no_request_waits_for_figures_of_a_whole_lake() -> None:
    """It gets the newest, or none, and new ones are added up behind its back."""
    scene, may_end = Scene(), threading.Event()
    key, slots = (
        key_of(PAGE, scene.visitor(), ASKED),
        RequestSlots("q", running_max=2, waiting_max=2),
    )

    def work() -> dict[str, int]:
        scene.made += 1
        assert may_end.wait(60)
        scene.clock.advance(1)
        return {"number": scene.made}

    async def visits() -> None:
        newest = partial(scene.memory.newest, key, slots, work)
        assert await newest(outdated=False) == (None, True)
        assert await newest(outdated=False) == (None, True)
        may_end.set()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        known, awaits = await newest(outdated=False)
        assert known is not None
        assert (known.content, awaits) == ({"number": 1}, False)

        may_end.clear()
        scene.memory.note_change("acme")
        assert await newest(outdated=True) == (known, True)
        assert await newest(outdated=False) == (None, True), "what people changed shows at once"
        may_end.set()

    asyncio.run(visits())
    slots.stop()


def test_each_sees_pages_of_the_own_rights_and_questions() -> None:
    scene = Scene()
    scene.make(took_s=1)
    others = [{"tenant": "bolt"}, {"role": "admin"}]
    assert [scene.shown(scene.visitor(**grant)) for grant in others] == [(None, False)] * 2
    assert scene.shown(asked=Window(since="7d")) == (None, False)
    assert scene.shown(scene.visitor(key="another of the same role")) == (1, True)


def test_what_a_visitor_changed_is_awaited_by_all_of_the_tenant() -> None:
    """Also where a page was being made meanwhile: it may show what was before."""
    scene = Scene()
    elsewhere = scene.visitor(tenant="bolt")
    scene.make(took_s=1)
    scene.make(took_s=1, visitor=elsewhere)
    scene.memory.note_change("acme")
    assert scene.shown() == (1, False)
    assert scene.shown(elsewhere) == (2, True)

    def overtaken() -> dict[str, int]:
        scene.clock.advance(1)
        scene.memory.note_change("acme")
        return {"number": 0}

    scene.memory.keep(key_of(PAGE, scene.visitor(), ASKED), scene.memory.make(overtaken))
    assert scene.shown() == (0, False)


def test_a_page_that_fails_leaves_the_one_of_before_and_is_told_for_a_while() -> None:
    scene = Scene()

    def fail() -> dict[str, int]:
        scene.clock.advance(90)
        raise InvalidInput(what="The definition", why="it has not run")

    key = key_of(PAGE, scene.visitor(), ASKED)
    scene.memory.keep(key, scene.memory.make(fail))
    known, is_fresh = scene.memory.find(key)
    assert known is not None
    assert isinstance(known.content, InvalidInput)
    assert is_fresh
    scene.clock.advance(60)
    assert scene.shown() == (None, False), "it is tried again"
    scene.make(took_s=1)
    scene.memory.keep(key, scene.memory.make(fail))
    assert scene.shown()[0] == 1


def test_a_page_that_is_shown_again_says_when_it_was_made() -> None:
    scene = Scene()
    visitor = scene.visitor()
    content = dict.fromkeys(("status", "phrase", "what", "to_do", "request_id"), "")
    frame = PageFrame("Rewards", "/rewards", visitor)
    assert "Figures made" not in frame.render("error.html.jinja", content)
    made_us = scene.clock.now_us()
    scene.clock.advance(5)
    shown = replace(frame, made_us=made_us).render("error.html.jinja", content)
    assert "Figures made" in shown
    assert "5 s ago" in shown
    assert "data-anew" not in shown
    assert "data-anew" in replace(frame, awaits=True).render("awaited.html.jinja", {})


def test_only_figures_behind_a_visit_read_the_events_of_a_whole_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other pages name the sessions whose events they read, or read summaries and rewards."""
    asked: list[OwnQuery] = []
    create_views = LakeQuery._create_views

    def noting(self: LakeQuery, sources: Any, query: OwnQuery, *others: Any) -> None:
        asked.append(query)
        create_views(self, sources, query, *others)

    monkeypatch.setattr(LakeQuery, "_create_views", noting)
    reading: dict[str, bool] = {}
    with hand_lake(tmp_path / "data") as hand:
        hand.store([make_event("s", 1), make_event("s", 2, "edit", payload={"path": "a.py"})])
        for name in ("default", "survival"):
            run(hand.lake, InlineExecutor(), RunRequest(find_definition(name)))
        clock = ManualClock()
        quotas = Quotas(hand.lake.database, hand.lake.settings, clock)
        visitor = Visitor(Grant(tenant="default", role="admin"), hand.lake, quotas, clock)
        given = dict.fromkeys(("session_id", "left", "words"), "s")
        given |= {"before": "default", "after": "survival"}
        for page in (page for page in all_pages() if page.method == "GET"):
            asked.clear()
            known = {each.name: each.required for each in msgspec.structs.fields(page.request)}
            fields = {name: given.get(name, "1") for name in known if known[name] or name in given}
            with suppress(PenstockError, msgspec.ValidationError):
                page.work(visitor, msgspec.convert(fields, page.request, strict=False))
            events = [each for each in asked if each.bound & LAKE_VIEWS - {"sessions"}]
            if events:
                reading[page.path] = any(each.sessions is None for each in events)
                assert page.remembered or not reading[page.path], page.path
    assert reading["/sessions/{session_id:path}"] is False
    assert reading["/survival"] is True
