"""Hints from runs of tests that failed after an edit."""

from collections.abc import Iterator

from penstock_jobs.rewards.followups.follow_ups import outcome_of_tests
from penstock_jobs.shards.hints.hint import Hint, HintSource, ToldChain
from penstock_jobs.shards.hints.outputs import shortened

NAME = "test_failure"


def _find(chain: ToldChain) -> Iterator[Hint]:
    edits = {place for place, facts in chain.calls if facts.edited}
    for run in chain.reports:
        if run.type != "test_result" or outcome_of_tests(run.payload) != "failed":
            continue
        turn = chain.turn_at(run.session_id, run.ts_us)
        output = shortened(run.text("output"))
        if turn is None:
            continue
        call = chain.faulty_call(turn, output, until_us=run.ts_us)
        if call in edits:  # tests that failed before anything was edited are nobody's fault
            text = f"After the edit in this answer tests fail: {output or run.text('command')}"
            yield Hint(text, NAME, call, run.session_id, run.event_id)


SOURCE = HintSource(NAME, _find)
