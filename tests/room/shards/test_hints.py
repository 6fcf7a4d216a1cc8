"""Hint rows: what the model sampled, and what a later event says of it, with its place."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.access.keys import Grant
from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.access.quotas import Quotas
from penstock.core.errors import InvalidInput
from penstock.doors.console.page import PageFrame, Visitor, all_pages
from penstock.lake.buckets import SessionId
from penstock.shards.registered_shards import find_shard, marks_of
from penstock.shards.validation import verify_shard
from penstock_jobs.shards.build import ShardBuild
from penstock_jobs.shards.endpoints import SamplesRequest
from penstock_jobs.shards.recipe import load_recipe
from penstock_jobs.shards.registration import mark_sessions
from penstock_jobs.shards.selection.plan import NothingToBuild
from tests.support.engine_lake import built, rows_of
from tests.support.lakes import START_US, Event, HandLake, hand_lake
from tests.support.manual_clock import ManualClock
from tests.support.shards.hinted import Chat, encoded, faulty, text_of, write_recipe
from tests.support.tokenizer_files import PLAIN

Row = dict[str, Any]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[HandLake]:
    with hand_lake(tmp_path / "data") as lake:
        lake.store(faulty().events)
        yield lake


def build(lake: HandLake, folder: Path, hints: str = "", **more: str) -> ShardBuild:
    return built(lake, load_recipe(write_recipe(folder / "recipes", hints, **more)))


def about(row: Row) -> str:
    return text_of(row["input_ids"][row["hint_start"] : row["hint_end"]])


def test_each_row_is_a_call_with_the_hint_that_is_about_it(lake: HandLake, tmp_path: Path) -> None:
    shard = build(lake, tmp_path)
    assert verify_shard(shard.stored).problems == []
    rows = {row["hint_kind"]: row for row in rows_of(lake, shard)}
    assert rows.keys() == {"follow_up", "tool_error"}
    said, failed = rows["follow_up"], rows["tool_error"]
    assert said["hint"] == "The user said of this answer: No, that is the wrong endpoint."
    assert (said["hint_session_id"], said["hint_answer_free"]) == ("s", True)
    assert "/users" in about(said)
    assert "nowhere" in about(failed)
    assert shard.manifest.counts.hints == {
        "another_hint": 1, "follow_up": 1, "no_hint": 3, "tool_error": 1,
    }  # fmt: skip


def test_the_page_of_hints_lists_them_by_source(lake: HandLake, tmp_path: Path) -> None:
    build(lake, tmp_path)
    own, clock = lake.lake, ManualClock()
    quotas = Quotas(own.database, own.settings, clock)
    visitor = Visitor(Grant(tenant="default", role="train"), own, quotas, clock)
    [page] = [each for each in all_pages() if each.path == "/shards/{shard}/hints"]

    def shown(hint: str | None = None) -> str:
        asked = SamplesRequest(shard="hints", hint=hint)
        content = page.work(visitor, asked)
        assert isinstance(content, dict)
        frame = PageFrame(page.title, "/shards/hints/hints", visitor, page)
        return frame.render(page.template, {"asked": asked, **content})

    both = shown()
    assert "No, that is the wrong endpoint." in both
    assert "nowhere" in both
    assert 'href="/sessions/s"' in both
    assert re.findall(r"<dt>(.*?)</dt><dd>(\d)", both) == [
        ("follow up", "1"), ("tool error", "1"), ("another hint", "1"), ("no hint", "3"),
    ]  # fmt: skip
    assert "wrong endpoint" not in shown("tool_error")
    assert "No sample of this shard has such a hint." in shown("label")


def test_the_teacher_reads_one_more_message_before_the_same_completion(
    lake: HandLake, tmp_path: Path
) -> None:
    for row in rows_of(lake, build(lake, tmp_path)):
        place, prompt = row["hint_position"], row["prompt_len"]
        ids, mask = np.array(row["input_ids"]), np.array(row["loss_mask"])
        assert mask[:prompt].sum() == 0
        assert mask[prompt:].all()
        taught = [*ids[:place], *row["hint_ids"], *ids[place:]]
        message = f"<|im_start|>user\n{row['hint']}<|im_end|>\n<|im_start|>assistant\n"
        assert text_of(taught[place : prompt + len(row["hint_ids"])]) == message
        assert taught == encoded(text_of(taught))
        assert [at for at, value in enumerate(row["rollout_logprobs"]) if value] == [
            *range(prompt, len(ids))
        ]


@pytest.mark.parametrize(
    ("unit", "trained"),
    [
        ("call", ["{'path': 'src/nowhere.py'}", "/users"]),
        ("turn", ["{'path': 'src/nowhere.py'}.*/users.*calls the endpoint now"]),
        ("request", ["/nowhere.*/users.*calls the endpoint now.*/orders.*orders endpoint now"]),
    ],
)
def test_a_row_trains_a_call_a_turn_or_a_request(
    lake: HandLake, tmp_path: Path, unit: str, trained: list[str]
) -> None:
    rows = rows_of(lake, build(lake, tmp_path, f'unit = "{unit}"'))
    written = [text_of(np.array(row["input_ids"])[np.array(row["loss_mask"]) == 1]) for row in rows]
    assert len(written) == len(trained)
    for text, pattern in zip(written, trained, strict=True):
        assert re.search(pattern, text, re.DOTALL)
    assert all("/users" in about(row) for row in rows if row["hint_kind"] == "follow_up")
    assert all(row["prompt_len"] <= row["hint_start"] for row in rows)


def test_the_first_source_of_the_recipe_counts(lake: HandLake, tmp_path: Path) -> None:
    shard = build(lake, tmp_path, 'sources = ["test_failure", "follow_up"]')
    [row] = rows_of(lake, shard)
    text = "After the edit in this answer tests fail: FAILED test_client.py::test_orders - 404"
    assert (row["hint"], row["hint_kind"]) == (text, "test_failure")
    assert "/users" in about(row)


def test_the_template_may_want_a_message_of_the_system(lake: HandLake, tmp_path: Path) -> None:
    twice = "{{ raise_exception('two of them') }}"
    refuses = "{% if loop.previtem and loop.previtem.role == message.role == 'user' %}"
    start = "{%- for message in messages %}\n"
    template = PLAIN.replace(start, f"{start}{refuses}{twice}{{% endif %}}")
    for row in rows_of(lake, build(lake, tmp_path, template=template)):
        assert text_of(row["hint_ids"]).startswith("<|im_start|>system\n")


def test_a_hint_that_is_too_long_is_cut_or_left_out(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        said = "It is slow, and it is long. Nobody can read it."
        chat = Chat().hears("go").says("done").add("feedback", kind="reject", comment=said)
        lake.store(chat.events)
        [row] = rows_of(lake, build(lake, tmp_path, "max_tokens = 70"))
        assert row["hint"] == "A person who read this answer said: It is slow, and it is long."
        assert len(row["hint_ids"]) <= 70
        with pytest.raises(NothingToBuild, match="hint_too_long 1"):
            build(lake, tmp_path, "max_tokens = 30")


def test_what_looks_like_a_special_token_in_a_hint_is_left_out(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        chat = (
            Chat()
            .hears("go")
            .says("done")
            .add("feedback", kind="reject", comment="wrong <|im_end|> place")
        )
        lake.store(chat.events)
        [row] = rows_of(lake, build(lake, tmp_path))
    assert row["hint"].endswith("wrong <|im_end|> place")
    assert text_of(row["hint_ids"]).count("<|im_end|>") == 1


def test_a_hint_that_holds_a_later_answer_needs_a_recipe_that_asks_for_solutions(
    tmp_path: Path,
) -> None:
    answer = "return fetch('/orders', limit=10)"
    with hand_lake(tmp_path / "data") as lake:
        chat = Chat().hears("go").edits("a.py", "get()\n", "get(1)\n")
        chat.add("feedback", kind="reject", comment=f"write {answer}", target=f"t-c{2}")
        lake.store(chat.edits("a.py", "get(1)\n", f"{answer}\n").events)
        with pytest.raises(NothingToBuild, match="hint_holds_answer 1"):
            build(lake, tmp_path)
        [row] = rows_of(lake, build(lake, tmp_path, "solutions = true"))
    assert not row["hint_answer_free"]


def test_what_the_user_left_is_a_hint_that_solves(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        left = "total = first_value + tax\n"
        chat = Chat().hears("go").edits("a.py", "", "total = first_value\n").says("done")
        chat.number += 600
        lake.store(chat.add("file_observed", path="a.py", text=left).events)
        hints = 'sources = ["left_text"]\nsolutions = true'
        [row] = rows_of(lake, build(lake, tmp_path, hints))
    assert (row["hint_kind"], row["hint_answer_free"]) == ("left_text", False)
    assert row["hint"].endswith(f":\n{left.strip()}")
    assert "first_value" in about(row)
    assert row["preferences"] is None


def test_of_neighbours_that_the_user_rewrote_too_an_answer_gets_its_own(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        before, made = (f"one = {word}\ntwo = second\n" for word in ("?", "first_value"))
        chat = Chat().hears("go").edits("a.py", before, made).says("done")
        chat.number += 600
        left = "one = first_amount\ntwo = 2\n"
        lake.store(chat.add("file_observed", path="a.py", text=left).events)
        hints = 'sources = ["left_text"]\nsolutions = true'
        [row] = rows_of(lake, build(lake, tmp_path, hints))
    assert row["hint"].endswith(":\none = first_amount")


# Where a hint may come from


def resumed(user: str) -> tuple[list[Event], list[Event]]:
    """A session, and one that continues it and objects."""
    first = Chat("first").hears("go").edits("a.py", "", "get('/users')\n").says("Done.")
    second = Chat("second", user, start=50).add(
        "session_start", parent_session="first", link="compaction"
    )
    second.hears("No, that is the wrong endpoint. It still fails.")
    return first.events, second.says("I see.").events


def test_a_row_goes_with_the_session_that_its_hint_came_from(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        for events in resumed("u-1"):
            lake.store(events)
        shard = build(lake, tmp_path)
        [row] = rows_of(lake, shard)
        assert (row["session_id"], row["hint_session_id"]) == ("first", "second")
        mark_sessions(lake.lake, [SessionId("default", "second")], "no_train")
        marks = marks_of(lake.lake.database, "default", shard.manifest.id)
        assert marks == [("second", "no_train")]
        scope = ErasureScope("default", "session", "second", START_US + 10**12)
        order = order_erasure(lake.lake, scope, reason="", by="tester")
        assert carry_out(lake.lake, order)["seen_by"]["shards"] == [shard.manifest.id]
        assert find_shard(lake.lake.database, "default", shard.manifest.id).gone == "erased"


def test_nothing_that_another_user_said_is_a_hint(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        for events in resumed("u-2"):
            lake.store(events)
        with pytest.raises(NothingToBuild, match="no_hint 2"):
            build(lake, tmp_path)


def test_a_hint_holds_no_secret(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        secret = "ghp_" + "a1B2c3D4e5" * 4
        chat = (
            Chat()
            .hears("go")
            .says("done")
            .add("feedback", kind="reject", comment=f"you printed {secret}")
        )
        lake.store(chat.events)
        [row] = rows_of(lake, build(lake, tmp_path))
    assert "you printed" in row["hint"]
    assert secret not in row["hint"]


def test_a_hint_of_a_session_that_refuses_training_is_none(tmp_path: Path) -> None:
    first, second = resumed("u-1")
    second[0]["payload"]["consent"] = "no_train"
    with hand_lake(tmp_path / "data") as lake:
        lake.store([*first, *second])
        with pytest.raises(NothingToBuild, match="consent_denied 2"):
            build(lake, tmp_path)


def test_a_hint_about_one_choice_of_an_answer_makes_a_row_of_that_choice(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        chat = Chat().hears("go").says("one", call_id="a:0").says("two", call_id="a:1", again=True)
        chat.add("feedback", kind="reject", comment="two is wrong", target="a:1")
        lake.store(chat.events)
        shard = build(lake, tmp_path)
        assert verify_shard(shard.stored).problems == []
        [row] = rows_of(lake, shard)
    assert (row["rollout_id"], row["group_id"]) == ("s  a:1", "s  a")
    assert about(row) == "two<|im_end|>"


# Bad input


def test_a_lake_without_hints_builds_nothing(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        lake.store(Chat().hears("go").says("done").hears("thanks").events)
        with pytest.raises(NothingToBuild, match="no_hint 1") as caught:
            build(lake, tmp_path)
        assert caught.value.exit_status == 2
        assert not {one.name for one in lake.lake.store.list("shards")}


def test_sessions_without_tokens_are_named(tmp_path: Path) -> None:
    events = [event for event in faulty().events if event["type"] != "model_call"]
    with hand_lake(tmp_path / "data") as lake:
        calls = [event for event in faulty().events if event["type"] == "model_call"]
        for event in calls:
            del event["payload"]["tokens"]
        lake.store([*events, *calls])
        with pytest.raises(NothingToBuild, match="no_engine_tokens 1"):
            build(lake, tmp_path)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "it opens no answer"),
        ("{{ raise_exception('no') }}", "no"),
        ("{{ messages[0].content }}{% if add_generation_prompt %}A:{% endif %}", "opens no answer"),
    ],
)
def test_a_template_that_cannot_place_a_hint_is_refused_before_anything_is_built(
    lake: HandLake, tmp_path: Path, template: str, why: str
) -> None:
    with pytest.raises(InvalidInput, match=why) as caught:
        build(lake, tmp_path, template=template)
    assert caught.value.exit_status == 2
    assert not {one.name for one in lake.lake.store.list("shards")}


def test_a_prompt_that_does_not_open_the_answer_as_the_template_does_has_no_place(
    lake: HandLake, tmp_path: Path
) -> None:
    template = PLAIN.replace("<|im_start|>assistant", "<|im_start|>model")
    with pytest.raises(NothingToBuild, match="hint_no_place 1"):
        build(lake, tmp_path, template=template)


@pytest.mark.parametrize(
    ("hints", "why"),
    [
        ('sources = ["gossip"]', "source gossip"),
        ("sources = []", "needs one beside written"),
        ('sources = ["written"]', "needs one beside written"),
        ('sources = ["left_text"]', "it needs solutions = true"),
        ('unit = "word"', "unit"),
        ("max_tokens = 0", "max_tokens"),
    ],
)
def test_a_recipe_of_hints_that_makes_no_sense_is_refused(
    tmp_path: Path, hints: str, why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        load_recipe(write_recipe(tmp_path / "recipes", hints))
