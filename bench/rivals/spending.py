"""What a contender spends on its work. Imports nothing but Python's own."""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Question = dict[str, Any]


def answer_questions(
    work: Callable[[Question], int], write: Callable[[Question], None] | None = None
) -> None:
    """A line of JSON on standard input asks, and one on standard output answers, until nobody asks.

    `work` gives how many units it made or read; `write` makes what it reads, where that is asked
    for. A process stays for all rounds: its imports are nobody's speed."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        question = json.loads(line)
        started_s, cpu_s, units = time.perf_counter(), _cpu_s(), 0
        if write and question.get("write"):
            write(question)
        else:
            units = work(question)
        wall_s = time.perf_counter() - started_s
        spent = {"units": units, "cpu_s": _cpu_s() - cpu_s, "wall_s": wall_s}
        print(json.dumps(spent), file=answers, flush=True)


def _cpu_s() -> float:
    """Of all threads, and of processes that have ended."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system
