"""Requests: what a user wants, from the message that says it until the user goes on.

A request begins with the first message of a conversation, and with each message that moves on.
Answers, confirmations, thanks, corrections and questions belong to the request that is open: what
an agent asks lengthens a request, and never divides one. A request is worth one value, and a
session the mean over its requests by their size.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock_jobs.rewards.bucket import Bucket, TurnKey
from penstock_jobs.rewards.definition import together
from penstock_jobs.rewards.followups.follow_ups import (
    FollowUp,
    SessionTurn,
    SessionTurns,
    follow_ups_of,
    sessions_of,
    silences,
)
from penstock_jobs.rewards.followups.judge import DISSATISFIED, THRESHOLD, Judgement, Label, Message
from penstock_jobs.rewards.followups.labels import NEUTRAL, UNCLEAR, MessagePlace
from penstock_jobs.rewards.followups.local_judge import local_judge
from penstock_jobs.rewards.followups.request_kinds import Kind, request_kind
from penstock_jobs.rewards.followups.speech import SPEECH_WORD, speech_of
from penstock_jobs.rewards.rows import RewardRows, Standing, Target
from penstock_jobs.rewards.texts.trail import RequestSpan

_CODE = re.compile(r"```.*?(```|\Z)", re.DOTALL)
_ASKS = re.compile("[?？؟][\\s\"'”’»）)*_]*\\Z")  # noqa: RUF001 question marks of several scripts
#: After a question, a message of fewer words is an answer and begins no request.
_REQUEST_WORDS = 4
#: Fewer words, after which the agent only asks, are a greeting: what is wanted comes then.
_GREETING_WORDS = 3
#: A message that says so much of a request again asks for the same.
_SAME_SHARE = 0.7
#: Users who are less likely to be dissatisfied are surely pleased: small talk is not.
PLEASED = 0.1
_WORD = re.compile(r"[^\W\d_]\w*|\d\w+")
_WORD_MIN = 3
#: Only the beginning of a longer message counts: the rest is mostly pasted.
_CHARS_MAX = 4_000
#: Scripts without spaces between words.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_UNSPACED_RUN = re.compile(f"{_UNSPACED.pattern}+")
#: A request and its follow-ups are compared again and again.
_TEXTS_REMEMBERED = 4_096
#: A request of so many words has the size 1. Sizes grow with the square root of words.
_SIZE_WORDS = 10
_SIZE_MAX = 4.0


#: By horizon, or None.
Scores = dict[int | None, Standing]


class Remark(NamedTuple):
    """The opinion of a message on the work before it: as people labelled it, else as judged."""

    label: Label
    dissatisfied: float
    #: The agent had closed with a question: thanks and consent are an answer then.
    answers: bool

    @property
    def begins(self) -> bool:
        """Whether it begins a request."""
        return self.label == "moves_on" and self.dissatisfied < THRESHOLD

    @property
    def is_neutral(self) -> bool:
        """Whether it says nothing about the work."""
        answered = self.answers and self.label == "accepts"
        return self.dissatisfied < THRESHOLD and (answered or self.label in NEUTRAL)

    @property
    def praises(self) -> bool:
        return self.label == "accepts" and not self.answers and self.dissatisfied < PLEASED


@dataclass(eq=False)
class Request:
    """A request of the session with its opening message. Times are microseconds since 1970."""

    session_id: str
    #: From 1, in its conversation.
    number: int
    text: str
    started_us: int
    kind: Kind = "code"
    turns: list[SessionTurn] = field(default_factory=list)
    #: When the next request began.
    ended_us: int | None = None
    #: Numbers of the follow-ups that are about its work, and when they say what, in order.
    about: list[int] = field(default_factory=list)
    remarks: list[tuple[int, Remark]] = field(default_factory=list)
    praised_us: list[int] = field(default_factory=list)
    #: Turns that begin with an answer to the agent: what it asks delays the horizons.
    answers: list[SessionTurn] = field(default_factory=list)
    #: The user stopped the agent or the session, and said no more.
    stopped: bool = False
    #: A verifier or an environment judged its session.
    reported: bool = False

    @cached_property
    def size(self) -> float:
        return min(max(sqrt(count_words(self.text) / _SIZE_WORDS), 1.0), _SIZE_MAX)

    @property
    def acted(self) -> bool:
        return any(turn.acted for turn in self.turns)

    @property
    def edited(self) -> bool:
        return any(turn.paths for turn in self.turns)

    @property
    def answered(self) -> bool:
        return any(turn.agent_text for turn in self.turns)

    @property
    def asked_back(self) -> bool:
        return any(not turn.paths and asks(turn.agent_text) for turn in self.turns)

    @property
    def is_greeting(self) -> bool:
        return not self.edited and 0 < count_words(self.text) < _GREETING_WORDS

    @property
    def last_act(self) -> int:
        return max(turn.last_act for turn in self.turns)

    @property
    def span(self) -> RequestSpan:
        edited = (turn.last_edit for turn in self.turns)
        answered = (turn.last_act for turn in self.answers)
        last_us = max(*edited, *answered, 0)
        return RequestSpan(last_us, self.ended_us, tuple(self.praised_us))

    @cached_property
    def checkpoint(self) -> str | None:
        """Return the checkpoint that alone served it."""
        served = {turn.checkpoint for turn in self.turns if turn.acted}
        return served.pop() if len(served) == 1 else None

    def disliked(self, since_us: int = 0) -> list[float]:
        """Return the share of feedback that is negative, if there is any."""
        turns = [turn for turn in self.turns if turn.ts >= since_us]
        disliked = sum(turn.disliked for turn in turns)
        given = disliked + sum(turn.liked for turn in turns)
        return [disliked / given] if given else []

    @cached_property
    def dissatisfied(self) -> float | None:
        """Return the worst judgement of its work, from 0 to 1; None without any."""
        found = [remark.dissatisfied for _, remark in self.remarks if not remark.is_neutral]
        return max([*found, *self.disliked(), *([1.0] * self.stopped)], default=None)

    @cached_property
    def still_dissatisfied(self) -> float | None:
        """Return its last judgement: the agent may have mended what an earlier one was about.

        Only thanks mend what the agent did not work at again. Liking may be begged for."""
        if self.stopped:
            return 1.0
        judging = [(ts, remark) for ts, remark in self.remarks if not remark.is_neutral]
        since_us, last = judging[-1] if judging else (0, None)
        if any(disliked := self.disliked(since_us)):
            return disliked[0]
        mended_us = max([*self.praised_us, *(turn.last_edit for turn in self.turns)], default=0)
        said = [remark.dissatisfied for ts, remark in judging if ts >= mended_us]
        return max([*said, *([last.dissatisfied] if last else [])], default=None)


@dataclass(frozen=True, eq=False)
class Requests:
    """The requests of a bucket, and the request of each turn."""

    all: list[Request]
    of_turn: Mapping[TurnKey, Request]

    def rows(self, name: str, scores: Mapping["Request", Scores]) -> pa.Table:
        """Make rows of requests and of their sessions."""
        rows = RewardRows(name)
        of_sessions: dict[tuple[str, int | None], list[tuple[Standing, str | None]]] = {}
        for request in self.all:
            if (of_request := scores.get(request)) is None:
                continue
            session, size, checkpoint = request.session_id, request.size, request.checkpoint
            target: Target = ("request", str(request.number))
            for horizon_s, (state, value, reason, _, due_us) in of_request.items():
                score = Standing(state, value, reason, size, due_us)
                rows.add_standing(session, target, score, horizon_s, checkpoint)
                of_sessions.setdefault((session, horizon_s), []).append((score, checkpoint))
        for (session, horizon_s), parts in of_sessions.items():
            whole, alone = parts[0]
            if len(parts) > 1:
                size = sum(score.weight for score, _ in parts)
                whole = together([score for score, _ in parts])._replace(weight=size)
                alone = alone if len({checkpoint for _, checkpoint in parts}) == 1 else None
            rows.add_standing(session, ("session", session), whole, horizon_s, alone)
        return rows.table()

    def spans(self) -> dict[TurnKey, RequestSpan]:
        spans = {request: request.span for request in self.all}
        return {turn: spans[request] for turn, request in self.of_turn.items()}


def asks(text: str) -> bool:
    """Whether a text closes with a question, code aside."""
    said = _CODE.sub("", text) if "```" in text else text
    return _ASKS.search(said.rstrip()) is not None


def count_words(text: str) -> float:
    """Count the user's own words, without what is pasted."""
    said = speech_of(text).text
    if said.isascii():
        return len(SPEECH_WORD.findall(said))
    unspaced = len(_UNSPACED.findall(said))
    return len(SPEECH_WORD.findall(_UNSPACED.sub(" ", said))) + unspaced / 2


