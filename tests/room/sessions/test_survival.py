"""`penstock survival`: what stands of what agents wrote, from sessions and the history of a
repository that the test makes."""

import hashlib
import os
import shutil
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.room.rewards.test_history import DAY, HOUR, START_S, History, git
from tests.support.commands import penstock
from tests.support.lakes import Event, hand_lake, make_event

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None and os.environ.get("CI") != "true",
    reason="the program git is not installed",
)

#: The stories begin forty days ago, in seconds after the start of other stories.
BEGUN = int(time.time()) - START_S - 40 * DAY
OLD = "the first line of an old file\n"
WORDS = ("alpha", "beta", "gamma", "delta")
WRITTEN = OLD + "".join(f"the agent wrote a line about {word}\n" for word in WORDS)
CUT = WRITTEN.replace("the agent wrote a line about beta\n", "")
GO = "package other\nfunc other() { panic(1) }\n"
SCRAP = "what the agent wrote here was of no use to anybody\nand its second line was neither\n"


def at(session: str, seconds: int, kind: str = "user_message", **fields: Any) -> Event:
    ts = (START_S + BEGUN + seconds) * 1_000_000
    return make_event(session, seconds, kind, **fields) | {"ts": ts}


def worked(session: str, repo: str, path: str, before: str, after: str) -> list[Event]:
    start = {"repo": repo, "client": "claude-code"}
    usage = {"prompt": 900, "completion": 70}
    edit = {"path": path, "before": before, "after": after, "edit_id": f"{session}-edit"}
    person = {"user": "ann", "project": "shop"}
    return [
        event | person
        for event in (
            at(session, 0, "session_start", payload=start),
            at(session, 1, payload={"text": "do it"}),
            at(session, 2, "model_call", payload={"model": "opus", "text": ".", "usage": usage}),
            at(session, 3, "edit", payload=edit),
        )
    ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    history = History(tmp_path / "shop")
    files = {"a.py": OLD}
    first = history.commit(BEGUN - 60, files)
    mine = history.commit(BEGUN + 600, {"a.py": WRITTEN, "b.ts": SCRAP}, parents=[first])
    scrapped = history.commit(BEGUN + HOUR, {"a.py": WRITTEN, "c": "1"}, parents=[mine])
    history.commit(BEGUN + 3 * DAY, {"a.py": CUT, "c": "1"}, parents=[scrapped])
    history.write()
    folder = str(history.directory)
    with hand_lake(tmp_path / "data") as lake:
        events = [*worked("kept", folder, "a.py", OLD, WRITTEN)]
        events += worked("scrap", folder, "b.ts", "", SCRAP)
        events += worked("elsewhere", "/nowhere", "d.go", "", "package nobody\n")
        # A resume repeats what it goes on from.
        again = [event | {"session_id": "again"} for event in events[:4]]
        again[0] = again[0] | {
            "payload": {**again[0]["payload"], "parent_session": "kept", "link": "resume"}
        }
        lake.store([*events, *again])
    return tmp_path / "data"


def asked(data: Path, *arguments: str) -> Any:
    done = penstock("survival", *arguments, "--data", str(data), "--json")
    assert done.returncode == 0, done.stderr
    return msgspec.json.decode(done.stdout)


def shares(group: Any) -> list[Any]:
    return [(share["lines"], share["low"], share["high"]) for share in group["shares"]]


def test_lines_stand_between_what_is_known_and_what_may_be(data: Path) -> None:
    answer = asked(data)
    assert answer["sentence"] == (
        "Of 7 lines that agents wrote in the last 90 days, 43 to 57 % stood after a week."
    )
    assert answer["all"]["edits"] == 3, "a resume counts once"
    early, late = (7, pytest.approx(4 / 7), pytest.approx(5 / 7)), (7, 3 / 7, 4 / 7)
    assert shares(answer["all"]) == [early, early, late, late]
    by = answer["by"]
    assert [group["label"] for group in by["tool"] + by["model"] + by["project"]] == [
        "claude-code", "opus", "shop",
    ]  # fmt: skip
    assert {group["label"]: shares(group)[2] for group in by["language"]} == {
        "Python": (4, 0.75, 0.75), "TypeScript": (2, 0, 0), "Go": (1, 0, 1),
    }  # fmt: skip
    assert answer["unknown"] == {"unobserved": 1}
    thrown = answer["thrown_away"]
    assert (thrown["edits"], thrown["lines"], thrown["completion_tokens"]) == (1, 2, 70)
    [edit] = thrown["longest"]
    facts = (edit["session_id"], edit["path"], edit["by_agent"], edit["prompt_tokens"])
    assert facts == ("scrap", "b.ts", False, 900)


def test_without_a_clone_it_says_so(tmp_path: Path) -> None:
    with hand_lake(tmp_path / "data") as lake:
        lake.store(worked("elsewhere", "/nowhere", "d.go", "", "package nobody\n"))
    shown = penstock("survival", "--data", str(tmp_path / "data")).stdout
    assert shown.startswith("Agents wrote 1 lines in the last 90 days. No clone ")
    assert "0 to 100 %" not in shown
    assert "unknown" in shown


def test_persons_are_named_where_they_allow_it(data: Path) -> None:
    assert "person" not in asked(data)["by"]
    assert penstock("consent", "set", "train", "--user", "ann", "--reason", "asked",
                    "--data", str(data)).returncode == 0  # fmt: skip
    [person] = asked(data)["by"]["person"]
    assert (person["label"], person["lines"]) == ("ann", 7)
    # The stricter decision holds.
    assert penstock("consent", "set", "no_train", "--project", "shop", "--reason", "asked",
                    "--data", str(data)).returncode == 0  # fmt: skip
    assert "person" not in asked(data)["by"]


def test_a_page_says_it_in_a_sentence_first(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    done = penstock("survival", "--html", str(file), "--data", str(data))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Of 7 lines that agents wrote in the last 90 days, 43 to 57 %")
    html = file.read_text()
    assert "43 to 57 %" in html
    assert "b.ts" in html
    assert "<script" not in html
    assert "<link" not in html


def test_lists_of_sessions_do_not_show_its_outcomes(data: Path) -> None:
    asked(data)
    listed = penstock("sessions", "list", "--data", str(data), "--json")
    assert {row["definition"] for row in msgspec.json.decode(listed.stdout)["sessions"]} == {None}


# Records of other tools

ID = "198ce817-84dc-4dd5-b6cf-b8d41b27e713"


def noted(conversation: str) -> tuple[str, str]:
    """A session's key, and what a note says of it."""
    key = "s_" + hashlib.sha256(f"claude-code:{conversation}".encode()).hexdigest()[:14]
    agent = {"tool": "claude-code", "id": conversation, "model": "opus"}
    return key, msgspec.json.encode({key: {"agent_id": agent, "human_author": "ann"}}).decode()


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A repository in which git-ai and Agent Trace said who wrote what."""
    history = History(tmp_path / "recorded")
    both = WRITTEN + "a person's line with a thing to say\n"
    first = history.commit(BEGUN - 60, {"a.py": OLD})
    mine = history.commit(BEGUN + 600, {"a.py": both, "my b.ts": SCRAP}, parents=[first])
    # A branch with a copy of the same work, which was merged too.
    copy = history.commit(BEGUN + 300, {"a.py": both}, branch="side", parents=[first])
    theirs = history.commit(BEGUN + HOUR, {"a.py": both, "d.go": GO}, parents=[mine, copy])
    history.commit(BEGUN + 3 * DAY, {"a.py": CUT, "d.go": GO}, parents=[theirs])
    history.write()
    tip, was = (
        git(history.directory, "rev-parse", name).decode().strip() for name in ("main~1", "main~2")
    )
    key, sessions = noted(ID)
    facts = f'"schema_version": "authorship/3.0.0", "prompts": {{}}, "sessions": {sessions}'
    note = f"a.py\n  {key}::t_0123456789abcd 2-3\n  h_31dce776f88375 6\n  {key}::t_1 4-5\n"
    note += f'"my b.ts"\n  {key}::t_2 1,2\n---\n{{{facts}}}\n'
    for name in (was, git(history.directory, "rev-parse", "side").decode().strip()):
        git(history.directory, "-c", "user.name=a", "-c", "user.email=a@b", "notes", "--ref=ai",
            "add", "-F", "-", name, given=note.encode())  # fmt: skip
    ranges = [{"start_line": 1, "end_line": 1}]
    ranges.append({"start_line": 2, "end_line": 2, "contributor": {"type": "human"}})  # type: ignore[dict-item]
    talk = {"url": "https://example.org/talks/7", "ranges": ranges,
            "contributor": {"type": "ai", "model_id": "openai/gpt"}}  # fmt: skip
    trace = {"version": "0.1.0", "id": "1", "timestamp": "2026-01-23T14:30:00Z",
             "vcs": {"type": "git", "revision": tip}, "tool": {"name": "cursor"},
             "files": [{"path": "d.go", "conversations": [talk]}]}  # fmt: skip
    (history.directory / ".agent-trace").mkdir()
    (history.directory / ".agent-trace" / "traces.jsonl").write_bytes(msgspec.json.encode(trace))
    return history.directory


def test_records_tell_of_sessions_that_nobody_imported(tmp_path: Path, recorded: Path) -> None:
    with hand_lake(tmp_path / "empty"):
        pass
    answer = asked(tmp_path / "empty", str(recorded))
    assert answer["sentence"].startswith("Of 7 lines that agents wrote in the last 90 days, 57 %")
    by = {group["label"]: shares(group)[2] for group in answer["by"]["source"]}
    assert by == {"git-ai": (6, 0.5, 0.5), "Agent Trace": (1, 1, 1)}
    tools = {group["label"]: group["lines"] for group in answer["by"]["tool"]}
    assert tools == {"claude-code": 6, "cursor": 1}
    assert {group["label"] for group in answer["by"]["model"]} == {"opus", "openai/gpt"}
    assert answer["agreements"] == []
    assert "person" not in answer["by"]


def test_what_a_session_and_records_both_know_is_compared(tmp_path: Path, recorded: Path) -> None:
    data = tmp_path / "both"
    with hand_lake(data) as lake:
        lines = WRITTEN.replace("about delta", "about nothing that was committed")
        lake.store(worked(ID, "/elsewhere/recorded", "/elsewhere/recorded/a.py", OLD, lines))
    answer = asked(data, str(recorded))
    sources = {group["label"]: group["lines"] for group in answer["by"]["source"]}
    assert sources == {"sessions of this lake": 4, "Agent Trace": 1}
    [agreement] = answer["agreements"]
    assert agreement == {"source": "git-ai", "both": 3, "only_records": 3, "only_sessions": 0}
