"""Pages that add up a whole lake are shown again for a while."""

from dataclasses import replace
from typing import Any, cast

import pytest

from penstock.access.keys import Grant
from penstock.access.quotas import Quotas
from penstock.core.endpoint import Request
from penstock.doors.console.console import PageMemory
from penstock.doors.console.page import ConsolePage, Visitor
from penstock.doors.console.templates import PageFrame
from penstock.lake.lake import Lake
from tests.support.manual_clock import ManualClock


class Window(Request):
    since: str = ""


PAGE: ConsolePage[Any] = ConsolePage(
    path="/rewards", title="Rewards", request=Window, work=lambda _visitor, _asked: {}
)
ASKED = Window()


class Scene:
    """`shown` is what a visitor sees, and how often the page was made."""

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

        self.memory.make(PAGE, visitor or self.visitor(), asked, work)

    def shown(self, visitor: Visitor | None = None, asked: Request = ASKED) -> tuple[Any, bool]:
        known, is_due = self.memory.find(PAGE, visitor or self.visitor(), asked)
        return known and known.content["number"], is_due


def test_a_page_that_took_long_is_shown_again_until_it_is_old() -> None:
    scene = Scene()
    assert scene.shown() == (None, False)
    scene.make(took_s=1)
    scene.clock.advance(28)
    assert scene.shown() == (1, False), "30 times as long as it took"
    scene.clock.advance(2)
    assert scene.shown() == (1, True)
    assert scene.shown() == (1, False), "one of those that ask makes it anew"
    scene.make(took_s=1)
    assert scene.shown() == (2, False)


def test_no_page_is_shown_for_longer_than_the_setting_says() -> None:
    scene = Scene(seconds_max=60)
    scene.make(took_s=20)
    scene.clock.advance(39)
    assert scene.shown() == (1, False)
    scene.clock.advance(2)
    assert scene.shown() == (1, True)
    scene.clock.advance(600)
    assert scene.shown() == (None, False), "nobody asked for it: it is made before it is shown"


def test_what_is_quickly_made_is_not_remembered() -> None:
    scene = Scene()
    scene.make(took_s=0.1)
    assert scene.shown() == (None, False)
    none = Scene(seconds_max=0)
    none.make(took_s=9)
    assert none.shown() == (None, False)

    def redirects() -> str:
        scene.clock.advance(5)
        return "elsewhere"

    assert scene.memory.make(PAGE, scene.visitor(), ASKED, redirects) == "elsewhere"
    assert scene.shown() == (None, False)


def test_each_sees_pages_of_the_own_rights_and_questions() -> None:
    scene = Scene()
    scene.make(took_s=1)
    others = [{"tenant": "bolt"}, {"role": "admin"}]
    assert [scene.shown(scene.visitor(**grant)) for grant in others] == [(None, False)] * 2
    assert scene.shown(asked=Window(since="7d")) == (None, False)
    assert scene.shown(scene.visitor(key="another of the same role")) == (1, False)


def test_what_a_visitor_changed_shows_at_once_to_all_of_the_tenant() -> None:
    """Also where a page was being made meanwhile: it may show what was before."""
    scene = Scene()
    elsewhere = scene.visitor(tenant="bolt")
    scene.make(took_s=1)
    scene.make(took_s=1, visitor=elsewhere)
    scene.memory.forget("acme")
    assert scene.shown() == (None, False)
    assert scene.shown(elsewhere) == (2, False)

    def overtaken() -> dict[str, int]:
        scene.clock.advance(1)
        scene.memory.forget("acme")
        return {"number": 0}

    scene.memory.make(PAGE, scene.visitor(), ASKED, overtaken)
    assert scene.shown() == (None, False)


def test_a_page_that_fails_leaves_the_one_of_before_and_another_try() -> None:
    scene = Scene()
    scene.make(took_s=1)
    scene.clock.advance(31)
    assert scene.shown() == (1, True)
    with pytest.raises(ZeroDivisionError):
        scene.memory.make(PAGE, scene.visitor(), ASKED, lambda: 1 / 0)
    assert scene.shown() == (1, True)


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
