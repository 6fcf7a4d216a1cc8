"""From a Git repository to rewards, and whether `git blame` says the same, line by line.

The agent's edit is a commit of its own; after each later commit the lines that
`git blame -w -M` attributes to that commit must be the lines that provenance calls the agent's,
and `line_survival` must count them. Blame cannot tell, and may differ, where

- lines are repeated: which of two equal lines was put in is anybody's guess;
- a line without letters is concerned: blame attributes blank lines, provenance does not count
  them, and lines as short as a bracket are not recognized when they move;
- somebody takes a line away and brings it back: blame says that it is theirs, provenance that it
  is the agent's again, if the whole file was like that before;
- a line is split or joined: blame compares lines, provenance characters;
- lines moved to another file: that needs `blame -C`, which looks for less than provenance does.
"""

import os
import random
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from pathlib import Path
from string import ascii_lowercase

import msgspec
import pyarrow as pa
import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.rewards.bucket import Bucket, EditParameters
from penstock_jobs.rewards.definition import all_rewards
from penstock_jobs.rewards.history import git_history
from penstock_jobs.rewards.history.git_repository import Repository
from penstock_jobs.rewards.measures.edits import edit_persistence, line_survival
from penstock_jobs.rewards.texts.changes import CompareCost, ink
from penstock_jobs.rewards.texts.survival import surviving_lines, written_lines
from penstock_jobs.rewards.texts.trail import HorizonState, TrackedEdit
from tests.support.rewards import repositories
from tests.support.rewards.stories import LATER_US, SECOND, START_US, Row, Story, bucket, found

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None and os.environ.get("CI") != "true",
    reason="the program git is not installed",
)

HOUR = 3600
DAY = 24 * HOUR
START_S = START_US // SECOND
FIRST = "".join(f"line number {word} of the first text\n" for word in ("one", "two", "three"))
AGENTS = FIRST.replace(
    "line number two of the first text\n",
    "the agent wrote its opening sentence here\nand what follows from it on another line\n",
)

Tree = Mapping[str, str | bytes]


def git(directory: Path, *arguments: str, given: bytes = b"") -> bytes:
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(
        ["git", "-c", "init.defaultBranch=main", "-C", str(directory), *arguments],
        input=given,
        capture_output=True,
        env=environment,
        timeout=300,
        check=True,
    )
    return done.stdout


class History:
    """Commits of whole trees, at seconds after the start of the story."""

    def __init__(self, directory: Path, *, bare: bool = False) -> None:
        directory.mkdir(parents=True)
        self.directory = directory
        git(directory, "init", "--quiet", *(["--bare"] if bare else []))
        self._stream: list[bytes] = []
        self._mark = 0

    def commit(
        self,
        at: int,
        tree: Tree,
        *,
        by: str = "user",
        branch: str = "main",
        parents: Sequence[int] = (),
    ) -> int:
        """The mark of the commit."""
        self._mark += 1
        who = f"{by} <{by}@example.org> {START_S + at} +0000"
        lines = [f"commit refs/heads/{branch}", f"mark :{self._mark}"]
        lines += [f"author {who}", f"committer {who}", "data 1", "."]
        if parents:
            lines.append(f"from :{parents[0]}")
            lines += [f"merge :{parent}" for parent in parents[1:]]
        self._stream.append("\n".join([*lines, "deleteall", ""]).encode())
        for path, text in tree.items():
            content = text if isinstance(text, bytes) else text.encode()
            head = f"M 100644 inline {path}\ndata {len(content)}\n".encode()
            self._stream.append(head + content + b"\n")
        return self._mark

    def write(self) -> None:
        marks = self.directory.parent / f"{self.directory.name}.marks"
        known = (f"--import-marks-if-exists={marks}", f"--export-marks={marks}")
        git(self.directory, "fast-import", "--quiet", *known, given=b"".join(self._stream))
        self._stream = []

    def repository(self, branch: str = "main", *, first_parent: bool = False) -> Repository:
        self.write()
        return Repository(self.directory, branch, first_parent)


@pytest.fixture
def history(tmp_path: Path) -> History:
    return History(tmp_path / "repository")


def with_history(told: Bucket, repository: Repository, *, horizons_s: Sequence[int] = ()) -> Bucket:
    return repositories.with_history(told, repository, horizons_s=horizons_s)[0]


def history_events(told: Bucket, repository: Repository) -> pa.Table:
    return git_history.history_events(told, repository)[0]


