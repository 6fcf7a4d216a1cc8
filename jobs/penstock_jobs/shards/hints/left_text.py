"""Hints from edits by users: the lines that they left in place of the agent's."""

from collections.abc import Iterator

from penstock_jobs.shards.hints.hint import Hint, HintSource, ToldChain

NAME = "left_text"


def _find(chain: ToldChain) -> Iterator[Hint]:
    for session, corrections in chain.corrections.items():
        for correction in corrections:
            mark, left = correction.edit, correction.left_lines
            call = chain.call_of(session, mark)
            if left and call is not None:
                text = f"The user left this in place of what this answer wrote:\n{left}"
                yield Hint(text, NAME, call, session, mark.name, answer_free=False)


SOURCE = HintSource(NAME, _find, solves=True)
