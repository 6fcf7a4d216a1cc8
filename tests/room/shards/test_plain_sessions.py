"""Plain sessions become columns, and say what they would as conversations, byte for byte."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.backends.execution.calls import InlineExecutor
from penstock.core.settings import Settings
from penstock.lake.buckets import Bucket
from penstock.shards.schema import SHARD_ROWS
from penstock.shards.writer import PartLimits
from penstock_jobs.shards.build import build_shard
from penstock_jobs.shards.conversation.session_events import COLUMNS
from penstock_jobs.shards.recipe import Recipe, Tokens
from penstock_jobs.shards.rows.plain_rows import PlainRows
from penstock_jobs.shards.rows.slices import SliceTask, slice_samples
from penstock_jobs.shards.rows.token_credit import SPAN_CREDITS
from tests.support.lakes import HandLake

START_US = 1_795_000_000_000_000
ROWS = pa.schema(
    {
        **dict.fromkeys(COLUMNS, pa.string()),
        "ts": pa.timestamp("us", "UTC"), "seq": pa.int64(), "key": pa.binary(),
    }
)  # fmt: skip
#: The rows, what was refused, and how many rows are of plain sessions.
Came = tuple[pa.Table, list[Any], int]
Change = Callable[[random.Random, list[dict[str, Any]]], None]


class Script:
    """The events of a plain session, which changes make irregular."""

    def __init__(self, name: str, dice: random.Random) -> None:
        self.name, self.dice = name, dice
        self.events: list[dict[str, Any]] = []
        self._context: list[int] = []
        if dice.random() < 0.7:
            start = {"task_id": "t", "license": "MIT", "system": 'Be "brief".\n'}
            chosen: dict[str, Any] = {key: start[key] for key in start if dice.random() < 0.5}
            if dice.random() < 0.5:
                chosen["tools"] = [{"name": "read"}]
            self.add("session_start", chosen)
        bare, spaced = dice.random() < 0.2, dice.random() < 0.3
        version = dice.choice([None, 3])
        for turn in range(dice.randint(1, 3)):
            self.add("user_message", {"text": f"please {turn} — é"})
            calls = dice.randint(1, 3)
            for call in range(calls):
                options = {"asks": call < calls - 1, "bare": bare, "spaced": spaced}
                self._call(f"{turn}.{call}", version=version, **options)
            if version is not None and dice.random() < 0.3:
                version += 1
        if dice.random() < 0.7:
            reason = dice.choice(["completed", "user_stop", "timeout", "odd"])
            self.add("session_end", {"reason": reason})

    def add(self, kind: str, payload: Any) -> None:
        self.events.append({"type": kind, "payload": payload})

    def _call(
        self, name: str, *, asks: bool, bare: bool, spaced: bool, version: int | None
    ) -> None:
        dice = self.dice
        self._context += self._ids(dice.randint(0, 6) or (not self._context))
        written = self._ids(dice.randint(1, 5))
        tokens: dict[str, Any] = {"prompt_ids": [*self._context], "completion_ids": written}
        if not bare:
            tokens["logprobs"] = [-round(dice.random(), 3) for _ in written]
        if version is not None:
            tokens["policy_version_runs"] = [[0, version]]
            if len(written) > 2 and dice.random() < 0.2:
                tokens["policy_version_runs"].append([2, str(version)])
        tokens["tokenizer"] = "own"
        payload: dict[str, Any] = {"call_id": f"c{name}", "model": "m", "tokens": tokens}
        payload["text"] = dice.choice(["", "I look.", 'so "it" is\n'])
        if dice.random() < 0.3:
            payload["thinking"] = "hm"
        if dice.random() < 0.7:
            payload["sampling"] = {"temperature": dice.choice([0.5, 1])}
        if dice.random() < 0.3:
            payload["finish_reason"] = dice.choice(["stop", "length", "error"])
        asked = [f"r{name}.{nth}" for nth in range(dice.randint(int(asks), 2))]
        if asked:
            arguments = dice.choice(['{"a":  1}', {"a": 1}, None])
            calls = [{"id": each, "name": "read", "arguments": arguments} for each in asked]
            payload["tool_calls"] = calls
        text = json.dumps(payload) if spaced else json.dumps(payload, separators=(",", ":"))
        self.add("model_call", text)
        self._context += written
        for each in asked:
            tool = dice.choice([None, "read", "sh"])
            self.add(
                "tool_result", {"call_id": each, "tool": tool, "output": dice.choice(["ok", 7])}
            )

    def _ids(self, count: int) -> list[int]:
        return [self.dice.randrange(90) for _ in range(count)]


def _calls(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == "model_call"]


def _in_call(change: Callable[[random.Random, dict[str, Any]], None]) -> Change:
    def changed(dice: random.Random, events: list[dict[str, Any]]) -> None:
        event = dice.choice(_calls(events))
        payload = json.loads(event["payload"])
        change(dice, payload)
        event["payload"] = json.dumps(payload)

    return changed


def _inserted(kind: str, payload: Any) -> Change:
    def changed(dice: random.Random, events: list[dict[str, Any]]) -> None:
        events.insert(dice.randint(0, len(events)), {"type": kind, "payload": payload})

    return changed


def _tokens(name: str, value: Any) -> Change:
    return _in_call(lambda _dice, payload: payload["tokens"].update({name: value}))


def _logprobs(value: float | None) -> Change:
    """Of each token the same."""

    def changed(_dice: random.Random, payload: dict[str, Any]) -> None:
        payload["tokens"]["logprobs"] = [value] * len(payload["tokens"]["completion_ids"])

    return _in_call(changed)


def _call(name: str, value: Any) -> Change:
    return _in_call(lambda _dice, payload: payload.update({name: value}))


def _shuffled(dice: random.Random, events: list[dict[str, Any]]) -> None:
    at, to = dice.randrange(len(events)), dice.randrange(len(events))
    events[at], events[to] = events[to], events[at]


def _gone(dice: random.Random, events: list[dict[str, Any]]) -> None:
    if len(events) > 1:
        del events[dice.randrange(len(events))]


#: What makes a session irregular, or nearly does.
CHANGES: dict[str, Change] = {
    "compaction": _inserted("compaction", {"summary": "so far"}),
    "interrupt": _inserted("interrupt", {}),
    "error": _inserted("error", {"call_id": "c0.0"}),
    "feedback": _inserted("feedback", {"kind": "thumbs", "value": "down"}),
    "broken feedback": _inserted("feedback", {"kind": 7}),
    "masked": _inserted("user_message", {"text": "[SECRET:token:0123456789abcdef]"}),
    "edit": _inserted("edit", {"edit_id": "e", "call_id": "c0.0", "after": "x"}),
    "unknown": _inserted("x_vendor_model", {"model": "v", "vendor": "w"}),
    "broken payload": _inserted("user_message", '{"text": 3'),
    "lone surrogate": _inserted("user_message", '{"text": "\\ud800"}'),
    "orphan result": _inserted("tool_result", {"call_id": "nobody", "output": "x"}),
    "nameless result": _inserted("tool_result", {"output": "x"}),
    "second start": _inserted("session_start", {"group_id": "g"}),
    "fork": _inserted("session_start", {"parent_session": "s0", "link": "fork"}),
    "copied": _inserted("user_message", {"text": "again", "is_copied_context": True}),
    "other prompt": _tokens("prompt_ids", [5, 6]),
    "no prompt": _tokens("prompt_ids", []),
    "no ids": _in_call(lambda _dice, payload: payload.pop("tokens")),
    "null ids": _tokens("completion_ids", None),
    "nested ids": _tokens("completion_ids", [[1]]),
    "fractions": _tokens("completion_ids", [1.5]),
    "large ids": _tokens("completion_ids", [2**40]),
    "huge ids": _tokens("completion_ids", [2**70]),
    "negative ids": _tokens("completion_ids", [-1]),
    "short logprobs": _tokens("logprobs", [-0.5] * 9),
    "no logprobs": _tokens("logprobs", None),
    "empty logprobs": _tokens("logprobs", []),
    "positive logprobs": _logprobs(0.5),
    "null logprobs": _logprobs(None),
    "other tokenizer": _tokens("tokenizer", "theirs"),
    "digest": _tokens("tokenizer", "ab" * 32),
    "template": _tokens("template", "sha256:" + "cd" * 32),
    "rollback": _tokens("policy_version_runs", [[0, 1]]),
    "named versions": _tokens("policy_version_runs", [[0, "v1"]]),
    "broken versions": _tokens("policy_version_runs", [[1, 1]]),
    "redacted": _tokens("redacted", True),
    "routes": _tokens("routed_experts", {"data": "AA==", "shape": [1, 1, 1], "dtype": "uint8"}),
    "broken tokens": _call("tokens", 7),
    "synthetic": _call("model", "<synthetic>"),
    "copied call": _call("is_copied_context", True),
    "regenerated": _call("regenerates", "c0.0"),
    "same id": _call("call_id", "c0.0"),
    "no id": _call("call_id", None),
    "system": _call("system", "of the call"),
    "broken sampling": _call("sampling", 3),
    "odd temperature": _call("sampling", {"temperature": "hot"}),
    "shuffled": _shuffled,
    "gone": _gone,
}  # fmt: skip


def make_rows(seed: int, changes: list[Change | None]) -> pa.Table:
    dice = random.Random(seed)
    rows = []
    for number, change in enumerate(changes):
        name = f"s{number}"
        script = Script(name, dice)
        if change is not None:
            change(dice, script.events)
        same_seq = dice.random() < 0.05
        for at, event in enumerate(script.events):
            payload = event["payload"]
            rows.append(
                {
                    "tenant": "default", "session_id": name, "ts": START_US + 1000 * at,
                    "seq": 3 if same_seq else at, "type": event["type"],
                    "event_id": f"e{at}", "source": "by-hand", "checkpoint": f"ckpt-{at % 2}",
                    "payload": payload if isinstance(payload, str) else json.dumps(payload),
                    "key": at.to_bytes(2, "big"),
                }
            )  # fmt: skip
    return pa.Table.from_pylist(rows, ROWS)


def task_of(rows: pa.Table, *, reward: float | None = 0.5, max_length: int = 10_000) -> Any:
    names = rows["session_id"].unique().to_pylist()
    credits = [
        {"kind": "turn", "target": "1", "value": 0.25},
        {"kind": "edit", "target": "e", "value": 0.125},
    ]
    chosen = pa.table(
        {
            "session_id": names,
            "chain": names,
            "reward": pa.array([reward] * len(names), pa.float64()),
            "credits": pa.array([credits[: at % 3] for at in range(len(names))], SPAN_CREDITS),
        }
    )
    return SliceTask(
        settings=Settings(data=Path()),
        owner="o",
        folder="f",
        limits=PartLimits(),
        recipe=Recipe("r", tokens=Tokens(source="engine", max_length=max_length)),
        chosen=chosen,
        bucket=Bucket(0, 0, None, None, (), ()),
        chains={name: name for name in names},
        consents=dict.fromkeys(names[::2], "train"),
        repeated_events={names[-1]: frozenset({"e3"})},
        tenant="default",
        as_of_us=START_US,
    )


def what_came(task: Any, rows: pa.Table) -> Came:
    samples, plain = slice_samples(task, rows)
    table = pa.concat_tables([plain, samples.table()])
    order = [(name, "ascending") for name in ("session_id", "branch_index")]
    assert table.schema.equals(SHARD_ROWS)
    refused = [sorted(samples.left_out), sorted(map(str, samples.problems)), samples.strange]
    return table.sort_by(order), refused, plain.num_rows


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The same by conversations alone."""

    def by_conversations(task: Any, rows: pa.Table) -> Came:
        with monkeypatch.context() as patch:
            patch.setattr(PlainRows, "of", lambda *_: SHARD_ROWS.empty_table())
            return what_came(task, rows)

    return by_conversations