def rewarded(told: Bucket, horizon_s: int, edit: str = "e-1") -> Row:
    rows = edit_persistence(told, EditParameters(horizons_s=(horizon_s,)))
    return found(rows, edit, horizon_s)


# Matching


def agent_story(path: str = "src/a.py") -> Story:
    return Story().edit(10 * HOUR, FIRST, AGENTS, path)


CUT = AGENTS.replace("and what follows from it on another line\n", "")


def test_commits_hours_later(history: History) -> None:
    first = history.commit(0, {"src/a.py": FIRST})
    second = history.commit(13 * HOUR, {"src/a.py": AGENTS, "b": "1"}, parents=[first])
    history.commit(33 * HOUR, {"src/a.py": CUT, "b": "1"}, parents=[second])
    told = bucket(agent_story(), as_of_us=START_US + 40 * DAY * SECOND)
    known = with_history(told, history.repository(), horizons_s=(HOUR, 12 * HOUR, 7 * DAY))
    assert rewarded(known, HOUR)["reason"] == "unobserved"
    assert rewarded(known, 12 * HOUR)["value"] == 1
    assert 0 < rewarded(known, 7 * DAY)["value"] < 1
    assert rewarded(with_history(told, history.repository()), 7 * DAY)["reason"] == "unobserved"
    assert told.events.num_rows == 0


def test_renamed_and_edited_in_one_commit(history: History) -> None:
    first = history.commit(0, {"src/a.py": FIRST})
    second = history.commit(11 * HOUR, {"src/a.py": AGENTS}, parents=[first])
    moved = history.commit(12 * HOUR, {"lib/b.py": CUT}, parents=[second])
    history.commit(13 * HOUR, {"lib/b.py": CUT, "src/a.py": "other\n"}, parents=[moved])
    told = bucket(agent_story("/home/user/project/src/a.py"), as_of_us=LATER_US * 2)
    known = with_history(told, history.repository(), horizons_s=(2 * HOUR, DAY))
    assert 0.3 < rewarded(known, 2 * HOUR)["value"] < 1
    assert rewarded(known, DAY)["value"] == rewarded(known, 2 * HOUR)["value"]
    assert '"path":"/home/user/project/lib/b.py"' in known.events["payload"][1].as_py()


@pytest.mark.parametrize(
    ("paths", "followed"),
    [
        (["src/a.py"], ["src/a.py"]),
        (["./src/a.py"], ["./src/a.py"]),
        (["/home/user/project/src/a.py"], ["/home/user/project/src/a.py"]),
        ([r"C:\project\src\a.py"], [r"C:\project\src\a.py"]),
        (["only.py"], ["only.py"]),
        (["a.py"], []),  # src/a.py or lib/a.py
        (["other.py", "src/b.py"], []),
        (["/one/src/a.py", "/two/src/a.py"], []),
        (["/one/src/a.py", "src/a.py"], ["src/a.py"]),
    ],
)
def test_paths(history: History, paths: list[str], followed: list[str]) -> None:
    names = ("src/a.py", "lib/a.py", "deep/down/only.py")
    first = history.commit(0, dict.fromkeys(names, FIRST))
    history.commit(11 * HOUR, dict.fromkeys(names, AGENTS), parents=[first])
    story = Story()
    for path in paths:
        story.edit(10 * HOUR, FIRST, AGENTS, path)
    files = _told(bucket(story), history.repository())
    assert sorted(files) == sorted(followed)


def _told(told: Bucket, repository: Repository) -> list[str]:
    payloads = history_events(told, repository)["payload"].to_pylist()
    return [file["path"] for payload in payloads for file in msgspec.json.decode(payload)["files"]]


def test_what_is_no_text_is_left_out(history: History) -> None:
    first = history.commit(0, {"src/a.py": FIRST})
    second = history.commit(11 * HOUR, {"src/a.py": b"\0" + AGENTS.encode()}, parents=[first])
    history.commit(12 * HOUR, {"src/a.py": b"caf\xe9" + AGENTS.encode()}, parents=[second])
    assert _told(bucket(agent_story()), history.repository()) == []