@lru_cache(_TEXTS_REMEMBERED)
def words_of(text: str) -> frozenset[str]:
    """Return words of three characters or more; of scripts without spaces, pairs of characters."""
    text = text[:_CHARS_MAX].lower()
    spaced = text if text.isascii() else _UNSPACED.sub(" ", text)
    words = {word for word in _WORD.findall(spaced) if len(word) >= _WORD_MIN}
    pairs = (one + other for run in _UNSPACED_RUN.findall(text) for one, other in pairwise(run))
    return frozenset(words.union(pairs))


def repeated_share(text: str, later: str) -> float:
    """Return the share of a text, by the length of its words, that another says again."""
    words = words_of(text)
    return sum(map(len, words & words_of(later))) / (sum(map(len, words)) or 1)


def requests_in(
    conversation: SessionTurns, remarks: Mapping[TurnKey, tuple[int, Remark]]
) -> list[Request]:
    """Divide a conversation. `remarks` are numbered, by the turn that begins with the message.

    What agents did before anybody spoke is a request without words."""
    found: list[Request] = []
    worked: Request | None = None
    cleared = False
    for turn in conversation.turns:
        number, remark = remarks.get(turn.key, (0, None))
        # A request at which nobody has worked goes on.
        begins = remark is not None and worked is found[-1] and _begins(worked, turn, remark)
        if cleared and remark is not None:
            begins, remark = worked is found[-1], remark._replace(label="moves_on")
        if begins and remark is not None and found[-1].is_greeting and remark.answers:
            found[-1].text, begins = turn.text or "", False
        elif remark is not None and worked is not None:
            worked.about.append(number)
            worked.remarks.append((turn.ts, remark))
            if remark.answers:
                worked.answers.append(turn)
            if remark.praises:
                worked.praised_us.append(turn.ts)
        if begins:
            found[-1].ended_us = turn.ts
        if begins or not found:
            found.append(Request(turn.session_id, len(found) + 1, "", turn.ts))
        if worked is not found[-1]:
            found[-1].text = found[-1].text or turn.text or ""
        found[-1].turns.append(turn)
        if turn.acted:
            worked = found[-1]
        cleared = turn.cleared or (cleared and turn.text is None)
    return found


