"""Samples of a shard as a person reads them, and the order of shards."""

from collections.abc import Callable
from typing import Any

from penstock.access.privacy.erasure import carry_out, order_erasure
from penstock.access.privacy.orders import ErasureScope
from penstock.core.endpoint import Caller
from penstock.lake.client import LocalClient
from penstock_jobs.shards.build import EXAMPLES_MAX
from penstock_jobs.shards.endpoints import (
    LIST_SHARDS,
    SHOW_SAMPLES,
    SHOW_SHARD,
    MarkAnswer,
    SampleAnswer,
    SamplesRequest,
    ShardRequest,
    ShardsRequest,
)
from tests.support.engine_lake import built, rows_of
from tests.support.lakes import START_US, HandLake
from tests.support.reward_events import said


def _client(lake: HandLake) -> LocalClient:
    return LocalClient(lake.lake, Caller("default", "tester", is_local=True))


def test_pages_of_samples_are_the_rows_of_the_shard(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    shard = built(lake, recipe())
    rows = rows_of(lake, shard)
    samples: list[SampleAnswer] = []
    cursor = None
    while not samples or cursor is not None:
        question = SamplesRequest(shard="engine", limit=5, cursor=cursor)
        page = _client(lake).call(SHOW_SAMPLES, question)
        samples += page.samples
        cursor = page.next
    assert [each.sample_id for each in samples] == [row["sample_id"] for row in rows]
    first, row = samples[0], rows[0]
    assert first.tokens.ids == row["input_ids"]
    assert first.tokens.trained == [bool(flag) for flag in row["loss_mask"]]
    assert [message.role for message in first.messages] == ["user", "assistant"] * 2
    assert first.messages[1].trained is True
    assert first.messages[0].trained is None


def test_shards_come_in_either_order(lake: HandLake, recipe: Callable[..., Any]) -> None:
    for name in ("first", "second"):
        built(lake, recipe(('name = "engine"', f'name = "{name}"')))
    for order, names in (("oldest", ["first", "second"]), ("newest", ["second", "first"])):
        page = _client(lake).call(LIST_SHARDS, ShardsRequest(order=order, limit=1))  # type: ignore[arg-type]
        rest = _client(lake).call(
            LIST_SHARDS,
            ShardsRequest(order=order, cursor=page.next),  # type: ignore[arg-type]
        )
        assert [each.name for each in (*page.shards, *rest.shards)] == names


def test_examples_of_what_was_left_out_go_with_their_sessions(
    lake: HandLake, recipe: Callable[..., Any]
) -> None:
    for number in range(7):
        lake.store([said(1, "nobody answers", f"quiet{number}")])
    shard = built(lake, recipe())
    question = ShardRequest(shard="engine")
    details = _client(lake).call(SHOW_SHARD, question)
    [(reason, count)] = shard.manifest.counts.excluded.items()
    assert count == 7
    names = [f"quiet{number}" for number in range(EXAMPLES_MAX)]
    assert details.left_out == [MarkAnswer(name, reason) for name in names]

    scope = ErasureScope("default", "session", "quiet3", START_US + 10**12)
    carry_out(lake.lake, order_erasure(lake.lake, scope, reason="", by="tester"))
    left = _client(lake).call(SHOW_SHARD, question).left_out
    assert [each.session_id for each in left] == [name for name in names if name != "quiet3"]