def test_clocks_out_of_order(history: History) -> None:
    # The second commit's clock is behind: it is not before its parent.
    first = history.commit(0, {"src/a.py": FIRST})
    second = history.commit(12 * HOUR, {"src/a.py": AGENTS}, parents=[first])
    history.commit(HOUR, {"src/a.py": CUT}, parents=[second])
    known = with_history(bucket(agent_story(), as_of_us=LATER_US * 2), history.repository())
    assert 0 < rewarded(known, 2 * HOUR)["value"] < 1


def test_a_bare_repository_with_a_configuration_of_its_own(tmp_path: Path) -> None:
    history = History(tmp_path / "bare.git", bare=True)
    first = history.commit(0, {"src/a.py": FIRST})
    history.commit(11 * HOUR, {"src/é b.py": FIRST + "one more line\n"}, parents=[first])
    history.write()
    for name, setting in (("diff.renames", "false"), ("log.showSignature", "true")):
        git(history.directory, "config", name, setting)
    told = _told(bucket(agent_story()), Repository(history.directory))
    assert told == ["src/é b.py"]


def test_a_branch_that_is_not_there(history: History) -> None:
    history.commit(0, {"src/a.py": FIRST})
    with pytest.raises(InvalidInput, match=r"repository.* git rev-list said: .*'gone'"):
        history_events(bucket(agent_story()), history.repository("gone"))
    with pytest.raises(InvalidInput, match="--all"):
        history_events(bucket(agent_story()), history.repository("--all"))


def test_a_directory_that_is_no_repository(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"{tmp_path.name}.* not a git repository"):
        history_events(bucket(agent_story()), Repository(tmp_path))
    with pytest.raises(InvalidInput, match="No such file"):
        history_events(bucket(agent_story()), Repository(tmp_path / "gone"))


def test_without_git(history: History, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    repository = history.repository()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInput, match="git could not be started"):
        history_events(bucket(agent_story()), repository)


def test_a_git_that_does_not_end(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = history.repository()
    slow = history.directory / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(history.directory), prepend=os.pathsep)
    with pytest.raises(InvalidInput, match=r"git rev-list did not end within 0\.2 seconds"):
        history_events(bucket(agent_story()), replace(repository, seconds_max=0.2))


# Blame


def blamed(directory: Path, commit: str, path: str, agents: str) -> set[int]:
    """The lines of the file that blame attributes to the agent's commit, from 1 on."""
    said = git(directory, "blame", "--porcelain", "-w", "-M", commit, "--", path)
    lines = set()
    number = 0
    whose = ""
    for line in said.decode().split("\n"):
        words = line.split(" ")
        if line.startswith("\t"):
            if whose == agents and line.strip():
                lines.add(number)
        elif len(words[0]) == 40 and len(words) > 2:
            whose, number = words[0], int(words[2])
    return lines


def owned(edit: TrackedEdit, seen: HorizonState) -> set[int]:
    """The lines that are still as the agent wrote them, by provenance, from 1 on."""
    written = {ink(line.text) for line in written_lines(edit)}
    lines = set()
    for state in seen.holders:
        sizes = (len(line) for line in state.text.splitlines(keepends=True))
        for number, (start, end) in enumerate(pairwise(accumulate(sizes, initial=0)), start=1):
            here = any(
                piece.at < end and start < piece.at + piece.length
                for piece in state.pieces[edit.owner]
            )
            if here and ink(state.text[start:end]) in written:
                lines.add(number)
    return lines


def agree(history: History, branch: str, states: Sequence[tuple[str, str]]) -> list[int]:
    """Check the lines after each commit: the first is the user's, the second the agent's an hour
    later, and so on. Returns how many lines were the agent's."""
    repository = history.repository(branch)
    names = git(history.directory, "rev-list", "--reverse", branch).decode().split()
    horizons = tuple(HOUR * number for number in range(1, len(states) - 1))
    told = Story().edit(HOUR, states[0][1], states[1][1], states[0][0])
    parameters = EditParameters(horizons_s=horizons, tolerance_share=0.0)
    known = with_history(bucket(told, as_of_us=START_US + 30 * DAY * SECOND), repository)
    rows = line_survival(known, parameters)
    ((edit,),) = known.trails(parameters).values()
    lines = written_lines(edit)
    counts = []
    for number, horizon in enumerate(horizons):
        path, _ = states[number + 2]
        theirs = blamed(history.directory, names[number + 2], path, names[1])
        seen = edit.horizon_states[number]
        assert seen.state == "scored"
        assert owned(edit, seen) == theirs, (branch, number)
        cost = CompareCost(parameters.cells_max)
        assert surviving_lines(edit, lines, seen, cost) == (len(theirs), 0)
        assert found(rows, "e-1", horizon)["value"] == pytest.approx(len(theirs) / len(lines))
        counts.append(len(theirs))
    return counts


