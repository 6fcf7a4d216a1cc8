"""Metrics of agents, evaluations of calls, and Cursor's records."""

import json
from typing import Any

from penstock.ingest.otlp import json_form
from penstock.ingest.otlp.conversion import TelemetryBatch
from tests.support.spans import (
    BEGAN_US,
    TRACE,
    Row,
    converted,
    events_of,
    logs,
    metric,
    metrics,
    record,
    span,
    story,
    traces,
)

WINDOW = {"service.name": "copilot-chat", "session.id": "w-1", "penstock.checkpoint": "ckpt-2"}
OUTCOME = "copilot_chat.edit.outcome"


def reported(*documents: Row) -> list[tuple[Any, ...]]:
    return [
        (
            event["session_id"].partition(":")[0],
            *(event["payload"][name] for name in ("name", "total", "count")),
        )
        for event in events_of(*documents)
    ]


def test_metrics_of_three_agents_become_live_metrics_by_their_sessions() -> None:
    copilot = metrics(
        [
            metric("copilot_chat.edit.survival.four_gram", ({}, {"sum": 1.5, "count": "2"})),
            metric("copilot_chat.edit.acceptance.count", ({OUTCOME: "accepted"}, {"asInt": "3"}),
                   ({OUTCOME: "rejected"}, {"asInt": "1"}), ({OUTCOME: "saved"}, {"asInt": "9"})),
        ], WINDOW)  # fmt: skip
    by_person = {"session.id": "c-1", "decision": "reject", "source": "user_reject"}
    by_rule = by_person | {"decision": "accept", "source": "config"}
    claude = metrics(
        [
            metric("claude_code.code_edit_tool.decision", (by_person, {"asInt": "2"}),
                   (by_rule, {"asInt": "7"})),
            metric("claude_code.token.usage", ({"session.id": "c-1", "type": "output"},
                   {"asDouble": 40.0}), ({"session.id": "c-1", "type": "input"}, {"asInt": "9"})),
        ])  # fmt: skip
    cursor = metrics([metric("cursor.cost.usage", ({}, {"asDouble": 0.25}))])
    assert sorted(reported(copilot, claude, cursor)) == [
        ("c-1", "reported_acceptance", 0.0, 2.0),
        ("c-1", "reported_tokens", 40.0, 1.0),
        ("metrics", "reported_cost_usd", 0.25, 1.0),
        ("w-1", "reported_acceptance", 0.0, 1.0),
        ("w-1", "reported_acceptance", 3.0, 3.0),
        ("w-1", "reported_survival", 1.5, 2.0),
    ]
    assert {event["checkpoint"] for event in events_of(copilot)} == {"ckpt-2"}


def test_a_total_that_is_told_again_is_one_event_and_a_newer_one_its_successor() -> None:
    def told(total: int, at_ms: int) -> Row:
        point = {"session.id": "c-1"}, {"asDouble": float(total)}
        return metrics([metric("claude_code.cost.usage", point, at_ms=at_ms, cumulative=True)])

    events = events_of(told(1, 0), told(1, 60_000), told(3, 120_000))
    assert [event["payload"]["total"] for event in events] == [1.0, 3.0]
    assert len({event["payload"]["series"] for event in events}) == 1


def test_unknown_metrics_are_named_and_both_encodings_say_the_same() -> None:
    document = metrics([
        metric("my.own", ({}, {"asInt": "1"}), ({"a": 1}, {"asDouble": 2.0})),
        metric("copilot_chat.edit.survival.no_revert", ({}, {"sum": 0.0, "count": "1"})),
    ], WINDOW)  # fmt: skip
    told = converted(document)
    assert [each.name for each in told if not each.is_known] == ["my.own", "my.own"]
    body = json.dumps(document).encode()
    assert list(TelemetryBatch(BEGAN_US).metrics(json_form.read_metrics(body))) == told
    broken = metrics([metric("my.own", ({}, {"asDouble": "many"}))])
    [each] = TelemetryBatch(1).metrics(json_form.read_metrics(json.dumps(broken).encode()))
    assert each.why


def test_an_evaluation_is_a_reported_reward_of_its_call() -> None:
    said = {"gen_ai.evaluation.name": "helpful", "gen_ai.evaluation.score.value": 0.5,
            "gen_ai.evaluation.score.label": "so so"}  # fmt: skip
    labelled = {"gen_ai.evaluation.name": "safe", "gen_ai.evaluation.score.label": "pass",
                "gen_ai.response.id": "r-1", "session.id": "s-1"}  # fmt: skip
    call = {"gen_ai.operation.name": "chat", "session.id": "s-1"}
    within = traces([span(1, call, events=[("gen_ai.evaluation.result", said)])])
    beside = logs([record(labelled, eventName="gen_ai.evaluation.result")])
    rewards = [e["payload"] for e in events_of(within, beside) if e["type"] == "x_reward"]
    found = {each["name"]: (each["value"], each["call_id"]) for each in rewards}
    assert found == {"helpful": (0.5, f"{TRACE}:{1:016x}"), "safe": ("pass", "r-1")}


def test_cursors_requests_and_messages_are_told_once() -> None:
    def told(event: str, body: str, at_ms: int, **more: Any) -> Row:
        held = {"cursor.conversation.id": "s-1", "cursor.event.id": event}
        return record(held | more, body=body, at_ms=at_ms)

    counts = {"cursor.model.name": "m", "cursor.api.request.input_tokens": 10,
              "cursor.api.request.output_tokens": 7,
              "cursor.api.request.cache_read_tokens": 5}  # fmt: skip
    document = logs([
        told("e-1", "mend it", 0, **{"event.name": "cursor.conversation.user_message"}),
        told("e-2", "api_request", 10, **counts),
        told("e-3", "done", 20, **{"event.name": "cursor.conversation.assistant_message"}),
        told("e-4", "skill_activated", 30, **{"cursor.skill.name": "review"}),
        told("e-5", "api_error", 40, **{"error.message": "full"}),
    ], scope="cursor.telemetry")  # fmt: skip
    assert story(document, document) == [
        ("user_message", "mend it"), ("model_call", "done"), ("x_cursor_skill_activated", None),
        ("error", "full"),
    ]  # fmt: skip
    [call] = [event for event in events_of(document) if event["type"] == "model_call"]
    assert call["payload"]["usage"] == {"prompt": 15, "completion": 7, "cached": 5}
