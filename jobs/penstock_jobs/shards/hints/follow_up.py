"""Hints from follow-ups: what the user said of the work before."""

import re
from collections.abc import Iterator

from penstock_jobs.rewards.followups.judge import THRESHOLD, Message
from penstock_jobs.rewards.followups.local_judge import local_judge
from penstock_jobs.rewards.followups.speech import own_words
from penstock_jobs.shards.hints.hint import Hint, HintSource, ToldChain

NAME = "follow_up"
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")  # noqa: RUF001 marks of several scripts
#: Labels of sentences that say nothing of what was wrong.
_BESIDES = frozenset({"moves_on", "accepts", "asks", "abandons"})


def _find(chain: ToldChain) -> Iterator[Hint]:
    for said in chain.messages:
        event = chain.message_at(said.session_id, said.turn)
        call = chain.faulty_call(said.turn_before, said.message.text)
        if event is None or "copied" in event.flags or call is None:
            continue
        if text := correcting_words(said.message):
            text = f"The user said of this answer: {text}"
            yield Hint(text, NAME, call, said.session_id, event.event_id)


def correcting_words(message: Message) -> str:
    """Return the sentences of the user's own words that are about the work before.

    Pasted text is left out, and so are sentences that only praise, ask, or wish for the next."""
    words = own_words(message.text)
    sentences = [part.strip() for part in _SENTENCE.split(words) if part.strip()]
    if len(sentences) < 2:
        return words
    parts = [Message(text=part, agent=message.agent, edited=message.edited) for part in sentences]
    judged = local_judge().judge(parts)
    kept = [
        part
        for part, judgement in zip(sentences, judged, strict=True)
        if judgement.label not in _BESIDES or judgement.dissatisfied >= THRESHOLD
    ]
    return " ".join(kept) or words


SOURCE = HintSource(NAME, _find)