def assert_same(
    ours: tuple[pa.Table, list[Any], int], theirs: tuple[pa.Table, list[Any], int]
) -> None:
    assert theirs[2] == 0
    assert ours[1] == theirs[1]
    for name in SHARD_ROWS.names:
        assert ours[0][name].combine_chunks().equals(theirs[0][name].combine_chunks()), name


@pytest.mark.parametrize("seed", range(2))
def test_plain_sessions_are_as_their_conversations(
    reference: Callable[..., Any], seed: int
) -> None:
    rows = make_rows(seed, [None] * 40)
    for task in (task_of(rows), task_of(rows, reward=None), task_of(rows, max_length=14)):
        ours = what_came(task, rows)
        assert_same(ours, reference(task, rows))
        assert ours[2] > (20 if task.recipe.tokens.max_length > 14 else 0)  # most are plain


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_what_is_irregular_is_read_as_a_conversation(
    reference: Callable[..., Any], name: str
) -> None:
    """Between sessions that are plain, which it does not spoil."""
    rows = make_rows(len(name), [None, CHANGES[name]] * 6 + [None])
    assert_same(what_came(task_of(rows), rows), reference(task_of(rows), rows))


def test_a_shard_has_the_same_bytes(
    lake: HandLake, recipe: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    by_columns = build_shard(lake.lake, InlineExecutor(), recipe(), tenant="default")
    monkeypatch.setattr(PlainRows, "of", lambda *_: SHARD_ROWS.empty_table())
    again = build_shard(lake.lake, InlineExecutor(), recipe(), tenant="default")
    assert not again.new
    assert again.manifest == by_columns.manifest