def commits(history: History, branch: str, states: Sequence[tuple[str, str]]) -> None:
    before: tuple[int, ...] = ()
    for number, (path, text) in enumerate(states):
        by = "agent" if number == 1 else "user"
        tree = {path: text}
        before = (history.commit(number * HOUR, tree, by=by, branch=branch, parents=before),)


def test_only_renamed(history: History) -> None:
    """All measures follow the file to its new name."""
    first = history.commit(0, {"src/a.py": FIRST})
    second = history.commit(11 * HOUR, {"src/a.py": AGENTS}, parents=[first])
    history.commit(13 * HOUR, {"src/b.py": AGENTS}, parents=[second])
    known = with_history(bucket(agent_story(), as_of_us=LATER_US * 2), history.repository())
    for name in ("four_gram_range", "four_gram_presence", "edit_no_revert", "edit_persistence"):
        reward = all_rewards()[name]
        rows = reward.compute(known, reward.parameters(horizons_s=(3 * HOUR,)))
        assert {row["value"] for row in rows.to_pylist()} == {1.0}, name


class Editing:
    """Edits of a file without repeated lines."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._seed = seed
        self._made = 0
        self.path = "file.txt"
        self.lines = self.new(self._random.randint(5, 30))

    def new(self, count: int) -> list[str]:
        lines = []
        for _ in range(count):
            self._made += 1
            words = ["".join(self._random.choices(ascii_lowercase, k=7)) for _ in range(6)]
            lines.append(f"{self._made} {' '.join(words)}\n")
        return lines

    def insert(self) -> None:
        at = self._random.randint(0, len(self.lines))
        self.lines[at:at] = self.new(self._random.randint(1, 6))

    def change(self) -> None:
        at = self._random.randrange(len(self.lines))
        words = self.lines[at].split()
        words[self._random.randrange(len(words))] = self.new(1)[0].split()[1]
        self.lines[at] = " ".join(words) + "\n"

    def change_all(self) -> None:
        start, end = self._stretch()
        self.lines[start:end] = self.new(end - start)

    def delete(self) -> None:
        start, end = self._stretch()
        if end - start < len(self.lines):
            del self.lines[start:end]

    def move(self) -> None:
        start, end = self._stretch()
        taken = self.lines[start:end]
        del self.lines[start:end]
        at = self._random.randint(0, len(self.lines))
        self.lines[at:at] = taken

    def indent(self) -> None:
        start, end = self._stretch()
        self.lines[start:end] = ["  " + line for line in self.lines[start:end]]

    def agent(self) -> None:
        for _ in range(self._random.randint(0, 2)):
            self._random.choice([self.insert, self.change, self.change_all, self.delete])()
        self.insert()

    def user(self) -> None:
        if self._random.random() < 0.2 and len(self.lines) >= 6:
            # Git sees a rename only where half of the file is as it was.
            self.path = f"file{self._random.randrange(10**9)}.txt"
            self.change()
            return
        ways = [self.insert, self.change, self.change_all, self.delete, self.move, self.indent]
        for way in self._random.choices(ways, k=self._random.randint(1, 2)):
            way()

    def state(self) -> tuple[str, str]:
        return self.path, "".join(self.lines)

    def _stretch(self) -> tuple[int, int]:
        start = self._random.randrange(len(self.lines))
        return start, min(start + self._random.randint(1, 5), len(self.lines))


def states_of(seed: int) -> list[tuple[str, str]]:
    editing = Editing(seed)
    states = [editing.state()]
    editing.agent()
    states.append(editing.state())
    for _ in range(4):
        editing.user()
        # So that no commit is empty and each is a look at the file.
        editing.lines += editing.new(1)
        states.append(editing.state())
    return states


@pytest.mark.parametrize("chunk", range(6))
def test_blame_agrees_on_random_histories(history: History, chunk: int) -> None:
    seeds = range(chunk * 20, chunk * 20 + 20)
    told = {f"seed-{seed}": states_of(seed) for seed in seeds}
    for branch, states in told.items():
        commits(history, branch, states)
    counts = [count for branch, states in told.items() for count in agree(history, branch, states)]
    assert min(counts) < max(counts)
