"""Line survival beside `git blame`, on the history of a real repository. Exit 1 where they differ
by more than they may.

Commits drawn evenly from the first parents of HEAD are taken for edits, and the commits after each
for what others did. At the end both are asked of each line that blame gives to the commit whether
it is still there: `line_survival`, and `git blame -w -M -C`. Lines that blame traces to older ones,
which the commit copied, are counted apart: blame says nothing about what becomes of a copy.
"""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, at_least, at_most, show
from penstock_jobs.rewards.bucket import EditParameters
from penstock_jobs.rewards.texts import survival
from penstock_jobs.rewards.texts.changes import CompareCost, ink
from penstock_jobs.rewards.texts.replay import replay
from penstock_jobs.rewards.texts.trail import SECOND, Row

_AGREEING_LINES = 0.97
_SHARES_APART = 0.02
_BALANCE = 3.0
#: Between commits: long enough that text does not move from one to the next.
_STEP_S = 1_000
_BLAME = ("blame", "--first-parent", "-w", "-M", "-C", "--line-porcelain")
_LOG = ("log", "--first-parent", "--diff-merges=first-parent", "--reverse", "--raw", "-M", "-z")
_ORIGIN = re.compile(r"([0-9a-f]{40}) (\d+) \d+(?: \d+)?")
_REGULAR = ("100644", "100755")
#: A larger file is generated, or is data.
_CHARS_MAX = 300_000

#: A line of an edit: the path and the number of the line right after the edit.
Line = tuple[str, int]


class Change(NamedTuple):
    path: str
    before: str | None
    after: str | None
    renamed_from: str | None


class Step(NamedTuple):
    commit: str
    changes: tuple[Change, ...]


@dataclass
class Comparison:
    """Lines of edits by what both say, and of each edit the share that survived by each."""

    agreeing: int = 0
    #: They are there by line survival alone, or by blame alone.
    generous: int = 0
    strict: int = 0
    shares: list[tuple[float, float]] = field(default_factory=list)
    copied: int = 0
    unscored: int = 0

    def add(self, alive: Iterable[str], blamed: Iterable[str], lines: Iterable[str]) -> None:
        """Of an edit. Which of two equal lines is the older nobody can say, so their texts are
        counted. Both shares are of the same lines: those that blame gives to the edit's commit."""
        kept, still, counts = Counter(alive), Counter(blamed), Counter(lines)
        if not counts:
            return
        own = {text: min(kept[text], count) for text, count in counts.items()}
        for text, count in counts.items():
            self.generous += max(own[text] - still[text], 0)
            self.strict += max(still[text] - own[text], 0)
            self.agreeing += count - abs(own[text] - still[text])
        total = counts.total()
        self.shares.append((sum(own.values()) / total, still.total() / total))


@dataclass(frozen=True)
class History:
    directory: Path

    @cached_property
    def steps(self) -> list[Step]:
        """The first parents of HEAD, oldest first."""
        fields = iter(self._git(*_LOG, "--no-abbrev", "--format=commit %H").split("\0"))
        steps: list[tuple[str, list[Change]]] = []
        for part in fields:
            if part.startswith("commit "):
                steps.append((part.split()[1], []))
            # The first file of a commit comes with the line of the commit.
            modes = part.rpartition("\n")[2]
            if not modes.startswith(":"):
                continue
            mode_before, mode, before, after, status = modes[1:].split(" ")
            path, old = next(fields), None
            if status[0] in "RC":
                path, old = next(fields), path if status[0] == "R" else None
            regular = {mode_before, mode} <= {*_REGULAR, "000000"}
            if regular and status[0] != "C":
                steps[-1][1].append(
                    Change(path, before.strip("0") and before, after.strip("0") and after, old)
                )
            elif regular:
                steps[-1][1].append(Change(path, None, after, None))
        return [Step(commit, tuple(changes)) for commit, changes in steps]

    @lru_cache(maxsize=5_000)  # noqa: B019
    def text(self, blob: str | None) -> str | None:
        """None for what is no text."""
        if not blob:
            return ""
        content = self._run("cat-file", "blob", blob)
        if b"\0" in content or len(content) > _CHARS_MAX:
            return None
        try:
            return content.decode()
        except UnicodeDecodeError:
            return None

    def blamed(self, commit: str, until: str, path: str) -> Iterator[Line]:
        """The lines that a commit wrote and that a file held later, by their places then."""
        number = 0
        own = False
        origin = path
        for row in self._git(*_BLAME, f"{commit}^..{until}", "--", path).split("\n"):
            if row.startswith("\t"):
                if own and row.strip():
                    yield origin, number
            elif match := _ORIGIN.fullmatch(row):
                own, number = match[1] == commit, int(match[2])
            elif row.startswith("filename "):
                origin = row.removeprefix("filename ")

    def _git(self, *arguments: str) -> str:
        return self._run(*arguments).decode(errors="surrogateescape")

    def _run(self, *arguments: str) -> bytes:
        environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
        command = ["git", "-C", str(self.directory), *arguments]
        return subprocess.run(command, capture_output=True, check=True, env=environment).stdout


