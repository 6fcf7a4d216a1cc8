"""Tasks mined from real repositories, in one run: how many are verified, and why others are not.
Exit 1 where a goal is missed.

Each repository is mined into a fresh data directory until it gave so many tasks. The command is
killed once on its way, said again, and then a third time about the same commits, when nothing may
be judged. All that was proposed is then taken, exported and linted: untouched trees have to fail.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import sleep
from typing import Any

from bench.figures import Figure, at_least, at_most, show
from penstock.backends.terminal.output import say, show_table
from penstock.core.settings import load_settings
from penstock.events.event import TENANT_DEFAULT
from penstock.lake.lake import open_or_make
from penstock_jobs.benchmarks.mine.history import ProjectHistory
from penstock_jobs.benchmarks.mine.proposals import Proposal, proposals_of

_TASKS_MIN, _REPOSITORIES_MIN = 30, 3
#: The command is killed once so many tasks are proposed.
_KILLED_AT = 2
_MEASURES = ("changed_lines", "changed_files", "prompt_words", "tests", "failing")


class Study:
    def __init__(self, folder: Path, tasks: int) -> None:
        self._folder, self._tasks = folder, tasks
        self._lake = open_or_make(load_settings(folder / "data"))
        self.twice = self.problems = 0

    def mine(self, repository: Path) -> list[Proposal]:
        """Mine a repository, with a kill and a repetition. Returns all that is known of it."""
        history = ProjectHistory.of(repository)
        suite = history.name
        say(f"{suite}: mining")
        with self._start(repository, suite, "--limit", str(self._tasks)) as command:
            while command.poll() is None and _proposed(self._known(suite)) < _KILLED_AT:
                sleep(1)
            command.kill()
        early = self._known(suite)
        left = self._tasks - _proposed(early)
        report = self._said("mine", str(repository), "--suite", suite, "--limit", str(left))
        known = self._known(suite)
        judged = {each.facts["settled"] for each in known}
        oldest = [each.name for each in history.commits() if each.name in judged][-1]
        span = ("--commits", f"{oldest}~1..HEAD")
        again = self._said("mine", str(repository), "--suite", suite, *span)
        added = len(known) - len(early)
        self.twice += report["proposed"] + sum(report["left_out"].values()) - added
        self.twice += again["proposed"] + sum(again["left_out"].values())
        now = self._known(suite)
        self.twice += sum(each not in now for each in (*early, *known))
        say(f"{suite}: killed with {len(early)} of {len(known)} judged; {again['known']} known")
        return known

    def lint(self, suite: str, known: Sequence[Proposal]) -> None:
        """Take and export what was proposed, and count what the lint of the suite finds."""
        for each in known:
            if each.state == "proposed":
                self._said("review", suite, each.task, "--take")
        out = str(self._folder / suite)
        self._said("export", suite, out)
        found = self._said("lint", out)["findings"]
        self.problems += len(found)
        for each in found:
            say(f"{each['task']}: {each['problem']}")

    def _known(self, suite: str) -> list[Proposal]:
        return proposals_of(self._lake.database, TENANT_DEFAULT, suite)

    def _start(self, repository: Path, suite: str, *more: str) -> subprocess.Popen[bytes]:
        command = _command("mine", str(repository), "--suite", suite, *more)
        return subprocess.Popen(command, env=self._variables(), stdout=subprocess.DEVNULL)

    def _said(self, *arguments: str) -> Any:
        done = subprocess.run(
            [*_command(*arguments), "--json"],
            env=self._variables(),
            stdout=subprocess.PIPE,
            check=arguments[0] != "lint",
        )
        return json.loads(done.stdout)

    def _variables(self) -> dict[str, str]:
        return os.environ | {"PENSTOCK_DATA": str(self._folder / "data")}


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "penstock", "suites", *arguments]


def _proposed(known: Sequence[Proposal]) -> int:
    return sum(each.state != "left_out" for each in known)


def report(by_suite: dict[str, list[Proposal]]) -> None:
    rows = [[name, len(known), _proposed(known)] for name, known in by_suite.items()]
    show_table(["repository", "candidates", "verified"], rows)
    known = [each for found in by_suite.values() for each in found]
    reasons = Counter(each.facts["rule"] for each in known if each.state == "left_out")
    show_table(["left out", "count"], reasons.most_common())
    tasks = [each.facts for each in known if each.state != "left_out"]
    medians = [[name, median(facts[name] for facts in tasks)] for name in _MEASURES]
    kinds = Counter(f"{name}: {facts[name]}" for facts in tasks for name in ("work", "check"))
    show_table(["verified", "median, or count"], [*medians, *kinds.most_common()])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("repositories", nargs="+", type=Path)
    parser.add_argument("--tasks", type=int, default=10, help="at most so many of each repository")
    given = parser.parse_args()
    by_suite: dict[str, list[Proposal]] = {}
    with TemporaryDirectory(prefix="penstock-mining-") as folder:
        study = Study(Path(folder), given.tasks)
        for repository in given.repositories:
            known = study.mine(repository.resolve())
            name = ProjectHistory.of(repository).name
            by_suite[name] = known
            if _proposed(known):
                study.lint(name, known)
            report(by_suite)
    verified = {name: _proposed(known) for name, known in by_suite.items()}
    figures: list[Figure] = [
        at_least("verified tasks", sum(verified.values()), _TASKS_MIN),
        at_least(
            "repositories that gave tasks", sum(map(bool, verified.values())), _REPOSITORIES_MIN
        ),
        at_most("problems that lint finds in them", study.problems, 0),
        at_most("candidates judged twice", study.twice, 0),
    ]
    return int(not show(figures))


if __name__ == "__main__":
    sys.exit(main())
