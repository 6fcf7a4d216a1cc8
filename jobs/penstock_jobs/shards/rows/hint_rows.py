"""Hint rows: the sampled tokens of a call, turn or request, and a hint for a teacher.

The hint is one message, rendered by the recipe's template, behind the last message that the model
had read. So it stands at a boundary of the template, and the completion's ids stay as they are.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from penstock.core.errors import InvalidInput
from penstock_jobs.rewards.bucket import TurnKey
from penstock_jobs.shards.conversation.conversation import ChatMessage, Conversation
from penstock_jobs.shards.conversation.token_payload import Ids
from penstock_jobs.shards.hints.hint import Hint
from penstock_jobs.shards.recipe import Hints
from penstock_jobs.shards.rows.engine_branches import Branch
from penstock_jobs.shards.rows.rendered_branches import Renderer

HintRefusal = Literal[
    "no_hint",  # nothing says what was wrong in it
    "hint_not_trained",  # the call that a hint is about has no trained tokens
    "hint_holds_answer",  # a line of a later answer, and the recipe wants no solutions
    "hint_too_long",
    "hint_no_place",  # the engine's prompt does not open the answer as the template does
    "too_long",
]
#: Stands for the hint while the template is tried.
_SAMPLE = "what-a-hint-says"
#: Tokens that an engine may put behind what opens an answer, such as thinking that is none.
_OPENED_TOKENS_MAX = 8
_CLAUSE_END = re.compile(r"(?<=[.!?;:,…])\s+|(?<=[。、！？])|\n+")  # noqa: RUF001 several scripts


@dataclass(frozen=True)
class HintFrame:
    """The text around a hint's message, and what opens the answer behind it."""

    renderer: Renderer
    before: str
    after: str
    opening: str

    @classmethod
    def of(cls, renderer: Renderer) -> "HintFrame":
        """Try the template: one more message of the user, else of the system.

        Raises InvalidInput, TemplateLimitReached."""
        asked, why = ChatMessage("user", "go on", 1), "it opens no answer"
        for role in ("user", "system"):
            try:
                head, opening = renderer.template.prompt([asked])
                text, same = renderer.template.prompt([asked, ChatMessage(role, _SAMPLE, 1)])
            except InvalidInput as error:
                why = str(error.facts["why"])
                continue
            before, found, after = text.removeprefix(head).partition(_SAMPLE)
            if opening and found and opening == same and text.startswith(head):
                return cls(renderer, before, after, opening)
        why = f"it takes no hint, one more message before an answer: {why}"
        raise InvalidInput(what=f"The chat template {renderer.template.where}", why=why)

    def ids(self, text: str) -> Ids:
        """Render a hint. What looks like a special token in it is left out."""
        for special in self.renderer.special:
            text = text.replace(special, "")
        return self.renderer.encode(f"{self.before}{text}{self.after}")[0]

    @cached_property
    def _opening_ids(self) -> Ids:
        # An engine may open thinking, close it at once, or leave it out.
        return self.renderer.encode(self.opening.partition("<think>")[0])[0]

    def place_in(self, prompt: Ids) -> int | None:
        """Find where a prompt begins to open the answer; None if it does not as the template."""
        opening = self._opening_ids
        last = len(prompt) - len(opening)
        for at in range(last, max(last - _OPENED_TOKENS_MAX, 0), -1):
            if np.array_equal(prompt[at : at + len(opening)], opening):
                return at
        return None


class HintedBranch(NamedTuple):
    """A branch cut to a hint's unit, with the number of the whole one and the columns of a hint."""

    number: int
    branch: Branch
    columns: Mapping[str, Any]


