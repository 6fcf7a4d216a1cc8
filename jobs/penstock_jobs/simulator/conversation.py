"""A session as it happens: what the user wants, what the agent does, and what becomes of it."""

from penstock_jobs.simulator import policy as ids
from penstock_jobs.simulator.agent import OBSERVED, Attempt, Tricks, Workbench, middle
from penstock_jobs.simulator.files import (
    CODE_FILES,
    FileChange,
    WorkingFile,
    file_listing,
    names_of,
    spoken,
)
from penstock_jobs.simulator.grammar import Dice, Names
from penstock_jobs.simulator.journal import ModelCalls, Payload, SimulatedSession
from penstock_jobs.simulator.policy import Policy, Style, Task, style_id
from penstock_jobs.simulator.truth import RequestTruth, Work
from penstock_jobs.simulator.users import Reaction, User, Words, seconds_until_acting

_TURNS_MAX = 40
#: More questions than this nobody answers.
_ANSWERS_MAX = 20
#: Lines of a task of ordinary size, and of a large one.
_ORDINARY_LINES, _LARGE_LINES = 6, 8
_QUESTION = "Before I change anything: should {} stay as it is for its other callers?"
_QUESTION_AFTER = "I could go on with {} now. Do you want me to?"


class SimulatedConversation:
    """Draws depend on the session's number, the request and the try, not on the policy, so that all
    policies live through the same wishes, users and luck."""

    def __init__(
        self,
        key: str,
        journal: SimulatedSession,
        policy: Policy,
        user: User,
        files: list[WorkingFile],
        *,
        tricks: Tricks,
    ) -> None:
        self.key, self.journal, self.policy, self.user = key, journal, policy, user
        self.files, self.world, self.truth = files, user.world, journal.truth
        self.model = ModelCalls(key, journal, policy)
        self.bench = Workbench(key, journal, user, tricks)
        self._works: list[Work] = []
        self._heard = self._stopped = self._left = False
        self._tries = self._worked = 0
        #: The calls of work that the user has not spoken of yet.
        self._worked_in: list[str] = []
        self.names = self._names_of(self._dice("first"), files[0])

    def run(self, start: Payload) -> None:
        self.journal.record("session_start", start)
        words: Words | None = None
        requests = self._dice("length").skewed(1, 4)
        for number in range(1, requests + 1):
            self.journal.wait(self._dice("pause").skewed(5, 300))
            self._ask_for(number, words)
            words = self._serve()
            if self._stopped or self._left:
                break
        self.journal.wait(self._dice("end").skewed(3, 600))
        if words and not self._stopped:
            self.model.hear(words)
            self._heard = True
        if not self._left:
            reason = "user_stop" if self._stopped else "completed"
            self.journal.record("session_end", {"reason": reason})
        self.journal.finish()
        self._conclude()

    def run_errand(self, start: Payload) -> None:
        self.journal.record("session_start", start)
        self.model.hear(self.user.say("request_code", self._dice("errand"), self.names))
        self._look()
        self.model.close(self.names)
        self.journal.record("session_end", {"reason": "completed"})

    def _ask_for(self, number: int, words: Words | None) -> None:
        """Let the user want something, after what they still had to say of the last."""
        self._tries = self._worked = 0
        self._worked_in.clear()
        dice, say = Dice(f"wish:{self.key}:{number}"), self.user.say
        kind = self.world.kind(dice)
        task: Task = "risky" if dice.chance(ids.RISKY_SHARE) else "clear"
        wanted = dice.between(3, 12)
        files = {"tests": self.files[CODE_FILES:-1], "docs": self.files[-1:]}
        file = dice.pick(files.get(kind, self.files[:CODE_FILES]))
        self.names = self._names_of(dice, file)
        self._request = RequestTruth(number, kind, task, round(wanted / _ORDINARY_LINES, 2))
        self._work = Work(kind, file, wanted)
        if kind == "deletion":
            at = dice.between(2, max(2, len(file.lines) - 2 * wanted))
            self._work.doomed = file.lines[at : at + wanted]
            self._work.wanted = len(self._work.doomed)
        self.truth.requests.append(self._request)
        self._works.append(self._work)
        self._wish = say(f"request_{kind}", dice, self.names)
        details = [say("detail", dice, self.names) for _ in range((wanted - 2) // 3)]
        in_pieces = dice.chance(self.world.in_pieces)
        if words and dice.chance(0.5):
            self.model.hear(words)
            self.journal.wait(dice.between(2, 40))
            words = None
        self.model.compact(self.names)
        wish = self._wish.text
        if not in_pieces:
            wish = " ".join([wish, *(one.text for one in details)])
        self.model.hear(words.before(wish) if words else Words(wish, "moves_on"))
        for one in details if in_pieces else ():
            self.journal.wait(dice.between(2, 20))
            self.model.hear(one)
        if number > 1:
            self._heard = True
            before = self.truth.requests[-2]
            before.dissatisfied = before.dissatisfied or False
        if dice.chance(0.5):
            self._look()

    def _serve(self) -> Words | None:
        """Work until the user lets go of the request. Returns what they still have to say of it."""
        request, names = self._request, self.names
        for turn in range(_TURNS_MAX):
            style = self.policy.sample(self._dice(f"style {turn}"), request.task)
            request.styles.append(style.name)
            if self._asks_first(style):
                if self._answers():
                    continue
                return self._give_up()
            self._act(style)
            self._worked += 1
            if self._worked < style.parts:
                self._go_on_with("the next part")
                continue
            if style.asks_when != "bad" or self._work.right() < 0.35:
                for number in range(style.asks_after):
                    if self._dice(f"after {number}").chance(0.8):
                        self._go_on_with(self._dice(f"next {number}").pick(names["func"]))
                        self.model.close(names, style.says)
            self._chat()
            words, goes_on = self._react(style)
            if not goes_on or words is None:
                return words
            self.model.hear(words)
            self._heard = True
        return None

    def _asks_first(self, style: Style) -> bool:
        request = self._request
        due = {
            "always": True,
            "risky": request.task == "risky",
            "large": self._work.wanted >= _LARGE_LINES,
            "complaint": self._tries > 0,
            "bad": False,
        }[style.asks_when]
        if not due or request.asked >= style.asks:
            return False
        request.asked += 1
        word = self._dice("word").pick(self.names["plain"])
        self.model.say(style_id(style), ids.TASK_IDS[request.task], _QUESTION.format(word))
        return True

    def _answers(self) -> bool:
        """Whether the user answers the agent's question."""
        asked = self._request.asked
        dice = self._dice(f"patience {asked}")
        self.journal.wait(dice.skewed(5, 200))
        if dice.chance(0.02 * (1 - self.world.patience) * asked) or asked > _ANSWERS_MAX:
            return False
        if self._request.task == "clear" and dice.chance(self.world.annoyed):
            self.model.hear(self._judge("complain", dissatisfied=True, dice=dice))
        else:
            self.model.hear(self.user.say("answer", dice, self.names))
        return True

    def _give_up(self) -> Words | None:
        dice = self._dice("give up")
        self._finish_by_hand(5)
        act = "give_up" if dice.chance(0.5) else "complain"
        if self.user.silent:
            return None
        return self._judge(act, dissatisfied=act == "complain", dice=dice)

    def _go_on_with(self, what: str) -> None:
        """Let the agent ask whether to go on, and the user answer."""
        dice = self._dice(f"exchange {self._request.asked}")
        self.model.say(ids.ANSWER, ids.CLOSING, _QUESTION_AFTER.format(what))
        self._request.asked += 1
        self.journal.wait(dice.skewed(5, 200))
        self.model.hear(self.user.say("answer", dice, self.names))

    def _chat(self) -> None:
        dice = self._dice("chat")
        if dice.chance(self.world.small_talk):
            self.journal.wait(dice.skewed(5, 200))
            act = "ask" if dice.chance(0.3) else "small_talk"
            self.model.hear(self.user.say(act, dice, self.names))
            self.model.close(self.names)

    def _react(self, style: Style) -> tuple[Words | None, bool]:
        """Let the user react. Returns what they say, and whether the agent shall go on with it."""
        request, work, dice = self._request, self._work, self._dice("react")
        wait_s, walks = dice.skewed(15, 900), dice.chance(self.world.walks_away)
        self._tries += 1
        right, tried, wrong = work.right(), work.tried(), work.wrong()
        unread = style.comments / (1 + style.comments)
        reaction = self.user.react(dice, right, tried, wrong, unread=unread, tries=self._tries)
        request.missing = round(1 - tried, 4)
        if walks:
            self._left = True
            return None, False
        if reaction.stops:
            self._stopped = request.dissatisfied = True
            self.journal.wait(dice.between(2, 20))
            self.journal.record("interrupt", {"reason": "user_stop"})
            for change in reversed(self.bench.changes):
                change.revert()
            for truth in self.journal.truth.edits:
                truth.reaction = "reverted"
            return None, False
        self._use_hands(reaction, wait_s)
        self.journal.wait(wait_s)
        if self._dice("thumb").chance(style.thumbs):
            thumb = "down" if reaction.dissatisfied else "up"
            self.journal.record("feedback", {"kind": "thumbs", "value": thumb})
            self._heard = True
            request.dissatisfied = request.dissatisfied or reaction.dissatisfied
        if self._dice("glance").chance(self.world.glances):
            self.bench.observe(work.file)
        if reaction.says is None:
            return None, False
        if reaction.says == "refine":
            work.wanted += 0 if work.doomed else self._dice("more").between(1, 3)
        words = self._judge(reaction.says, dissatisfied=reaction.dissatisfied, dice=dice)
        return words, reaction.again

    def _judge(self, act: str, *, dissatisfied: bool, dice: Dice) -> Words:
        self._request.said.append(act)
        self._request.dissatisfied = self._request.dissatisfied or dissatisfied
        about, self._worked_in = tuple(self._worked_in), []
        words = self.user.say(act, dice, self.names)._replace(about=about)
        return words.before(self._wish.text) if act == "incomplete" and dice.chance(0.3) else words

    def _use_hands(self, reaction: Reaction, wait_s: int) -> None:
        work, dice = self._work, self._dice("hands")
        soon_s, later_s = wait_s * (0.2 + 0.7 * dice.random()), seconds_until_acting(dice)
        after_s = later_s if reaction.says is None else soon_s
        own = Dice(f"deed:{self.key}:{self._request.request}:{self._tries}")
        if reaction.deed != "kept":
            self.journal.plan(after_s, lambda: self._take(work, reaction, own))
        if reaction.finishes:
            self._finish_by_hand(after_s + 5)
        if not reaction.dissatisfied and dice.chance(self.world.next_by_hand):
            count, after_s = dice.between(6, 12), wait_s + dice.between(10, 400)
            self.journal.plan(after_s, lambda: work.write_below(own, count, 0.8))

    def _take(self, work: Work, reaction: Reaction, dice: Dice) -> None:
        """Let the user reject work, or mend it."""
        if self._stopped or not (work.changes or work.junk):
            return
        work.take(reaction.deed, dice)
        own = {change.edit_id for change in work.changes}
        for edit in self.truth.edits:
            edit.reaction = reaction.deed if edit.edit_id in own else edit.reaction
        if reaction.deed == "reverted" and dice.chance(0.4):
            target = (work.changes or work.junk)[-1].edit_id
            self.journal.record("feedback", {"kind": "undo", "target": target})
            self._heard = True

    def _finish_by_hand(self, after_s: float) -> None:
        work, request = self._work, self._request
        dice = Dice(f"hand:{self.key}:{request.request}")

        def finish() -> None:
            if not self._stopped and work.tried() < 1:
                request.by_hand = True
                work.finish(dice)

        if work.is_edited:
            self.journal.plan(after_s, finish)

    def _act(self, style: Style) -> None:
        """Let the agent work in its style, or use its trick, and close its turn."""
        dice, request, work = self._dice("work"), self._request, self._work
        self.journal.wait(dice.skewed(2, 30))
        quality = style.mean_quality(request.task)
        if self._tries and style.second is not None:
            quality = style.second
        quality = min(max(quality + (dice.random() + dice.random() - 1) * 0.2, 0.0), 1.0)
        sampled = style_id(style), ids.TASK_IDS[request.task]
        if dice.chance(style.broken_share):
            request.broken = True
            wrong = {"file": "", "changes": "all of it"}
            call = self.model.call(self.names, "edit_file", wrong, *sampled)
            self._worked_in.append(self.model.last)
            output = spoken("invalid_arguments", dice, self.names)
            self.model.result(call, "edit_file", output, "invalid_arguments")
        elif style.instead:
            made = len(self.bench.changes)
            self._trick(style.instead)
            work.junk += self.bench.changes[made:]
        elif request.kind == "question":
            work.answer = quality * style.done
            self.model.say(*sampled, self.model.answer(self.names, style.says))
            self._worked_in.append(self.model.last)
            return
        elif request.kind == "terminal":
            work.answer = quality * style.done
            self.run_command(dice, *sampled)
        else:
            self._edit(style, quality, sampled)
            if style.beside:
                self._trick(style.beside)
                work.safe = style.safe
        self.model.close(self.names, style.says)

    def _edit(self, style: Style, quality: float, sampled: tuple[int, int]) -> None:
        work, request = self._work, self._request
        dice, share = self._dice("edit"), style.done * min((self._worked + 1) / style.parts, 1.0)
        attempt = Attempt(style, quality, share, dice, self.names)
        change, before = self.bench.edit(work, attempt)
        if not (change.wrote or change.took):
            return
        arguments = {"path": change.file.path, "edit_id": change.edit_id}
        call = self.model.call(self.names, "edit_file", arguments, *sampled)
        self._worked_in.append(self.model.last)
        counts = f"+{len(change.wrote)} -{len(change.took)}"
        self.model.result(call, "edit_file", f"{change.file.path}: {counts}")
        work.changes.append(change)
        made = request.request, style.name, round(quality, 4)
        self.bench.record(change, before, made, call)
        self.model.edited_last = True

    def _trick(self, name: str) -> None:
        dice, file = self._dice("trick"), self._work.file
        standing = [line for line in self._work.standing() if line in set(file.lines)]
        at = file.lines.index(standing[0]) if standing else middle(dice, file)
        self.bench.tricks[name](self, dice, file, at)

    def record(self, change: FileChange, before: str) -> None:
        """Record an edit that is a trick."""
        self.bench.record(change, before, (self._request.request, "trick", 1.0))
        self.model.edited_last = True

    def run_command(self, dice: Dice, token: int = ids.LOOK, prompt_end: int = ids.LOOKING) -> None:
        command = {"command": f"make {dice.pick(self.names['plain'])}"}
        call = self.model.call(self.names, "bash", command, token, prompt_end)
        self._worked_in.append(self.model.last)
        self.journal.wait(dice.skewed(1, 20))
        self.model.result(call, "bash", spoken("finding", dice, self.names))

    def _look(self) -> None:
        dice = self._dice("look")
        file = dice.pick(self.files)
        call = self.model.call(self.names, "read_file", {"path": file.path})
        self.journal.wait(dice.skewed(1, 4))
        self.model.result(call, "read_file", file_listing(dice, file.source)[:1_500])

    def _conclude(self) -> None:
        truth, calls = self.truth, self.model.understood
        for request, work in zip(truth.requests, self._works, strict=True):
            request.worth = round(work.right(), 4)
        sizes = sum(one.size for one in truth.requests)
        truth.worth = round(sum(one.worth * one.size for one in truth.requests) / sizes, 4)
        if truth.consent == "no_train":
            truth.outcome, truth.reason = "excluded", "no_train"
        elif calls and (not any(calls) or not (calls[-1] or self.model.edited_last)):
            truth.outcome, truth.reason = "negative_by_rule", "invalid_tool_calls"
        elif self._stopped:
            truth.outcome, truth.reason = "negative_by_rule", "abandoned"
        elif not (self._heard or any(min(OBSERVED) in edit.looked for edit in truth.edits)):
            truth.outcome = "censored"

    def _dice(self, purpose: str) -> Dice:
        number = len(self.truth.requests)
        return Dice(f"{purpose}:{self.key}:{number}:{self._tries}")

    def _names_of(self, dice: Dice, file: WorkingFile) -> Names:
        return names_of(dice, file.source, [other.source for other in self.files])
