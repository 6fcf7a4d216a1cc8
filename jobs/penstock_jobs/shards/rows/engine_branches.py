"""Branches: token sequences of an inference engine, as long as each continues exactly.

A call whose prompt begins with all tokens of a branch continues it; any other call begins a new
branch with its prompt as context. A completion is trained only in the branch of its call. Policy
versions never decrease within a branch: after a rollback it forks.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from penstock.shards.schema import ROLES, TokenSource
from penstock_jobs.shards.conversation.conversation import Conversation, ModelCall, answer_of_choice
from penstock_jobs.shards.conversation.session_events import EventProblem, temperature_of
from penstock_jobs.shards.conversation.token_payload import (
    TOKENS_REDACTED,
    EngineTokens,
    ExpectedTokens,
    ExpertRoutes,
    Floats,
    Ids,
    PromptMemory,
    Runs,
    read_tokens,
)

BranchLink = Literal["fork", "compaction"]
_NEVER_US = 2**63
ASSISTANT = ROLES.index("assistant")


class TokenSpan(NamedTuple):
    """Consecutive tokens of one origin. Read tokens have role and event of their last message."""

    start: int
    end: int
    turn: int
    role: int
    sampled: bool
    event_seq: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    input_ids: Ids
    spans: tuple[TokenSpan, ...]
    #: Numbers of calls whose completions are trained here.
    calls: tuple[int, ...]
    #: As long as the ids, 0 for untrained tokens. None if not reported.
    rollout_logprobs: Floats | None = None
    #: A run lasts up to the next. None if unknown for a call; likewise below.
    version_runs: Runs | None = None
    temperature_runs: tuple[tuple[int, float], ...] | None = None
    routes: ExpertRoutes | None = None
    #: The previous branch, and why it ended.
    parent: int | None = None
    link: BranchLink | None = None
    token_source: TokenSource = "engine"
    tokenizer: str | None = None
    template: str | None = None
    #: Problems of calls, or of parts of calls.
    problems: tuple[str, ...] = ()

    @property
    def temperature(self) -> float | None:
        """Return the temperature that all calls share, if any."""
        values = {value for _, value in self.temperature_runs or ()}
        return values.pop() if len(values) == 1 else None

    @property
    def loss_mask(self) -> NDArray[np.uint8]:
        mask = np.zeros(len(self.input_ids), dtype=np.uint8)
        for span in self.spans:
            if span.sampled:
                mask[span.start : span.end] = 1
        return mask

    @property
    def n_trainable(self) -> int:
        return sum(span.end - span.start for span in self.spans if span.sampled)

    @property
    def prompt_len(self) -> int:
        return next((span.start for span in self.spans if span.sampled), len(self.input_ids))


class SessionBranches(NamedTuple):
    branches: list[Branch]
    problems: list[EventProblem]


def engine_branches(conversation: Conversation, expected: ExpectedTokens) -> SessionBranches:
    """Make branches of calls with ids that the model wrote here for the first time.

    If some calls have log-probabilities, calls without are read but not trained."""
    drafts: list[_BranchDraft] = []
    current: _BranchDraft | None = None
    memory = PromptMemory()
    moment = conversation.redacted_from_us
    redacted_from_us = _NEVER_US if moment is None else moment
    problems: list[EventProblem] = []
    broken_before: list[str] = []
    for call in conversation.calls:
        if call.flags & {"copied", "synthetic"}:
            continue
        tokens = read_tokens(call.payload.tokens, expected, memory)
        if isinstance(tokens, EngineTokens) and redacted_from_us <= call.event.ts_us:
            tokens = TOKENS_REDACTED
        elif tokens == TOKENS_REDACTED:
            redacted_from_us = min(redacted_from_us, call.event.ts_us)
        if isinstance(tokens, str):
            # The call is not trained. Its branch, or the next one, names the problem.
            (broken_before if current is None else current.problems).append(tokens)
            problems.append(_problem(tokens, call))
        elif tokens is not None:
            problems += [_problem(kind, call) for kind in tokens.lacks]
            going_on = (draft for draft in drafts if draft.goes_on_in(tokens))
            parent, current = current, max(going_on, key=lambda draft: len(draft.ids), default=None)
            if current is None:
                current = _BranchDraft(len(drafts), tokens.tokenizer, tokens.template)
                current.problems, broken_before = broken_before, []
                if parent is not None:
                    current.parent = parent.number
                    current.link = "fork" if parent.context == call.context else "compaction"
                drafts.append(current)
            current.add(call, tokens)
    if any(draft.logprobs for draft in drafts):
        for draft in drafts:
            for call, position in draft.bare:
                draft.spans[position] = draft.spans[position]._replace(sampled=False)
                draft.calls.remove(call.number)
                draft.problems.append("logprobs_missing")
                problems.append(_problem("logprobs_missing", call))
    return SessionBranches([draft.finished() for draft in drafts], problems)


class Choice(NamedTuple):
    """One of several choices of an answer: samples for one prompt, each in a branch of its own."""

    call_id: str
    answer: str
    #: The ids of all choices.
    choices: tuple[str, ...]
    #: Its last token.
    end: int


def find_choices(
    conversation: Conversation, branches: Sequence[Branch]
) -> tuple[list[Choice | None], list[set[int]]]:
    """Find for each branch the first choice that it trains, and choices that it never read."""
    answers: defaultdict[tuple[str, bytes], list[tuple[int, int, slice]]] = defaultdict(list)
    for number, branch in enumerate(branches):
        sampled = (span for span in branch.spans if span.sampled)
        for call, span in zip(branch.calls, sampled, strict=True):
            if answer := answer_of_choice(conversation.calls[call]):
                prompt = xxh3_128_digest(branch.input_ids[: span.start].tobytes())
                answers[answer, prompt].append((number, call, slice(span.start, span.end)))
    found: list[Choice | None] = [None] * len(branches)
    unread: list[set[int]] = [set() for _ in branches]
    for (answer, _), made in answers.items():
        if len(made) == 1:
            continue
        ids = [conversation.calls[call].payload.call_id or "" for _, call, _ in made]
        own = {number: call for number, call, _ in made}
        for (number, _, place), call_id in zip(made, ids, strict=True):
            found[number] = found[number] or Choice(call_id, answer, tuple(ids), place.stop - 1)
        for number, branch in enumerate(branches):
            for other, call, place in made:
                written = branches[other].input_ids[place]
                read = np.array_equal(branch.input_ids[place], written)
                if own.get(number, call) != call or not read:
                    unread[number].add(call)
    return found, unread


def _problem(kind: str, call: ModelCall) -> EventProblem:
    return EventProblem(kind, call.event.seq, call.event.event_id, call.payload.call_id)


@dataclass(slots=True, eq=False)
class _BranchDraft:
    """An unfinished branch."""

    number: int
    tokenizer: str | None
    template: str | None
    parent: int | None = None
    link: BranchLink | None = None
    context: int = 0
    ids: Ids = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    spans: list[TokenSpan] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    logprobs: list[tuple[int, Floats]] = field(default_factory=list)
    runs: list[tuple[int, int]] = field(default_factory=list)
    runs_known: bool = True
    temperatures: list[tuple[int, float | None]] = field(default_factory=list)
    routes: list[ExpertRoutes | None] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    #: Calls without log-probabilities, and their spans.
    bare: list[tuple[ModelCall, int]] = field(default_factory=list)

    def goes_on_in(self, tokens: EngineTokens) -> bool:
        length = len(self.ids)
        if length > len(tokens.prompt) or tokens.tokenizer != self.tokenizer:
            return False
        if self.runs and tokens.runs and tokens.runs[0][1] < self.runs[-1][1]:
            return False
        # The last token alone rules out most.
        same_end = tokens.prompt[length - 1] == self.ids[-1]
        return bool(same_end) and np.array_equal(tokens.prompt[:length], self.ids)

    def add(self, call: ModelCall, tokens: EngineTokens) -> None:
        known, read = len(self.ids), len(tokens.prompt)
        end = read + len(tokens.completion)
        if read > known:
            role = ROLES.index(call.after)
            self.spans.append(TokenSpan(known, read, call.turn, role, False, call.after_seq))
        self.spans.append(TokenSpan(read, end, call.turn, ASSISTANT, True, call.event.seq))
        self.ids = np.concatenate([tokens.prompt, tokens.completion])
        self.calls.append(call.number)
        if tokens.logprobs is None:
            self.bare.append((call, len(self.spans) - 1))
        else:
            self.logprobs.append((read, tokens.logprobs))
        self.runs_known &= tokens.runs is not None
        for start, version in tokens.runs or ():
            if not self.runs or self.runs[-1][1] != version:
                self.runs.append((read + start, version))
        temperature = temperature_of(call.payload)
        if not self.temperatures or self.temperatures[-1][1] != temperature:
            self.temperatures.append((read, temperature))
        if routes := tokens.routes:
            # Rows of earlier calls take precedence.
            covered = max((part.end for part in self.routes if part), default=routes.start)
            routes = routes.part(min(max(covered, routes.start), routes.end), routes.end)
        self.routes.append(routes)
        self.problems += tokens.lacks
        self.context = call.context

    def finished(self) -> Branch:
        routes = _joined(self.routes, len(self.ids))
        if routes is None and any(self.routes):
            self.problems.append("routes_incomplete")
        logprobs = np.zeros(len(self.ids), dtype=np.float32)
        for start, values in self.logprobs:
            logprobs[start : start + len(values)] = values
        known = [(start, value) for start, value in self.temperatures if value is not None]
        return Branch(
            input_ids=self.ids,
            spans=tuple(self.spans),
            calls=tuple(self.calls),
            rollout_logprobs=logprobs if self.logprobs else None,
            version_runs=tuple(self.runs) if self.runs_known else None,
            temperature_runs=tuple(known) if len(known) == len(self.temperatures) else None,
            routes=routes,
            parent=self.parent,
            link=self.link,
            tokenizer=self.tokenizer,
            template=self.template,
            problems=tuple(dict.fromkeys(self.problems)),
        )


def _joined(parts: Sequence[ExpertRoutes | None], length: int) -> ExpertRoutes | None:
    """Join routes up to the last token or the one before it; None if there are gaps."""
    present = [part for part in parts if part is not None and part.rows]
    if not present:
        return None
    first, end = present[0], present[-1].end
    for part, later in pairwise(present):
        same_form = (part.layers, part.topk, part.dtype) == (later.layers, later.topk, later.dtype)
        if part.end != later.start or not same_form:
            return None
    if end not in (length, length - 1):
        return None
    return replace(first, rows=end - first.start, data=b"".join(part.data for part in present))
