"""`penstock sessions` and `penstock rewards show` on the sample sessions, as people type them."""

import json
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from penstock_jobs.rewards.definition import find_definition
from tests.support.commands import penstock
from tests.support.lakes import START_US, hand_lake, make_event
from tests.support.reward_events import DAY_US, edited, said
from tests.support.reward_runs import run_at, seen, store_samples


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The samples, with rewards by the default definition."""
    directory = tmp_path_factory.mktemp("data")
    with hand_lake(directory) as lake:
        store_samples(lake)
        run_at(lake, DAY_US / 1_000_000, find_definition())
    return str(directory)


def ran(*arguments: str) -> CompletedProcess[str]:
    done = penstock(*arguments)
    assert done.returncode == 0, done.stderr
    return done


def document(*arguments: str) -> Any:
    return json.loads(ran(*arguments, "--json").stdout)


def listed(data: str, *arguments: str) -> list[str]:
    page = document("sessions", "list", "--data", data, *arguments)
    return [session["session_id"] for session in page["sessions"]]


# Which there are


def test_the_newest_stand_first(data: str) -> None:
    everything = listed(data)
    assert (len(everything), everything[0]) == (18, "sample-nobody-looked")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["--outcome", "negative_by_rule"], {"sample-stopped", "sample-broken-calls"}),
        (["--project", "mail/worker"], {"sample-stopped"}),
        (["--checkpoint", "ckpt-0012", "--outcome", "excluded"], {"sample-no-train"}),
        (["--since", "2026-11-20T15:00:00Z"], {"sample-nobody-looked"}),
        (["--project", "it's"], set()),
        (["--words", "HOW MANY OF AN ITEM"], {"sample-kept"}),
        (["--words", "100%_'"], set()),
        (["--worth-min", "0.3", "--project", "shop/web"], {"sample-moved"}),
        (["--worth-max", "0", "--outcome", "scored", "--project", "shop/web"],
         {"sample-kept", "sample-reverted"}),
        (["--until", "2026-11-20T09:20:00Z", "--project", "shop/web"], {"sample-kept"}),
        (["--outcome", "scored", "--definition", "default", "--project", "shop/web"],
         {"sample-moved", "sample-reverted", "sample-kept"}),
    ],
)  # fmt: skip
def test_a_list_holds_what_was_asked_for(data: str, asked: list[str], expected: set[str]) -> None:
    assert set(listed(data, *asked)) == expected


@pytest.mark.parametrize("sort", ["newest", "worst", "best", "failures", "tokens"])
def test_a_list_is_sorted_and_its_pages_go_on_in_that_order(data: str, sort: str) -> None:
    whole = document("sessions", "list", "--data", data, "--sort", sort)["sessions"]
    ranked = {
        "newest": [row["last_ts"] for row in whole],
        "worst": [-(row["value"] or 0) for row in whole],
        "best": [row["value"] or 0 for row in whole],
        "failures": [row["failed_tool_calls"] for row in whole],
        "tokens": [row["prompt_tokens"] + row["completion_tokens"] for row in whole],
    }[sort]
    assert whole
    assert ranked == sorted(ranked, reverse=True)
    assert sort not in ("worst", "best") or all(row["value"] is not None for row in whole)
    pages: list[str] = []
    cursor: list[str] = []
    while cursor != ["--cursor", None]:
        page = document(
            "sessions", "list", "--data", data, "--sort", sort, "--limit", "10", *cursor
        )
        pages += [row["session_id"] for row in page["sessions"]]
        cursor = ["--cursor", page["next"]]
    assert pages == [row["session_id"] for row in whole]


def test_a_list_shows_what_was_asked_by_which_client_of_which_model(tmp_path: Path) -> None:
    """What a program sent before the request is no title."""
    with hand_lake(tmp_path) as lake:
        lake.store(
            [
                make_event("s", 0, "session_start", payload={"client": "ed"}),
                make_event("s", 1, "user_message", payload={"text": "cwd: /", "synthetic": True}),
                make_event("s", 2, "user_message", payload={"text": "mend the\ncart, please"}),
                make_event("s", 3, "model_call", payload={"model": "m-2"}),
                make_event("other", 4, "model_call", payload={"model": "m-3"}),
            ]
        )
    [row] = document("sessions", "list", "--data", str(tmp_path), "--client", "ed")["sessions"]
    assert (row["opening"], row["client"], row["model"]) == ("mend the\ncart, please", "ed", "m-2")
    assert listed(str(tmp_path), "--model", "m-3") == ["other"]
    shown = ran("sessions", "list", "--data", str(tmp_path)).stdout
    [line] = [line for line in shown.splitlines() if line.startswith("s ")]
    assert "mend the cart, please" in line
    assert " ed " in line
    assert " m-2 " in line


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["--outcome", "good"], "'good' is not one of 'scored', 'negative_by_rule'"),
        (["--since", "99999999999w"], "no calendar reaches so far"),
        (["--cursor", "nothing"], "none that an answer gave"),
        (["--definition", "mine"], "it has not run"),
    ],
)
def test_a_list_says_what_it_cannot_use(data: str, asked: list[str], why: str) -> None:
    refused = penstock("sessions", "list", "--data", data, *asked)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert why in refused.stderr


def test_the_table_names_outcome_worth_and_reason(data: str) -> None:
    shown = ran("sessions", "list", "--data", data, "--limit", "12")
    [line] = [line for line in shown.stdout.splitlines() if line.startswith("sample-stopped")]
    assert line.split()[-3:] == ["negative_by_rule", "-1.000", "abandoned"]
    assert "The next page: --cursor " in shown.stderr


# One of them


def test_a_session_reads_from_top_to_bottom(data: str) -> None:
    shown = ran("sessions", "show", "sample-reverted", "--data", data).stdout
    order = [
        "session sample-reverted",
        "sample-reverted is worth -0.959 by default",
        "user  turn 1",
        "agent  ckpt-0011",
        "→ edit_file",
        "edit r-1: web/load.ts",
        "1 gone after 900 s",
        "+  return retry(() => fetch(url), 5);  ← gone",
        "⇒ turn 1: ",
        "user  turn 2",
        "session ends: completed",
        "⇒ request 1: ",
    ]
    places = [shown.find(text) for text in order]
    assert -1 not in places
    assert places == sorted(places)
    kept = ran("sessions", "show", "sample-kept", "--data", data).stdout
    assert "surviving" in kept
    assert "← gone" not in kept
    assert "← reworked" in ran("sessions", "show", "sample-own-rework", "--data", data).stdout


def test_the_document_holds_events_rewards_and_the_explanation(data: str) -> None:
    record = document("sessions", "show", "sample-long", "--data", data)
    assert record["session"]["project"] == "shop/stats"
    assert [event["type"] for event in record["events"]][:2] == ["session_start", "user_message"]
    assert record["events"][1]["payload"]["text"].startswith("Go through the reports")
    chain = [member["session_id"] for member in record["explanation"]["chain"]]
    assert chain == ["sample-long", "sample-long-helper", "sample-long-2"]
    assert {row["session_id"] for row in record["rewards"]} == {"sample-long"}
    assert record["next"] is None


def test_a_session_that_no_segment_holds_yet_is_read_from_the_log(tmp_path: Path) -> None:
    with hand_lake(tmp_path) as lake:
        lake.store()
        lake.send([said(1, "add b"), edited(2, "a.py", "", "b = 1\n")])
    shown = ran("sessions", "show", "s", "--data", str(tmp_path)).stdout
    assert "No rewards yet" in shown
    assert "+b = 1" in shown
    unknown = penstock("sessions", "show", "nobody", "--data", str(tmp_path))
    assert (unknown.returncode, unknown.stdout) == (2, "")


def test_pages_of_a_long_session_are_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where many events are of one moment, with and without numbers."""
    monkeypatch.setattr("penstock_jobs.sessions.edit_fates.EVENTS_MAX", 7)
    events = [
        make_event("s", n, ts=START_US, seq=n if n % 2 else None, event_id=f"e{n}")
        for n in range(40)
    ]
    with hand_lake(tmp_path) as lake:
        lake.store(events)
    record = document("sessions", "show", "s", "--data", str(tmp_path))
    told = [event["event_id"] for event in record["events"]]
    assert sorted(told) == sorted(event["event_id"] for event in events)
    assert told[:20] == [f"e{n}" for n in range(1, 40, 2)]


