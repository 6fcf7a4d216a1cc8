"""Hints from errors of tools: how the tool answered a faulty call of it."""

from collections.abc import Iterator

from penstock_jobs.shards.hints.hint import Hint, HintSource, ToldChain
from penstock_jobs.shards.hints.outputs import shortened
from penstock_jobs.shards.rows.token_credit import EditMark

NAME = "tool_error"
#: Errors that no other call would have avoided.
_OF_OTHERS = ("user_aborted", "provider_error", "timeout")


def _find(chain: ToldChain) -> Iterator[Hint]:
    for result in chain.reports:
        error = result.text("error_class")
        if result.type != "tool_result" or result.payload.get("ok") is not False:
            continue
        mark = EditMark("", result.text("call_id") or None, result.ts_us, result.seq)
        call = chain.call_of(result.session_id, mark)
        output = shortened(result.text("output"))
        if error in _OF_OTHERS or call is None or not (output or error):
            continue
        tool = result.text("tool") or "a tool"
        why = ": ".join(part for part in (error.replace("_", " "), output) if part)
        text = f"The call of {tool} in this answer fails: {why}"
        yield Hint(text, NAME, call, result.session_id, result.event_id)


SOURCE = HintSource(NAME, _find)
