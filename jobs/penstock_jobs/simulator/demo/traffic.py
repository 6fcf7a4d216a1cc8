"""Users of the demo: they ask a served model for sums, read its answers, and react to them."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from statistics import fmean

import msgspec

from penstock.backends.http import AnswerUnusable
from penstock.backends.http.client import ServiceClient
from penstock.ingest.recorder.recorder import Recorder
from penstock.ingest.recorder.session import RecordedSession
from penstock_jobs.simulator.demo.story import UserReaction
from penstock_jobs.simulator.demo.sums import (
    FILE,
    NAMES,
    TRAFFIC,
    Sum,
    answered,
    is_question,
    is_right,
    question,
)
from penstock_jobs.simulator.grammar import Dice
from penstock_jobs.simulator.users import PLAIN, User, Words

#: Users who work at the same time.
_AT_ONCE = 96
_REQUESTS_MAX, _TRIES_MAX, _QUESTIONS_MAX = 3, 3, 3
#: Characters of a conversation beyond which the agent begins a new one.
_CONVERSATION_CHARS_MAX = 240
_THUMBS = 0.12
#: Somebody looks at the file this long after the last edit: the horizon of the rewards, and some.
_LOOK_SECONDS = 1.1


@dataclass
class SumTruth:
    """The truth about a request.

    `kept` tells for each edit whether its answer stayed, or None if the agent itself replaced it.
    `dissatisfied` is None if the user said nothing about the work."""

    right: bool = False
    asked: int = 0
    kept: list[bool | None] = field(default_factory=list)
    dissatisfied: bool | None = None


@dataclass
class SumSession:
    """The truth about a session."""

    session_id: str
    checkpoint: str
    requests: list[SumTruth] = field(default_factory=list)
    #: All messages of the user.
    messages: list[Words] = field(default_factory=list)


class ServedModel(msgspec.Struct, frozen=True):
    """A checkpoint with the address of the proxy that records its calls."""

    checkpoint: str
    url: str


class Traffic(msgspec.Struct, frozen=True):
    """Sessions that began in a period."""

    sessions: list[SumSession]
    from_us: int
    until_us: int

    def of(self, checkpoint: str) -> list[SumSession]:
        return [one for one in self.sessions if one.checkpoint == checkpoint]

    def reaction(self, checkpoint: str) -> UserReaction:
        requests = [each for one in self.of(checkpoint) for each in one.requests]
        kept = [one for each in requests for one in each.kept if one is not None]
        said = [each.dissatisfied for each in requests if each.dissatisfied is not None]
        return UserReaction(_share(kept), _share(said))

    def right(self, checkpoint: str) -> float | None:
        return _share([each.right for one in self.of(checkpoint) for each in one.requests])


def play_sessions(
    name: str, count: int, serve: Callable[[str], ServedModel], recorder: Recorder, project: str
) -> list[SumSession]:
    """Play sessions to their ends. `serve` says which model a user gets."""

    def play(number: int) -> SumSession:
        dice = Dice(f"{name}:{number}")
        user = User.pick(dice, PLAIN)
        model = serve(user.name)
        truth = SumSession(f"{name}-{number:04}", model.checkpoint)
        who = {"checkpoint": model.checkpoint, "user": user.name, "project": project}
        recorded = recorder.session(truth.session_id, **who)
        with closing(ServiceClient(model.url)) as client:
            SumConversation(client, recorded, truth, user, dice, project).run()
        return truth

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(play, range(count)))


@dataclass
class SumConversation:
    """A session: a user with a file of sums, and an agent that asks the model for each of them."""

    client: ServiceClient
    recorded: RecordedSession
    truth: SumSession
    user: User
    dice: Dice
    project: str
    _messages: list[dict[str, str]] = field(default_factory=list)
    _lines: list[str] = field(default_factory=list)

    def run(self) -> None:
        dice = self.dice
        sums = [dice.pick(TRAFFIC) for _ in range(dice.skewed(1, _REQUESTS_MAX))]
        self._lines = [question(one) for one in sums]
        words: Words | None = None
        for at, one in enumerate(sums):
            wish = question(one)
            if self.truth.requests:
                # Whoever goes on without a word is content.
                last = self.truth.requests[-1]
                last.dissatisfied = last.dissatisfied or False
            self.truth.requests.append(SumTruth())
            words = self._serve(at, one, words.before(wish) if words else Words(wish, "moves_on"))
        time.sleep(_LOOK_SECONDS)
        self.recorded.file_observed(FILE, self._text())
        if words is not None:
            self.truth.messages.append(words)
            self.recorded.user_message(words.text)
        self.recorded.end()

    def _serve(self, at: int, one: Sum, words: Words) -> Words | None:
        """Let the agent work on a sum until the user lets go of it. Returns their last words."""
        request, tries = self.truth.requests[-1], 0
        for _ in range(_TRIES_MAX + _QUESTIONS_MAX):
            call_id, answer = self._call(words)
            if is_question(answer):
                request.asked += 1
                reply = self._answer_to_question(request)
                if reply is None:
                    return self._give_up(at, one, request)
                words = reply
                continue
            self._edit(at, answered(one, answer), call_id)
            request.right = is_right(one, answer)
            tries += 1
            said, again = self._react(at, one, request, tries)
            if said is None or not again:
                return said
            words = Words(f"{said.text} {question(one)}", said.label)
        return None

    def _call(self, words: Words) -> tuple[str, str]:
        """Send what the user says to the model. Returns the id of the call, and its text."""
        self.truth.messages.append(words)
        self._messages.append({"role": "user", "content": words.text})
        if sum(len(each["content"]) for each in self._messages) > _CONVERSATION_CHARS_MAX:
            self._messages = self._messages[-1:]
        asked = {"model": "serving", "messages": self._messages, "seed": self.dice.getrandbits(31)}
        body = msgspec.json.encode(asked)
        reply = self.client.post(
            f"/s/{self.truth.session_id}/v1/chat/completions",
            body,
            **{
                "Content-Type": "application/json",
                "X-Penstock-Consent": "train",
                "X-Penstock-User": self.user.name,
                "X-Penstock-Project": self.project,
            },
        )
        if reply.status != HTTPStatus.OK:
            why = reply.body[:200]
            raise AnswerUnusable(url=self.client.url, status=reply.status, why=why)
        document = reply.json()
        text: str = document["choices"][0]["message"]["content"]
        self._messages.append({"role": "assistant", "content": text})
        return document["id"], text

    def _edit(self, at: int, line: str, call_id: str) -> None:
        before, kept = self._text(), self.truth.requests[-1].kept
        if self._lines[at] == line:
            return
        self._lines[at] = line
        self.recorded.edit(FILE, before=before, after=self._text(), call_id=call_id)
        if kept and kept[-1]:
            kept[-1] = None
        kept.append(True)

    def _react(self, at: int, one: Sum, request: SumTruth, tries: int) -> tuple[Words | None, bool]:
        """Let the user keep the answer, undo it or write the right one, and speak."""
        dice = self.dice
        right = float(request.right)
        reaction = self.user.react(dice, right, 1.0, 1 - right, unread=0.0, tries=tries)
        if reaction.deed != "kept":
            by_hand = reaction.deed == "fixed" or reaction.finishes
            self._lines[at] = f"# {sum(one)}, by hand" if by_hand else question(one)
            request.kept[-1] = False
        if dice.chance(_THUMBS):
            thumb = "down" if reaction.dissatisfied else "up"
            self.recorded.event("feedback", kind="thumbs", value=thumb)
            request.dissatisfied = request.dissatisfied or reaction.dissatisfied
        if reaction.says is None:
            return None, False
        # There is nothing more to a sum than its answer.
        act = "accept" if reaction.says == "refine" else reaction.says
        request.dissatisfied = request.dissatisfied or reaction.dissatisfied
        words = self.user.say(act, dice, NAMES)
        return words, reaction.again and reaction.dissatisfied and tries < _TRIES_MAX

    def _answer_to_question(self, request: SumTruth) -> Words | None:
        """Let the user answer the agent's question. None if they have had enough."""
        world, dice = self.user.world, self.dice
        if request.asked > _QUESTIONS_MAX or dice.chance(0.02 * request.asked):
            return None
        if dice.chance(world.annoyed):
            request.dissatisfied = True
            return self.user.say("complain", dice, NAMES)
        return self.user.say("answer", dice, NAMES)

    def _give_up(self, at: int, one: Sum, request: SumTruth) -> Words | None:
        self._lines[at] = f"# {sum(one)}, by hand"
        if self.user.silent:
            return None
        complains = self.dice.chance(0.5)
        request.dissatisfied = request.dissatisfied or complains
        return self.user.say("complain" if complains else "give_up", self.dice, NAMES)

    def _text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)


def _share(hits: list[bool]) -> float | None:
    return fmean(hits) if hits else None
