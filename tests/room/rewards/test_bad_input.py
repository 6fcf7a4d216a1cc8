"""What damaged, contradictory and enormous input does: a state and a reason, never an exception,
and nothing to the sessions beside it."""

from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import Any

import pytest

from penstock_jobs.rewards.bucket import Bucket
from penstock_jobs.rewards.definition import all_rewards
from penstock_jobs.rewards.outcomes import outcomes
from tests.support.lakes import Event, make_event
from tests.support.reward_events import answered, bucket_of, compute, edited, said, tool
from tests.system.rewards.test_large_files import LINES, MINIFIED

BEFORE = "a = 1\n"
AFTER = "a = 1\nresult = compute(a)\n"
#: 1 MB in a line of which nothing is like anything: the product of the lengths is the cost.
ALIKE, OTHER = "a" * 400_000, "ab" * 200_000
COUNT_MAX = 2**63 - 1

#: (reward, target, horizon) → a value, or "state: reason".
Said = dict[tuple[str, str, int | None], float | str | None]
Rows = dict[str, list[dict[str, Any]]]

_FEEDBACK = {"kind": "accept", "target": "e3"}
#: A session that every reward has something to say of.
NEIGHBOUR: list[Event] = [
    said(1, "Let the parser skip blank lines, please.", "near"),
    answered(2, "near", text="I will.", usage={"prompt": 9, "completion": 30, "thinking": 10}),
    edited(3, "a.py", BEFORE, AFTER, "near"),
    edited(4, "long.py", "", "# why\n" * 40 + "a = 1\n" * 40, "near"),
    *(one for n in range(5, 9) for one in tool(n, "Bash", "near", output="x" * n)),
    *tool(9, "TodoWrite", "near", arguments={"todos": [{"status": "done"}, {"status": "open"}]}),
    make_event("near", 10, "test_result", payload={"passed": 3, "failed": 1}),
    make_event("near", 11, "feedback", payload=_FEEDBACK),
    make_event("near", 12, "x_reward", payload={"name": "resolved", "value": 1}),
    make_event("near", 34, "file_observed", payload={"path": "a.py", "text": AFTER + "b = 2\n"}),
    make_event("near", 35, "file_observed", payload={"path": "long.py", "text": "a = 1\n" * 39}),
    said(50, "no, that is wrong, revert it", session="near"),
    answered(51, "near", text="Shall I?", usage={"completion": 3}),
]


def computed(bucket: Bucket) -> Rows:
    """The rows of all rewards that need no judge, by session."""
    found: Rows = {}
    for row in compute(bucket, None).to_pylist():
        found.setdefault(row["session_id"], []).append(row)
    return found


def edit(number: int, before: str, after: str, path: str = "a.py", **more: Any) -> Event:
    payload = {"path": path, "before": before, "after": after, **more}
    return make_event("bad", number, "edit", payload=payload)


def look(number: int, text: str, path: str = "a.py", **more: Any) -> Event:
    payload = {"path": path, "text": text, **more}
    return make_event("bad", number, "file_observed", payload=payload)


def asked(number: int, text: str = "go on") -> Event:
    return said(number, text, "bad")


def event(number: int, type_: str, /, **payload: Any) -> Event:
    return make_event("bad", number, type_, payload=payload)


def call(number: int, text: str | None = "done", **usage: Any) -> Event:
    return answered(number, "bad", text=text, usage=usage)


def at(path_or_edit: str, value: float | str, horizon: int = 30) -> Said:
    return {("edit_persistence", path_or_edit, horizon): value}


MISMATCH, UNDECODABLE = "invalid: before_mismatch", "invalid: undecodable"
EXPENSIVE, EMPTY = "invalid: too_expensive", "invalid: nothing_written"
UNSEEN = "censored: unobserved"
NO_USAGE = "censored: no_usage"
BARE_LF, CRLF = "one = 1\ntwo = 2\n", "one = 1\r\ntwo = 2\r\n"
#: A thousand bytes of UTF-8 that somebody read as Latin-1.
MOJIBAKE = ("prüfe den Wert\n" * 60).encode().decode("latin-1")
PATH_LONG = "d/" * 5_000 + "a.py"
MALFORMED_FILES: list[Any] = [
    1, None, "a.py", [], {}, {"path": 5}, {"path": "a.py", "text": 5}, {"path": "a.py"},
    {"path": "a.py", "deleted": "no"},
    {"path": "a.py", "renamed_from": ["x"]}, {"path": "b.py", "renamed_from": "nowhere.py"},
    {"path": "a.py", "renamed_from": "a.py"}, {"path": "", "text": "x"},
]  # fmt: skip