def compare(history: History, first: int, last: int, comparison: Comparison) -> None:
    """Adds what became of the lines of one commit, until another."""
    step, until = history.steps[first], history.steps[last].commit
    if not (edits := _edits(history, step)):
        return
    commits = []
    for number, later in enumerate(history.steps[first + 1 : last + 1], start=1):
        files = [*_files(history, later)]
        commits.append({"event_id": later.commit, "ts": number * _STEP_S * SECOND, "files": files})
    # The last one shows all files, also those that did not change in it.
    now = _now(history.steps[first : last + 1])
    files = [{"path": path, "text": history.text(blob)} for path, blob in now.items() if blob]
    files += [{"path": path, "deleted": True} for path, blob in now.items() if not blob]
    end = (last - first + 1) * _STEP_S
    commits.append({"event_id": "end", "ts": end * SECOND, "files": files})
    for row in [*edits, *commits]:
        row["seq"] = None
    parameters = EditParameters(horizons_s=(end,), tolerance_share=0.0)
    blamed_then = {
        line
        for edit in edits
        if edit["after"]
        for line in history.blamed(step.commit, step.commit, edit["path"])
    }
    blamed_now = {
        line
        for path, blob in now.items()
        if blob
        for line in history.blamed(step.commit, until, path)
    } & blamed_then
    tracks = replay(
        edits,
        [],
        commits,
        turns_us=[],
        ended_us=None,
        as_of_us=(end + 1_000) * SECOND,
        terms=parameters.terms(),
    )
    for edit in tracks:
        [at_horizon] = edit.horizon_states
        blamed = {line for line in blamed_then if line[0] == edit.path}
        if at_horizon.state != "scored" or edit.problem or edit.deleted:
            comparison.unscored += bool(blamed)
            continue
        lines = survival.written_lines(edit)
        places = [(edit.path, edit.after.count("\n", 0, line.at) + 1) for line in lines]
        cost = CompareCost(parameters.cells_max)
        fates = survival.line_fates(edit, lines, at_horizon, cost)
        alive = {place for place, fate in zip(places, fates, strict=True) if fate == "surviving"}
        still = blamed & blamed_now
        rows = edit.after.split("\n")
        texts = ([ink(rows[at - 1]) for _, at in own] for own in (alive, still, blamed))
        comparison.add(*texts)
        comparison.copied += len(set(places) - blamed)


def _edits(history: History, step: Step) -> list[Row]:
    rows: list[Row] = []
    for change in step.changes:
        before, after = history.text(change.before), history.text(change.after)
        if (after or not change.after) and after is not None and before is not None:
            row = {"session_id": "s", "event_id": change.path, "edit_id": None, "ts": 0, "turn": 0}
            texts = {"path": change.path, "before": before, "after": after, "checkpoint": None}
            rows.append({**row, **texts})
    return rows


def _files(history: History, step: Step) -> Iterator[Row]:
    for change in step.changes:
        if not change.after:
            yield {"path": change.path, "deleted": True}
        elif (text := history.text(change.after)) is not None:
            renamed = {"renamed_from": change.renamed_from} if change.renamed_from else {}
            yield {"path": change.path, "text": text, **renamed}


def _now(steps: Sequence[Step]) -> dict[str, str | None]:
    """The last blob of each file that the steps changed; of one that is gone, none."""
    now: dict[str, str | None] = {}
    for step in steps:
        for change in step.changes:
            if change.renamed_from:
                now[change.renamed_from] = None
            now[change.path] = change.after or None
    return now


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.blame_study", description=__doc__)
    parser.add_argument("repository", type=Path)
    parser.add_argument("--edits", type=int, default=150, help="commits that are taken for edits")
    parser.add_argument("--later", type=int, default=40, help="commits after each")
    options = parser.parse_args()
    history = History(options.repository)
    lasts = len(history.steps) - options.later
    firsts = range(1, lasts, max(lasts // options.edits, 1))
    comparison = Comparison()
    for first in firsts:
        compare(history, first, first + options.later, comparison)
    sys.exit(0 if show(_figures(comparison)) else 1)


def _figures(comparison: Comparison) -> Iterator[Figure]:
    apart = comparison.generous + comparison.strict
    lines = comparison.agreeing + apart
    yield Figure("lines of commits that were compared", f"{lines}")
    yield Figure("other lines of their edits, copied by blame", f"{comparison.copied}")
    yield at_least("share on which both agree", comparison.agreeing / lines, _AGREEING_LINES)
    differences = [abs(own - blamed) for own, blamed in comparison.shares]
    yield Figure("edits of files that were compared", f"{len(differences)}")
    yield Figure("edits that line_survival does not score", f"{comparison.unscored}")
    yield at_most("mean difference of shares", sum(differences) / len(differences), _SHARES_APART)
    yield Figure("lines that line_survival alone keeps", f"{comparison.generous}")
    yield Figure("lines that blame alone keeps", f"{comparison.strict}")
    balance = max(comparison.generous, comparison.strict) / max(
        min(comparison.generous, comparison.strict), 1
    )
    yield at_most("the larger of both, by the smaller", balance, _BALANCE)


if __name__ == "__main__":
    main()
