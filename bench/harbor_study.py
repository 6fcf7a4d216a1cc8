"""Harbor tasks of others, tried on this machine: which are verified, and why the others are not.

`make harbor-study TASKS="dir dir"`: each task that can be read is linted alone, one after another.
What is known of a task is kept in a file, so an interrupted study goes on where it was."""

import argparse
import json
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from penstock.backends.terminal.output import say, show_table
from penstock_jobs.benchmarks.lint import silent_hosts
from penstock_jobs.benchmarks.suite import load_files, read_suite

_VERIFIED = "verified: the solution passes, an untouched container fails"
_OVER = "tried: over its time"
#: What a problem says, and the row that it counts in: the first that fits.
_ROWS = (
    (r"its base .* is no plain distribution", "left out: its base is an image of their own"),
    (r"its base is ", "left out: its base is another distribution or version"),
    (r"it has a docker-compose", "left out: a compose file"),
    (r"has COPY '--from", "left out: files of another image"),
    (r"container of their own", "left out: tests in another container"),
    (r"has ENTRYPOINT", "left out: an ENTRYPOINT"),
    (r"it needs (.*), which this machine cannot reach", r"left out: needs \1"),
    (r"no answer from ([^;]*)", r"tried: no answer from \1"),
    (r"environment cannot be made", "tried: setup fails"),
    (r"judges one tree in two ways", "tried: its tests judge one tree in two ways"),
    (r"solution must pass", "tried: its solution fails"),
    (r"untouched tree must fail", "tried: an untouched container does not fail"),
    (r"has no solution", "tried: it has no solution"),
    (r"its tree is empty|in its tree|its prompt", "tried: its files give the check away"),
)


def row_of(problems: list[str]) -> str:
    for pattern, row in _ROWS:
        for problem in problems:
            if found := re.search(pattern, problem):
                return re.sub(r":443|:80", "", found.expand(row))
    return "; ".join(problems)[:80] if problems else _VERIFIED


def try_task(folder: Path, data: Path, seconds_max: float) -> list[str]:
    command = [sys.executable, "-m", "penstock", "suites", "lint", str(folder), "--json"]
    command += ["--data", str(data)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            text, errors = process.communicate(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            process.terminate()
            process.communicate()
            return [_OVER]
    if not text:
        return [errors.decode(errors="replace")[-500:]]
    return [finding["problem"] for finding in json.loads(text)["findings"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="+", type=Path, help="folders of Harbor tasks")
    parser.add_argument("--data", type=Path, required=True, help="keeps environments and results")
    parser.add_argument("--seconds", type=float, default=1_200.0, help="the most for a task")
    options = parser.parse_args()
    known = options.data / "harbor-study.jsonl"
    known.parent.mkdir(parents=True, exist_ok=True)
    lines = known.read_text(encoding="utf-8").splitlines() if known.exists() else []
    results = {line["task"]: line["problems"] for line in map(json.loads, lines)}
    counted: Counter[str] = Counter()
    for folder in options.tasks:
        suite = read_suite(folder)
        counted.update(row_of([why]) for why in suite.left_out.values())
        for task in suite.tasks:
            place = str(task.folder)
            if place not in results:
                began = time.monotonic()
                # Asked here, once for all tasks; `lint` would say the same.
                silent = silent_hosts(load_files(task))
                how = task.folder, options.data, options.seconds
                results[place] = [silent] if silent else try_task(*how)
                line = {"task": place, "problems": results[place]}
                line["seconds"] = round(time.monotonic() - began)
                with known.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                say(f"{task.name}: {row_of(results[place])} ({line['seconds']} s)")
            counted[row_of(results[place])] += 1
    show_table(["tasks", "what became of them"], [[n, row] for row, n in counted.most_common()])
    say(f"{counted.total()} tasks")


if __name__ == "__main__":
    main()