CASES: dict[str, tuple[list[Event], Said]] = {
    "before does not match the state": (
        [asked(1), look(2, AFTER), edit(3, "z = 9\n", "z = 10\n"), look(34, AFTER)],
        at("e3", MISMATCH) | at("e3", MISMATCH, 0) | {("line_survival", "e3", 30): MISMATCH},
    ),
    "before is there twice": (
        [asked(1), look(2, "a = 1\nb = 2\na = 1\n"), edit(3, BEFORE, "c = 3\n")],
        at("e3", MISMATCH),
    ),
    "a new file that is there already": (
        [asked(1), look(2, AFTER), edit(3, "", "c = 3\n")],
        at("e3", MISMATCH),
    ),
    "looks at files that nobody edited": (
        [asked(1), look(2, "x\n", "z.py"), edit(3, BEFORE, AFTER), look(34, "y\n", "z.py")],
        at("e3", UNSEEN),
    ),
    "a look at a file that is deleted and has a text": (
        [asked(1), edit(3, BEFORE, AFTER), look(34, AFTER, deleted=True)],
        at("e3", 0.0),
    ),
    "binary": (
        [
            asked(1, "a\0b"), edit(2, "a\0b", "c"), edit(3, BEFORE, AFTER, "b.py"),
            look(34, "PK\0\3", "b.py"), edit(4, "x", "\ufffd", "c.py"),
            call(5, text="\0?", completion=4),
        ],
        at("e2", UNDECODABLE) | at("e3", UNDECODABLE) | at("e3", 1.0, 0) | at("e4", UNDECODABLE)
        | {("asked_instead", "1", None): 0.0},
    ),
    "NUL in names": (
        [asked(1), edit(2, BEFORE, AFTER, "a\0.py"), *tool(3, "ba\0sh", "bad")],
        at("e2", UNSEEN) | {("invalid_tool_calls", "1", None): 0.0},
    ),
    "CRLF against LF": (
        [
            asked(1), look(2, CRLF), edit(3, "two = 2\n", "two = 2\nthree = 3\n"),
            look(34, BARE_LF + "three = 3\n"), look(304, CRLF + "three = 3\r\n"),
        ],
        at("e3", 1.0) | at("e3", 1.0, 300),
    ),
    "line ends of three kinds": (
        [
            asked(1), edit(2, "a\rb\r\nc\n", "a\rb\r\nc\nlast\u2028line\x0c\n"),
            look(33, "a\nb\nc\n"),
        ],
        at("e2", 0.0),
    ),
    "another encoding, then the right one": (
        [
            asked(1), edit(2, "", "prüfe den Wert\n" * 60), look(33, MOJIBAKE),
            look(303, "prüfe den Wert\n" * 60),
        ],
        # The umlaut of 12 characters is two others; each line is gone, then there again.
        at("e2", 1.0, 300),
    ),
    "a byte order mark": (
        [asked(1), edit(2, BEFORE, AFTER), look(33, "\ufeff" + AFTER)], at("e2", 1.0)
    ),
    "clocks out of order": (
        # By its clock the second edit was first: the text that it replaces is not there yet.
        [asked(1), look(2, BEFORE), edit(9, BEFORE, AFTER), edit(5, AFTER, "z = 1\n")],
        at("e5", MISMATCH) | at("e9", UNSEEN),
    ),
    "the far future and long ago": (
        [
            asked(1), edit(2, BEFORE, AFTER),
            edit(3, BEFORE, AFTER, "b.py") | {"ts": "2099-12-31T23:59:59Z"},
            edit(4, BEFORE, AFTER, "c.py") | {"ts": "2000-01-01T00:00:00Z"},
            call(5) | {"ts": "2099-12-31T23:59:59Z"},
        ],
        # What is later than the bucket's moment is not looked at yet.
        at("e2", UNSEEN) | at("e4", UNSEEN) | {("latency", "1", None): 1.0},
    ),
    "the same edit id twice": (
        [
            asked(1), edit(2, "", BEFORE, "1.py", edit_id="x"),
            edit(3, "", "b = 2\n", "2.py", edit_id="x"), look(34, "", "2.py"),
        ],
        at("x", UNSEEN) | at("x#2", 0.0),
    ),
    "the same event twice": (
        [asked(1), edit(2, BEFORE, AFTER), edit(2, BEFORE, AFTER), look(33, AFTER)], at("e2", 1.0)
    ),
    "empty paths and empty texts": (
        [
            asked(1), edit(2, "", "", ""), edit(3, "", ""), edit(4, "", AFTER), edit(5, AFTER, ""),
            look(36, ""), look(37, "", ""),
        ],
        at("e2", UNDECODABLE) | at("e3", EMPTY) | at("e4", "censored: self_rework")
        | at("e5", 1.0),
    ),
    "paths that lead elsewhere": (
        [
            asked(1), edit(2, BEFORE, AFTER, "../../etc/passwd"), edit(3, BEFORE, AFTER, PATH_LONG),
            look(34, AFTER, "../../etc/passwd"), look(35, AFTER, PATH_LONG),
            edit(4, BEFORE, AFTER, "C:\\a.py"), edit(5, BEFORE, AFTER, "\n"),
        ],
        at("e2", 1.0) | at("e3", 1.0) | at("e4", UNSEEN) | at("e5", UNSEEN),
    ),
    "results without calls": (
        [
            asked(1), event(2, "tool_result"), event(3, "tool_result", call_id="nobody", ok=True),
            event(4, "tool_result", error_class="invalid_arguments"),
        ],
        # Three calls, of which one was broken.
        {("invalid_tool_calls", "1", None): -1 / 3, ("latency", "1", None): 3.0},
    ),
    "calls of one id, and without arguments": (
        [asked(1), *tool(2, "Bash", "bad"), answered(3, "bad", tool_calls=[
            {"id": "t2", "name": "Bash"}, {"id": "", "name": ""}, {"id": "", "name": ""}])],
        {("invalid_tool_calls", "1", None): 0.0},
    ),
    "to-do lists of any shape": (
        [asked(1), *tool(2, "TodoWrite", "bad", arguments={"todos": [1, "two"]})],
        {("open_todos", "bad", None): "censored: unreadable"},
    ),
    "to-dos without a status": (
        [asked(1), *tool(2, "update_plan", "bad", arguments='{"plan": [{}, {"status": null}]}')],
        {("open_todos", "bad", None): -1.0},
    ),
    # Before there was a bound, the sum of three of these failed all sessions of the bucket.
    "usage beyond all bounds": (
        [
            asked(1),
            *(one for n in (2, 3, 4) for one in tool(
                n, "read", "bad", call={"usage": {"completion": COUNT_MAX, "thinking": COUNT_MAX}}
            )),
            call(5, completion=2**64), call(6, completion=COUNT_MAX, prompt=COUNT_MAX),
        ],
        {("length_penalty", "1", None): NO_USAGE, ("length_calling", "1", None): NO_USAGE,
         ("length_rounds", "1", None): 5.0},
    ),
    "more thinking than there is of the whole": (
        [asked(1), *tool(2, "read", "bad", call={"usage": {"completion": 5, "thinking": 9_000}}),
         call(3, completion=1, thinking=2)],
        {("length_penalty", "1", None): NO_USAGE, ("length_thinking", "1", None): NO_USAGE,
         ("length_final", "1", None): NO_USAGE},
    ),
    "no usage": (
        [asked(1), answered(2, "bad", text="done")], {("length_penalty", "1", None): NO_USAGE}
    ),
    "commits with malformed files": (
        [asked(1), edit(2, BEFORE, AFTER), event(33, "vcs_commit", files=MALFORMED_FILES),
         event(34, "vcs_commit", files=[]), event(35, "vcs_commit")],
        at("e2", UNSEEN),
    ),
    "a commit of which one file can be read": (
        [asked(1), edit(2, BEFORE, AFTER), event(33, "vcs_commit", files=[
            *MALFORMED_FILES, {"path": "a.py", "text": BEFORE}])],
        at("e2", 0.0),
    ),
    "feedback without a sense": (
        [asked(1), event(2, "feedback", kind="thumbs"), event(3, "feedback", kind="rating"),
         event(4, "feedback", kind="thumbs", value="sideways"),
         event(5, "feedback", kind="thumbs", value=0.5),
         event(6, "feedback", kind="thumbs", value=False),
         event(7, "feedback", kind="reject", target="nothing")],
        # Half a thumb is up; false and reject are down.
        {("explicit_feedback", "1", None): -1 / 3},
    ),
    **{
        f"tests that contradict themselves: {told}": (
            [asked(1), event(2, "test_result", **told)], {("tests_passing", "1", None): said}
        )
        for told, said in (
            ({"passed": 0, "failed": 0, "ok": True}, 1.0),
            ({"passed": 2**70}, 1.0),
            ({"passed": 1, "failed": 1, "ok": True}, 0.5),
            ({"passed": 3, "failed": 2**70}, 3 / 2**70),
            ({"ok": False}, 0.0),
            ({"command": "make test"}, "censored: nothing_ran"),
        )
    },
    "a session without a turn": (
        [edit(2, BEFORE, AFTER), look(33, BEFORE), *tool(40, "read", "bad")],
        at("e2", 0.0) | at("0", 0.0) | {("invalid_tool_calls", "0", None): 0.0},
    ),
    "a megabyte in one line": (
        [asked(1), edit(2, "", MINIFIED, "a.js"),
         look(33, f"{MINIFIED[:500_000]}/*b*/{MINIFIED[500_000:]}", "a.js")],
        # It is one line, and it was changed.
        {("line_survival", "e2", 30): 0.0},
    ),
    "ten thousand lines": (
        [asked(1), edit(2, "", LINES), look(33, "".join(LINES.splitlines(keepends=True)[:5_000]))],
        {("line_survival", "e2", 30): 0.5},
    ),
    "a look too expensive to compare": (
        [asked(1), edit(2, "", ALIKE), look(33, OTHER), look(124, ALIKE)],
        at("e2", EXPENSIVE) | at("e2", 1.0, 120) | {("four_gram_range", "e2", 30): EXPENSIVE},
    ),
    "an edit too expensive to compare": (
        [asked(1), edit(2, ALIKE, OTHER), look(33, OTHER)], at("e2", EXPENSIVE)
    ),
    # A name of a file is looked for in each message: once in time by the square of its length.
    "messages of a megabyte": (
        [asked(1), call(2, text="x" * 900_000), asked(3, "aGVsbG8" * 130_000), call(4),
         asked(5, "a/" * 450_000), call(6), asked(7, "\n" * 900_000 + "?"), call(8)],
        {("asked_instead", "1", None): 0.0},
    ),
}  # fmt: skip