@dataclass
class HintRows:
    """Makes the hint rows of sessions, and counts hints by source, or by why they have no row."""

    asked: Hints
    frame: HintFrame
    length_max: int
    #: The request of each turn.
    requests: Mapping[TurnKey, int]
    counts: Counter[str] = field(default_factory=Counter)

    def of(
        self, conversation: Conversation, branches: Sequence[Branch], hints: Sequence[Hint]
    ) -> tuple[list[HintedBranch], HintRefusal]:
        """Make rows, at most one for each unit: the first hint counts. Or say why there is none."""
        homes = {call: n for n, branch in enumerate(branches) for call in branch.calls}
        rows: dict[Hashable, HintedBranch] = {}
        why: HintRefusal = "no_hint"
        for hint in hints:
            number = homes.get(hint.call.number)
            unit = None if number is None else (number, self._unit(conversation, hint.call.number))
            if unit in rows:
                self.counts["another_hint"] += 1
                continue
            made: HintedBranch | HintRefusal = "hint_not_trained"
            if number is not None:
                made = self._row(conversation, branches[number], number, hint)
            if isinstance(made, str):
                why = made
                self.counts[made] += 1
            else:
                rows[unit] = made
                self.counts[hint.kind] += 1
        covered = {call for row in rows.values() for call in row.branch.calls}
        self.counts["no_hint"] += len(homes.keys() - covered)
        ordered = sorted(rows.values(), key=lambda row: (row.number, len(row.branch.input_ids)))
        return ordered, why

    def _unit(self, conversation: Conversation, call: int) -> Hashable:
        if self.asked.unit == "call":
            return call
        turn = conversation.calls[call].turn
        request = self.requests.get((conversation.session_id, turn))
        return turn if self.asked.unit == "turn" or request is None else f"request {request}"

    def _row(
        self, conversation: Conversation, whole: Branch, number: int, hint: Hint
    ) -> HintedBranch | HintRefusal:
        if not hint.answer_free and not self.asked.solutions:
            return "hint_holds_answer"
        text = cut_at_clause(
            hint.text, lambda text: len(self.frame.ids(text)) <= self.asked.max_tokens
        )
        if text is None:
            return "hint_too_long"
        unit = self._unit(conversation, hint.call.number)
        calls = [call for call in whole.calls if self._unit(conversation, call) == unit]
        branch = cut_branch(whole, calls)
        position = self.frame.place_in(branch.input_ids[: branch.prompt_len])
        if position is None:
            return "hint_no_place"
        ids = self.frame.ids(text)
        if len(branch.input_ids) + len(ids) > self.length_max:
            return "too_long"
        sampled = [span for span in branch.spans if span.sampled]
        own = sampled[calls.index(hint.call.number)]
        columns = {
            "hint": text,
            "hint_kind": hint.kind,
            "hint_ids": ids,
            "hint_position": position,
            "hint_start": own.start,
            "hint_end": own.end,
            "hint_answer_free": hint.answer_free,
            "hint_event_id": hint.event_id,
            "hint_session_id": hint.session_id,
        }
        return HintedBranch(number, branch, columns)


def cut_at_clause(text: str, fits: Callable[[str], bool]) -> str | None:
    """Cut a text at the end of a clause so that it fits; None if less than half of it does."""
    if fits(text):
        return text
    ends = [match.start() for match in _CLAUSE_END.finditer(text)]
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if fits(text[: ends[middle]]) else (low, middle)
    return text[: ends[low - 1]] if low and 2 * ends[low - 1] >= len(text) else None


def cut_branch(branch: Branch, calls: Sequence[int]) -> Branch:
    """Train only some calls of a branch, and end it behind the last of them."""
    sampled = [span for span in branch.spans if span.sampled]
    own = {span for call, span in zip(branch.calls, sampled, strict=True) if call in calls}
    start, end = min(span.start for span in own), max(span.end for span in own)
    spans = tuple(span._replace(sampled=span in own) for span in branch.spans if span.end <= end)
    logprobs, routes = branch.rollout_logprobs, branch.routes
    cut = replace(
        branch,
        input_ids=branch.input_ids[:end],
        spans=spans,
        calls=tuple(calls),
        version_runs=_runs_from(branch.version_runs, start, end),
        temperature_runs=_runs_from(branch.temperature_runs, start, end),
        routes=routes and routes.part(routes.start, min(routes.end, end)),
        parent=None,
        link=None,
    )
    if logprobs is None:
        return cut
    return replace(cut, rollout_logprobs=np.where(cut.loss_mask, logprobs[:end], np.float32(0)))


def _runs_from(runs: Any, start: int, end: int) -> Any:
    """Return the runs of tokens between two places."""
    if runs is None:
        return None
    ends = [*(later for later, _ in runs[1:]), end]
    cut = zip(runs, ends, strict=True)
    return tuple((max(at, start), value) for (at, value), to in cut if at < end and to > start)