def test_no_text_of_others_controls_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b[2J\x1b]0;x\a\u202e\r"
    with hand_lake(tmp_path) as lake:
        lake.store(
            [
                make_event("s", 1, "session_start", payload={"client": evil, "system": evil}),
                said(2, evil + "\nedit e9: x"),
                make_event("s", 3, "model_call", checkpoint=evil, payload={
                    "text": evil, "thinking": evil,
                    "tool_calls": [{"id": "t", "name": evil, "arguments": evil}]}),
                make_event("s", 4, "tool_result", payload={"tool": evil, "output": evil}),
                make_event("s", 5, "edit", payload={
                    "path": evil, "before": evil, "after": f"{evil}\n{evil}", "edit_id": evil}),
                make_event("s", 6, "feedback", payload={
                    "kind": "thumbs", "value": evil, "comment": evil}),
                make_event("s", 7, "error", payload={"message": evil}),
                make_event("s", 8, "x_mine", payload={"a": evil}),
                make_event("s", 9, "file_observed", payload={"path": evil, "text": evil}),
            ]
        )  # fmt: skip
    for command in (["sessions", "show"], ["rewards", "show"]):
        shown = ran(*command, "s", "--data", str(tmp_path)).stdout
        assert "\\x1b[2J" in shown
        assert all(line.isprintable() for line in shown.split("\n"))