def sound(rows: Iterable[dict[str, Any]]) -> None:
    for row in rows:
        assert row["state"] in ("scored", "pending", "censored", "invalid")
        assert (row["value"] is not None) == (row["state"] == "scored"), row
        is_known = row["state"] not in ("censored", "invalid")
        assert (
            row["name"] in ("request_verdict", "judged_follow_up")
            or (row["reason"] is None) == is_known
        ), row
        assert row["value"] is None or isfinite(row["value"]), row
        assert isfinite(row["weight"]), row
        assert row["weight"] >= 0, row


def said_of(rows: Iterable[dict[str, Any]]) -> Said:
    return {
        (row["name"], row["target_id"], row["horizon_s"]): row["value"]
        if row["value"] is not None
        else f"{row['state']}: {row['reason']}"
        for row in rows
        if row["target_kind"] != "file"
    }


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Bucket:
    """All cases and the neighbour."""
    events = [one | {"session_id": name} for name, (own, _) in CASES.items() for one in own]
    return bucket_of(tmp_path_factory.mktemp("everything"), [*events, *NEIGHBOUR])


@pytest.fixture(scope="module")
def together(everything: Bucket) -> Rows:
    return computed(everything)


@pytest.mark.parametrize("name", CASES)
def test_it_has_a_state_and_a_reason(name: str, together: Rows) -> None:
    sound(together[name])
    says = said_of(together[name])
    for (reward, target, horizon), one in CASES[name][1].items():
        key = (reward, name if target == "bad" else target, horizon)
        assert says[key] == (one if isinstance(one, str) else pytest.approx(one)), key


def test_the_session_beside_them_is_as_it_is_alone(tmp_path: Path, together: Rows) -> None:
    alone = computed(bucket_of(tmp_path, NEIGHBOUR))["near"]
    assert together["near"] == alone
    every = {name for name, reward in all_rewards().items() if reward.check is None}
    assert {row["name"] for row in alone} >= every


def test_every_session_has_exactly_one_outcome(everything: Bucket) -> None:
    decided = outcomes(everything, {}, {"binary": "no_train"})
    assert [one.session_id for one in decided] == sorted([*CASES, "near"])
    assert all(one.reason for one in decided)
