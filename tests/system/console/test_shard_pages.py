"""The pages of shards, in a real Chromium."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.lake.buckets import SessionId
from penstock_jobs.shards.build import build_shard
from penstock_jobs.shards.recipe import load_recipe
from penstock_jobs.shards.registration import mark_sessions
from tests.support.checkpoint_factory import add
from tests.support.console_fixtures import (
    HOSTILE_TEXT,
    ConsoleService,
    SignIn,
    assert_accessible,
    assert_not_hacked,
    console_running,
)
from tests.support.engine_lake import talk
from tests.support.lakes import HandLake

_RECIPE = """
name = "engine"
query = "all.sql"
seed = 3
[tokens]
source = "engine"
[exclude]
consent = "not_denied"
"""
#: Of the session whose messages are hostile.
_HOSTILE = "s<b>0</b>"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleService]:
    folder = tmp_path_factory.mktemp("shards")

    def fill(hand: HandLake) -> None:
        for number in range(6):
            events = talk(_HOSTILE if number == 0 else f"s{number}", number)
            events[0]["payload"]["text"] = f"{number} {HOSTILE_TEXT}"
            hand.store(events)
        for name, note in (("one", ""), ("two", "-- anew\n")):
            _build(hand, folder / name, note)
        ids = [SessionId("default", "s1")]
        mark_sessions(hand.lake, ids, "no_train")

    with console_running(folder / "data", fill=fill) as running:
        yield running


def _build(hand: HandLake, folder: Path, note: str) -> None:
    folder.mkdir()
    (folder / "engine.toml").write_text(_RECIPE.replace('engine"\nq', f'{folder.name}"\nq'))
    query = "select session_id from sessions where session_id not like 'sim-%' order by session_id"
    (folder / "all.sql").write_text(note + query)
    recipe = load_recipe(folder / "engine.toml")
    built = build_shard(hand.lake, InlineExecutor(), recipe, tenant="default")
    add(hand.lake.database, f"learner-{folder.name}", shards=[built.manifest.id])


def test_the_newest_shard_comes_first_and_opens(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service, "train")
    page.goto("/shards")
    names = page.locator("tbody th").all_inner_texts()
    assert names == ["two", "one"]
    assert_accessible(page)
    page.get_by_role("link", name="one", exact=True).click()
    page.get_by_role("heading", name="one", exact=True).wait_for()
    assert_accessible(page)
    assert_not_hacked(page)
    text = page.locator("main").inner_text()
    assert "no engine tokens" in text
    examples = page.locator(".panel", has_text="Left out").locator("li a")
    assert {"hostile/<b>1</b>", "sample-no-train"} <= set(examples.all_inner_texts())
    assert page.get_by_role("link", name="learner-one").get_attribute("href") == (
        "/checkpoints/learner-one"
    )
    marked = page.get_by_role("link", name="s1", exact=True).first
    assert marked.get_attribute("href") == "/sessions/s1"


def test_samples_are_decoded_as_far_as_they_can_be(
    service: ConsoleService, sign_in: SignIn
) -> None:
    page = sign_in(service, "read")
    page.goto("/shards/two")
    assert page.locator("article").count() == 3
    page.get_by_role("link", name="More samples").click()
    page.locator("article").nth(5).wait_for()
    assert page.locator(f"article a[href='/sessions/{quote(_HOSTILE, safe='')}']").count() == 1
    assert "window.hacked = 1" in page.locator("article pre").first.inner_text()
    assert_not_hacked(page)
    page.get_by_text("Tokens 0 to").first.click()
    assert page.locator("article details mark").first.inner_text() == "7"
    assert_accessible(page)


def test_shards_are_for_their_tenant_and_its_trainers(
    service: ConsoleService, sign_in: SignIn
) -> None:
    for key, status in (("other", 404), ("serve", 403)):
        page = sign_in(service, key)
        answer = page.goto("/shards/one")
        assert answer is not None
        assert answer.status == status, key


def test_shards_fit_a_phone(service: ConsoleService, sign_in: SignIn) -> None:
    page = sign_in(service, "read", width=390, scheme="dark")
    for path in ("/shards", "/shards/one"):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert_accessible(page)