def _begins(open_: Request, turn: SessionTurn, remark: Remark) -> bool:
    return remark.begins and repeated_share(open_.text, turn.text or "") < _SAME_SHARE


def remarks_of(bucket: Bucket) -> list[Remark]:
    """Return what each follow-up says: a person's label, a model's where the judge is unsure."""
    judged = zip(follow_ups_of(bucket), judgements_of(bucket), strict=True)
    return bucket.once("remarks", lambda: [_remark(bucket, *each) for each in judged])


def judgements_of(bucket: Bucket) -> list[Judgement]:
    messages = [follow_up.message for follow_up in follow_ups_of(bucket)]
    return bucket.once("judgements", lambda: local_judge().judge(messages))


def _remark(bucket: Bucket, follow_up: FollowUp, judged: Judgement) -> Remark:
    place, message = MessagePlace(follow_up.session_id, follow_up.turn), follow_up.message
    given = bucket.labels.of_message(place, message)
    if given is not None and given.is_model and judged.confidence >= THRESHOLD:
        given = None
    if given is not None and given.label is not None and given.label != UNCLEAR:
        return remark_of(message, given.label, float(given.label in DISSATISFIED))
    return judged_remark(message, judged)


def judged_remark(message: Message, judged: Judgement) -> Remark:
    remark = remark_of(message, judged.label, judged.dissatisfied)
    if remark.answers and remark.begins and count_words(message.text) < _REQUEST_WORDS:
        return remark._replace(label="accepts")
    return remark


def remark_of(message: Message, label: Label, dissatisfied: float) -> Remark:
    return Remark(label, dissatisfied, asks(message.agent))


@dataclass(frozen=True)
class RawJudgeParameters:
    """`judge` is the version of the local judge, a part of what the definition computes."""

    judge: str = field(default_factory=lambda: local_judge().version)

    def __post_init__(self) -> None:
        if self.judge != (known := local_judge().version):
            raise ValueError(f"the local judge has version {known}, not {self.judge}")


def requests_of(bucket: Bucket) -> Requests:
    return bucket.once("requests", lambda: _found(bucket))


def _found(bucket: Bucket) -> Requests:
    followed = enumerate(zip(follow_ups_of(bucket), remarks_of(bucket), strict=True))
    remarks = {(each.session_id, each.turn): (n, remark) for n, (each, remark) in followed}
    conversations = sessions_of(bucket)
    of_chain: dict[str, list[Request]] = {}
    found: list[Request] = []
    of_turn: dict[TurnKey, Request] = {}
    # What a subagent does belongs to the request that was open in its chain.
    for talk in sorted(conversations, key=lambda talk: bucket.is_subagent(talk.session_id)):
        own = of_chain.get(bucket.chain_of(talk.session_id))
        if own is None or not bucket.is_subagent(talk.session_id):
            own = requests_in(talk, remarks)
            of_chain[bucket.chain_of(talk.session_id)] = own
            found += own
            of_turn |= {turn.key: request for request in own for turn in request.turns}
            continue
        for turn in talk.turns:
            at = bisect_right(own, turn.ts, key=lambda request: request.started_us)
            request = own[max(at - 1, 0)]
            request.turns.append(turn)
            of_turn[turn.key] = request
    reports = bucket.events.filter(pc.equal(bucket.events["type"], "x_reward"))
    reported = set(reports["session_id"].to_pylist())
    for request, kind in zip(found, request_kind([each.text for each in found]), strict=True):
        request.kind = kind
        request.reported = request.session_id in reported
    for last, evidence in silences(conversations):
        if evidence and not bucket.is_subagent(last[0]):
            of_turn[last].stopped = True
    return Requests(found, of_turn)
