"""Repositories as they are: clones that did not fetch, branches that are merged, objects that are
missing, text that somebody moves elsewhere."""

import os
import shutil
import time
from pathlib import Path

import msgspec
import pytest

from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.history.git_followed_files import BranchLines
from penstock_jobs.rewards.history.git_history import HistoryGaps
from penstock_jobs.rewards.history.git_repository import Commit, Repository
from penstock_jobs.rewards.history.session_commits import take_commits
from penstock_jobs.rewards.measures.edits import edit_persistence
from tests.room.rewards.test_history import AGENTS, DAY, FIRST, HOUR, START_S, History, git
from tests.support.commands import penstock
from tests.support.lakes import START_US as LAKE_START_US
from tests.support.lakes import hand_lake, make_event
from tests.support.reward_runs import DAY_US, TEXT, worked
from tests.support.rewards.repositories import with_history
from tests.support.rewards.stories import SECOND, START_US, Row, Story, bucket, found

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None and os.environ.get("CI") != "true",
    reason="the program git is not installed",
)

MONTHS_US = START_US + 90 * DAY * SECOND
OTHER = "".join(f"{word} is what the other file says\n" for word in ("one", "two", "three"))
CUT = AGENTS.replace("and what follows from it on another line\n", "")
WRITTEN = "the agent wrote its opening sentence here\nand what follows from it on another line\n"


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "repository")


def agent_story(path: str = "a.py", session: str = "s-1", at: int = 10 * HOUR) -> Story:
    return Story(session).edit(at, FIRST, AGENTS, path)


def known(
    told: Bucket, repository: Repository, *horizons_s: int
) -> tuple[dict[int, Row], HistoryGaps]:
    """The edit e-1 at each horizon, and what the repository could not say."""
    shown, gaps = with_history(told, repository, horizons_s=horizons_s)
    rows = edit_persistence(shown, EditParameters(horizons_s=horizons_s))
    return {horizon: found(rows, "e-1", horizon) for horizon in horizons_s}, gaps


def values(told: Bucket, repository: Repository, *horizons_s: int) -> list[float | str]:
    rows, _ = known(told, repository, *horizons_s)
    return [
        row["reason"] if row["value"] is None else round(row["value"], 2) for row in rows.values()
    ]


# Clones


def clone(history: History, name: str, *options: str, at: int) -> Path:
    """As old as if it had been made at that time of the story."""
    history.write()
    directory = history.directory.parent / name
    git(history.directory, "config", "uploadpack.allowFilter", "true")
    source = f"file://{history.directory}"
    git(history.directory.parent, "clone", "--quiet", *options, source, str(directory))
    made_at(directory, "description", at)
    return directory


def made_at(directory: Path, name: str, at: int) -> None:
    folder = directory / ".git" if (directory / ".git").is_dir() else directory
    os.utime(folder / name, (START_S + at, START_S + at))


@pytest.mark.parametrize("options", [(), ("--bare",), ("--mirror",)])
def test_a_clone_answers_nothing_after_its_last_fetch(
    history: History, options: tuple[str, ...]
) -> None:
    first = history.commit(0, {"a.py": FIRST, "b": "1"})
    agents = history.commit(11 * HOUR, {"a.py": AGENTS, "b": "1"}, parents=[first])
    directory = clone(history, "clone", *options, at=36 * HOUR)
    later = history.commit(3 * DAY, {"a.py": CUT, "b": "1"}, parents=[agents])
    history.commit(30 * DAY, {"a.py": CUT, "b": "2"}, parents=[later])
    history.write()
    told = bucket(agent_story(), as_of_us=MONTHS_US)
    horizons = (DAY, 7 * DAY, 20 * DAY)
    rows, gaps = known(told, Repository(directory, "main"), *horizons)
    assert rows[DAY]["value"] == 1
    assert [rows[h]["reason"] for h in horizons[1:]] == ["unobserved"] * 2
    assert gaps == HistoryGaps(START_US + 36 * HOUR * SECOND, 2, 0)
    # What it fetches and does not take over, the branch does not know.
    git(
        directory, "fetch", "--quiet", "origin", *(["+main:main"] if options == ("--bare",) else [])
    )
    made_at(directory, "FETCH_HEAD", 40 * DAY)
    if not options:
        _, gaps = known(told, Repository(directory, "main"), *horizons)
        assert (gaps.known_until_us, gaps.unanswered) == (START_US + 3 * DAY * SECOND, 2)
        git(directory, "merge", "--quiet", "--ff-only", "origin/main")
    rows, gaps = known(told, Repository(directory, "main"), *horizons)
    assert 0 < rows[7 * DAY]["value"] == rows[20 * DAY]["value"] < 1
    assert (gaps.known_until_us, gaps.unanswered) == (START_US + 40 * DAY * SECOND, 0)