# Why it is worth that


def test_the_terms_add_up_to_what_the_session_is_worth(data: str) -> None:
    shown = document("rewards", "show", "sample-reverted", "--data", data)
    explanation = shown["explanation"]
    terms = {term["name"]: term for term in explanation["terms"]}
    assert terms["dissatisfied_follow_up"]["weight"] == 1.0
    assert terms["work_left"]["horizon_s"] == 600
    assert terms["tests_failing"]["counted"] is None
    assert terms["tests_failing"]["reason"] == "no_rows"
    counted = [term["counted"] for term in terms.values() if term["counted"] is not None]
    assert sum(counted) == pytest.approx(explanation["value"]) == pytest.approx(-0.959, abs=0.001)
    assert explanation["outcome"] == "scored"


def test_what_a_run_stored_is_what_is_computed_now(data: str) -> None:
    for session in ("sample-reverted", "sample-long", "sample-stopped", "sample-no-train"):
        stored = document("rewards", "show", session, "--data", data)["explanation"]
        now = document("rewards", "show", session, "--data", data, "--definition", "default")
        for name in ("value", "total", "outcome", "reason", "why", "terms"):
            assert now["explanation"][name] == stored[name], (session, name)


@pytest.mark.parametrize(
    ("session", "sentence"),
    [
        ("sample-broken-calls", "negative by the rule invalid_tool_calls: All tool calls were"),
        ("sample-no-train", "is excluded by default"),
        ("sample-nobody-looked", "is censored by default"),
        ("sample-long", "Its chain shares the reward:"),
    ],
)
def test_the_outcome_and_its_reason_are_told(data: str, session: str, sentence: str) -> None:
    shown = ran("rewards", "show", session, "--data", data).stdout
    assert sentence in shown
    assert "user  turn 1" in shown  # the conversation stands beside it
    assert "None" not in shown


def test_weights_of_a_mean_are_shares(tmp_path: Path) -> None:
    definition = tmp_path / "mine.toml"
    definition.write_text(
        'name = "mine"\n[[reward]]\nname = "edit_persistence"\nweight = 3\nhorizon_s = 300\n'
        '[[reward]]\nname = "explicit_feedback"\nweight = 1\n'
    )
    data = tmp_path / "data"
    with hand_lake(data) as lake:
        lake.store([said(1), edited(2, "src/app.py", "", "a = 1\n"), seen("s", 303, "a = 1\n")])
        lake.store([make_event("s", 4, "feedback", payload={"kind": "thumbs", "value": "down"})])
    arguments = ("rewards", "show", "s", "--data", str(data), "--definition", str(definition))
    terms = document(*arguments)["explanation"]["terms"]
    assert {term["name"]: term["counted"] for term in terms} == {
        "edit_persistence": 0.75,
        "explicit_feedback": -0.25,
    }