def test_a_run_says_what_a_clone_did_not_know(tmp_path: Path) -> None:
    history, start = History(tmp_path / "repository"), LAKE_START_US // SECOND - START_S
    first = history.commit(start, {"src/app.py": "a = 1\n"})
    history.commit(start + 60, {"src/app.py": TEXT}, parents=[first])
    directory = clone(history, "clone", at=start + 100)
    with hand_lake(tmp_path / "data") as lake:
        lake.store([event | {"project": "shop"} for event in worked("s")])
        now_us, repository = LAKE_START_US + DAY_US, Repository(directory)
        [report] = take_commits(lake.lake, now_us, [300], (repository, "shop")).values()
        assert report.gaps == HistoryGaps(LAKE_START_US + 100 * SECOND, 1, 0)
    asked = ("--project", "shop", "--git", str(directory))
    done = penstock("rewards", "run", *asked, "--data", str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr
    words = " ".join(done.stdout.split())
    assert "knows HEAD up to 2026-11-21 00:01 UTC: 4 later horizons of edits were not" in words
    assert "Fetch" in words


def test_a_run_takes_the_repository_of_a_session_where_it_lies_on_this_machine(
    tmp_path: Path,
) -> None:
    history, start = History(tmp_path / "repository"), int(time.time()) - START_S - 2 * HOUR
    first = history.commit(start, {"src/app.py": "a = 1\n"})
    history.commit(start + 600, {"src/app.py": TEXT}, parents=[first])
    history.write()
    shift_us = (START_S + start) * SECOND - LAKE_START_US
    events = [event | {"ts": event["ts"] + shift_us} for event in worked("s")]
    payload = {"repo": str(history.directory / "src")}
    begun = make_event("s", 0, "session_start", payload=payload)
    with hand_lake(tmp_path / "data") as lake:
        lake.store([begun | {"ts": events[0]["ts"] - 1}, *events])
    data = ("--data", str(tmp_path / "data"), "--json")
    asked = "select value from rewards where superseded_at is null and target_kind = 'edit'"
    asked += " and name = 'edit_persistence' and horizon_s = 600"

    def ran(*arguments: str) -> tuple[list[Row], list[Row]]:
        done = penstock("rewards", "run", *arguments, *data)
        assert done.returncode == 0, done.stderr
        rows = penstock("query", asked, *data)
        return msgspec.json.decode(done.stdout)["repositories"], msgspec.json.decode(rows.stdout)

    assert ran("--git", "none") == ([], [{"value": None}])
    [report], rows = ran()
    assert (report["sessions"], report["commits"] > 0, rows) == (1, True, [{"value": 1.0}])
    [report], rows = ran()
    assert (report["commits"], rows) == (0, [{"value": 1.0}])


# Branches


def test_an_edit_is_followed_through_the_branch_that_it_was_committed_to(history: History) -> None:
    """Meanwhile others change the same file on the main branch."""
    others = FIRST + "somebody else appended a line of their own\n"
    both = AGENTS + "somebody else appended a line of their own\n"
    cut = CUT + "somebody else appended a line of their own\n"
    first = history.commit(0, {"a.py": FIRST})
    side = history.commit(11 * HOUR, {"a.py": AGENTS}, branch="side", parents=[first])
    main = history.commit(12 * HOUR, {"a.py": others}, parents=[first])
    merge = history.commit(20 * HOUR, {"a.py": both}, parents=[main, side])
    history.commit(40 * HOUR, {"a.py": cut}, parents=[merge])
    told = bucket(agent_story(), as_of_us=MONTHS_US)
    horizons = (HOUR, 5 * HOUR, 12 * HOUR, 5 * DAY)
    assert values(told, history.repository(), *horizons)[:3] == [1.0, 1.0, 1.0]
    assert 0.4 < known(told, history.repository(), *horizons)[0][5 * DAY]["value"] < 0.6
    # Along first parents it came with the merge.
    along = values(told, history.repository(first_parent=True), *horizons)
    assert along[:3] == ["unobserved", "unobserved", 1.0]
    assert 0.4 < float(along[3]) < 0.6


def test_two_branches_at_once_do_not_undo_each_other(history: History) -> None:
    one = FIRST.replace("line number one of", "what a first agent made of the line in")
    two = FIRST.replace("line number three of", "what a second agent made of the line in")
    both = one.replace("line number three of", "what a second agent made of the line in")
    first = history.commit(0, {"a.py": FIRST})
    left = history.commit(11 * HOUR, {"a.py": one}, branch="left", parents=[first])
    right = history.commit(12 * HOUR, {"a.py": two}, branch="right", parents=[first])
    merged = history.commit(20 * HOUR, {"a.py": one}, parents=[first, left])
    history.commit(30 * HOUR, {"a.py": both}, parents=[merged, right])
    repository = history.repository()
    for session, after in (("s-1", one), ("s-2", two)):
        told = bucket(Story(session).edit(10 * HOUR, FIRST, after), as_of_us=MONTHS_US)
        assert values(told, repository, 5 * HOUR, 15 * HOUR, 5 * DAY) == [1.0, 1.0, 1.0]


def test_what_others_commit_before_the_edit_is_committed_takes_nothing_back(
    history: History,
) -> None:
    others = FIRST + "somebody else appended a line of their own\n"
    first = history.commit(0, {"a.py": FIRST})
    main = history.commit(11 * HOUR, {"a.py": others}, parents=[first])
    both = AGENTS + "somebody else appended a line of their own\n"
    history.commit(14 * HOUR, {"a.py": both}, parents=[main])
    told = bucket(agent_story(), as_of_us=MONTHS_US)
    assert values(told, history.repository(), 2 * HOUR, DAY) == ["unobserved", 1.0]


def test_an_edit_that_no_commit_has_was_taken_back(history: History) -> None:
    first = history.commit(0, {"a.py": FIRST})
    history.commit(11 * HOUR, {"a.py": FIRST + "another line than the agent's\n"}, parents=[first])
    told = bucket(agent_story(), as_of_us=MONTHS_US)
    assert values(told, history.repository(), DAY) == [0.0]


def test_commits_of_several_sessions_of_a_chain_are_of_one_life(history: History) -> None:
    """The second session edits where the first wrote; both were committed to branches."""
    more = AGENTS + "and a last line of the second session\n"
    first = history.commit(0, {"a.py": FIRST})
    side = history.commit(11 * HOUR, {"a.py": AGENTS}, branch="one", parents=[first])
    merge = history.commit(12 * HOUR, {"a.py": AGENTS}, parents=[first, side])
    side = history.commit(21 * HOUR, {"a.py": more}, branch="two", parents=[merge])
    merge = history.commit(22 * HOUR, {"a.py": more}, parents=[merge, side])
    history.commit(30 * HOUR, {"a.py": more.replace(WRITTEN, "")}, parents=[merge])
    told = bucket(agent_story().edit(20 * HOUR, AGENTS, more), as_of_us=MONTHS_US)
    repository = history.repository()
    assert values(told, repository, HOUR, 11 * HOUR, 15 * HOUR, 5 * DAY) == [1.0, 1.0, 1.0, 0.0]


def branch_lines(parents: dict[str, str]) -> tuple[BranchLines, list[Commit]]:
    commits = [
        Commit(name, tuple(own.split()), number)
        for number, (name, own) in enumerate(parents.items())
    ]
    return BranchLines(commits, commits[-1].name), commits


def way(lines: BranchLines, start: str | None = None) -> str:
    return " ".join(f"{step.commit.name}{step.parent or ''}" for step in lines.way(start))


def test_ways_lead_through_the_merge_that_took_a_line_in() -> None:
    """`b` is a branch of the branch `a`, which takes the main branch in once; `c` came twice."""
    lines, _ = branch_lines(
        {
            "m1": "", "a1": "m1", "b1": "a1", "m2": "m1", "a2": "a1 m2", "a3": "a2 b1",
            "c1": "m2", "m3": "m2 a3", "m4": "m3 c1", "d1": "c1", "m5": "m4 d1",
        }
    )  # fmt: skip
    assert way(lines) == "m1 m2 m3 m4 m5"
    assert way(lines, "m2") == "m2 m3 m4 m5"
    assert way(lines, "a1") == "a1 a2 a3 m31 m4 m5"
    assert way(lines, "b1") == "b1 a31 m31 m4 m5"
    assert way(lines, "c1") == "c1 m41 m5"
    assert way(lines, "d1") == "d1 m51"


# Objects


def lose(directory: Path, *revisions: str) -> None:
    """The objects are there no more."""
    for name in revisions:
        sha = git(directory, "rev-parse", name).decode().strip()
        (directory / ".git" / "objects" / sha[:2] / sha[2:]).unlink()


def loose(history: History) -> Path:
    """Each object in a file of its own."""
    history.write()
    for pack in (history.directory / ".git" / "objects" / "pack").glob("*.pack"):
        content = pack.read_bytes()
        pack.unlink()
        git(history.directory, "unpack-objects", "-q", given=content)
    return history.directory


def test_a_missing_object_costs_its_file(history: History) -> None:
    trees = [
        {"a.py": FIRST, "b.py": FIRST},
        {"a.py": AGENTS, "b.py": AGENTS},
        {"c.py": AGENTS + "one more\n", "b.py": CUT},
        {"c.py": CUT, "b.py": CUT + "the end of it\n"},
    ]
    mark: list[int] = []
    for number, tree in enumerate(trees):
        mark = [history.commit((10 + number) * HOUR if number else 0, tree, parents=mark)]
    directory = loose(history)
    story = agent_story().edit(10 * HOUR + 1, FIRST, AGENTS, "b.py")
    told = bucket(story, as_of_us=MONTHS_US)
    before, _ = with_history(told, history.repository(), horizons_s=(DAY,))
    lose(directory, "main:b.py")
    shown, gaps = with_history(told, history.repository(), horizons_s=(DAY,))
    parameters = EditParameters(horizons_s=(DAY,))
    assert gaps.unreadable == 1
    rows = edit_persistence(shown, parameters)
    assert found(rows, "e-1", DAY) == found(edit_persistence(before, parameters), "e-1", DAY)
    assert found(rows, "e-2", DAY)["reason"] == "unobserved"
    # Without the text a rename cannot be found out by likeness: only that file is lost.
    lose(directory, "main~2:a.py")
    shown, _ = with_history(told, history.repository(), horizons_s=(DAY,))
    assert shown.events.num_rows > 0


def test_a_shallow_clone_shows_what_it_has(history: History) -> None:
    mark: list[int] = []
    for number, text in enumerate((FIRST, AGENTS, AGENTS + "one more\n", CUT)):
        at = (10 + number) * HOUR if number else 0
        mark = [history.commit(at, {"a.py": text}, parents=mark)]
    directory = clone(history, "shallow", "--depth=2", at=40 * DAY)
    told = bucket(agent_story(), as_of_us=MONTHS_US)
    found = values(told, Repository(directory, "main"), HOUR, 2 * HOUR, 5 * DAY)
    assert found[:2] == ["unobserved", 1.0]


def test_a_partial_clone_fetches_nothing_and_says_what_it_lacks(history: History) -> None:
    mark: list[int] = []
    for number, text in enumerate((FIRST, AGENTS, CUT)):
        at = (10 + number) * HOUR if number else 0
        mark = [history.commit(at, {"a.py": text, "b": str(number)}, parents=mark)]
    directory = clone(history, "partial", "--filter=blob:none", at=40 * DAY)
    told = bucket(agent_story(), as_of_us=MONTHS_US)
    rows, gaps = known(told, Repository(directory, "main"), 5 * DAY)
    assert 0 < rows[5 * DAY]["value"] < 1, "what is checked out is there"
    assert gaps.unreadable == 2
    objects = git(directory, "rev-list", "--objects", "--missing=print", "main").decode()
    assert objects.count("?") >= 2


# Text that moves


@pytest.mark.parametrize("before", [None, OTHER])
def test_text_that_goes_to_a_file_that_nobody_edited_is_found(
    history: History, before: str | None
) -> None:
    others = {} if before is None else {"lib/b.py": before}
    first = history.commit(0, {"src/a.py": FIRST, **others})
    agents = history.commit(11 * HOUR, {"src/a.py": AGENTS, **others}, parents=[first])
    moved = {"src/a.py": FIRST, "lib/b.py": (before or "") + WRITTEN}
    there = history.commit(20 * HOUR, moved, parents=[agents])
    cut = {"src/a.py": FIRST, "lib/b.py": moved["lib/b.py"].splitlines(keepends=True)[0]}
    cut["lib/b.py"] = moved["lib/b.py"].replace(WRITTEN, WRITTEN.splitlines(keepends=True)[0])
    history.commit(60 * HOUR, cut, parents=[there])
    story = agent_story("/home/user/project/src/a.py")
    told = bucket(story, as_of_us=MONTHS_US)
    kept, later, gone = values(told, history.repository(), 5 * HOUR, DAY, 9 * DAY)
    assert (kept, later) == (1.0, 1.0)
    assert 0.4 < float(gone) < 0.6
    shown, _ = with_history(told, history.repository())
    paths = {
        file["path"]
        for payload in shown.events["payload"].to_pylist()
        for file in msgspec.json.decode(payload)["files"]
    }
    assert "/home/user/project/lib/b.py" in paths


def test_lines_that_were_there_before_have_not_moved(history: History) -> None:
    """The other file always said so: taking the lines away is what happened."""
    first = history.commit(0, {"a.py": FIRST, "b.py": OTHER + WRITTEN})
    agents = history.commit(11 * HOUR, {"a.py": AGENTS, "b.py": OTHER + WRITTEN}, parents=[first])
    last = {"a.py": FIRST, "b.py": OTHER + WRITTEN + "a new line of somebody else\n"}
    history.commit(20 * HOUR, last, parents=[agents])
    told = bucket(agent_story(), as_of_us=MONTHS_US)
    assert values(told, history.repository(), DAY) == [0.0]
