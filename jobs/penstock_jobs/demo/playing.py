"""Plays the story: users work, and a cycle of the loop makes of it what it can."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from penstock.errors import AnswerUnusable
from penstock.events.tenants import TENANT_DEFAULT
from penstock.execution.opening import open_executor
from penstock.lake.lake import Lake
from penstock.registry import channels
from penstock.registry.assigning import assign
from penstock.registry.checkpoints import register
from penstock.registry.promotion import Promotion, promote, release
from penstock.simulation.policy import policy_of, read_policy
from penstock.simulation.production import Checkpoint
from penstock.testing.server import Server
from penstock_jobs.benchmarks.running import register_suite
from penstock_jobs.benchmarks.suite import read_suite
from penstock_jobs.canary.stepping import gate
from penstock_jobs.demo.measuring import known, measured, scores
from penstock_jobs.demo.place import Place
from penstock_jobs.demo.story import EPILOGUE, LEARN, Act, Chapter, Ending, Measured
from penstock_jobs.demo.traffic import Traffic, Worked
from penstock_jobs.loop.keeping import Cycle
from penstock_jobs.loop.loopfile import LoopFile, load_loop
from penstock_jobs.loop.running import Runner
from penstock_jobs.rewards import running as rewards

CHANNEL = "production"
FIRST = "demo-0000"
_ACTOR = "demo"
_SECOND_US = 1_000_000
_DIGEST = re.compile(r"(sha256:[0-9a-f]{8})[0-9a-f]{56}")
#: It has seen all there is to see of each style, and prefers none of the good ones.
_WEAK = policy_of(
    1, careful=0.1, plain=0.27, hasty=0.38, ask=0.12, comments=0.03, tiny=0.05, broken=0.05
)


@dataclass(frozen=True, kw_only=True)
class Player:
    """`tell` takes a line for the person who watches."""

    lake: Lake
    server: Server
    place: Place
    seed: int
    sessions: int
    tell: Callable[[str], None]
    _tried: list[Worked] = field(default_factory=list)

    def begin(self) -> None:
        """A first checkpoint, promoted by hand: there is no other to compare it with. And the
        suite, so that what it measures is left out of what is trained on."""
        self._register_suites(load_loop(self.place.loops / LEARN))
        weights = self.place.models / f"{FIRST}.json"
        weights.write_bytes(_WEAK.to_json())
        database = self.lake.database
        register(
            database, self.lake.settings, tenant=TENANT_DEFAULT, name=FIRST,
            uri=weights.as_uri(), digest=None, actor=_ACTOR,
        )  # fmt: skip
        wanted = Promotion(
            tenant=TENANT_DEFAULT,
            channel=CHANNEL,
            checkpoint=FIRST,
            reason="what serves before there is a gate",
            actor=_ACTOR,
            override=True,
        )
        promote(database, wanted, gate(database, TENANT_DEFAULT, True))

    def play(self, acts: Sequence[Act], *, go_on: Callable[[], bool]) -> Iterator[Chapter]:
        """A chapter for each act, as it ends; `go_on` is asked between two. Raises
        PenstockError."""
        for number, act in enumerate(acts, 1):
            if number > 1 and not go_on():
                return
            self.tell(f"\nCycle {number} of {len(acts)}. {act.title}\n   {act.told}")
            yield self._chapter(number, act)

    def end(self) -> Ending:
        self.tell(f"\n{EPILOGUE}")
        serving = self._serving()
        worked = self._work("ending", [serving])
        return Ending(serving.name, *self._compare(worked, serving.name))

    def _register_suites(self, loop: LoopFile) -> None:
        most = self.lake.settings.benchmark_task_bytes_max
        for one in loop.bench:
            register_suite(self.lake.database, TENANT_DEFAULT, read_suite(one.folder), most)

    # An act

    def _chapter(self, number: int, act: Act) -> Chapter:
        serving = self._serving()
        worked = self._work(f"act-{number}", [serving])
        found, truth = self._compare(worked, serving.name)
        cycle = self._cycle(load_loop(self.place.loops / act.loop))
        self._release()
        by_name = scores(self.lake)
        return Chapter(
            number=number,
            act=act,
            parent=serving.name,
            sessions=len(worked.truths),
            events=worked.events,
            measured=found,
            known=truth,
            checkpoint=cycle.checkpoint,
            score=by_name.get(cycle.checkpoint or ""),
            score_before=by_name.get(serving.name),
            verdict=_verdict(cycle),
            outcome=cycle.outcome or "open",
            why=cycle.why,
            stages=tuple(_stages(cycle)),
        )

    def _cycle(self, loop: LoopFile) -> Cycle:
        runner = Runner(
            lake=self.lake,
            loop=loop,
            tenant=TENANT_DEFAULT,
            wait=self._wait,
            tell=self._tell_of_cycle,
        )
        self._tried.clear()
        return runner.run_once()

    def _wait(self, seconds: float) -> bool:
        """While a canary is tried, users come to it; all other waits are short."""
        state = channels.state(self.lake.database, TENANT_DEFAULT, CHANNEL)
        if state.canary is None:
            time.sleep(seconds)
            return False
        document = self._get(f"channels/{CHANNEL}")
        both = [self._checkpoint(name) for name in (document["checkpoint"], document["canary"])]
        by_name = {one.name: one for one in both}

        def serve(user: str) -> Checkpoint:
            return by_name[assign(document, user).checkpoint]

        worked = self._work(f"canary-{len(self._tried)}", both, serve)
        self._tried.append(worked)
        for one in both:
            self._compare(worked, one.name)
        return False

    def _tell_of_cycle(self, text: str) -> None:
        """What a runner says, on lines of one shape: which stage, and what came of it."""
        who, _, said = text.partition(": ")
        stage, done, told = said.partition(" is done: ")
        if done:
            self._tell(stage, told)
        elif who.startswith("cycle") and " " in said:  # how it ends, or what goes wrong
            self._tell("", said)

    def _tell(self, what: str, told: str) -> None:
        short = _DIGEST.sub(r"\1…", told)
        self.tell(f"   {what:<11}{short}")

    def _release(self) -> None:
        state = channels.state(self.lake.database, TENANT_DEFAULT, CHANNEL)
        if state.pinned:
            release(
                self.lake.database, tenant=TENANT_DEFAULT, channel=CHANNEL,
                reason="the trainer is mended", actor=_ACTOR,
            )  # fmt: skip

    # Production

    def _work(
        self,
        name: str,
        checkpoints: Sequence[Checkpoint],
        serve: Callable[[str], Checkpoint] | None = None,
    ) -> Worked:
        traffic = Traffic(self.lake, self.server.url, self.server.key, self.sessions)
        return traffic.work(f"{self.seed}-{name}", checkpoints, serve)

    def _compare(self, worked: Worked, checkpoint: str) -> tuple[Measured, Measured]:
        definition = load_loop(self.place.loops / LEARN).load_definition()
        with open_executor(self.lake.settings) as executor:
            rewards.run(self.lake, executor, rewards.Work(definition))
        found = measured(self.lake, definition.version, checkpoint, worked.from_us, worked.until_us)
        truth = known(worked.truths, checkpoint)
        served = sum(one.checkpoint == checkpoint for one in worked.truths)
        self._tell(
            "production",
            f"{served} sessions of {checkpoint}: {percent(found.kept)} of its edits were kept"
            f" (in truth {percent(truth.kept)}), {percent(found.dissatisfied)} of its turns left"
            f" the user dissatisfied ({percent(truth.dissatisfied)})",
        )
        return found, truth

    # What serves

    def _serving(self) -> Checkpoint:
        return self._checkpoint(self._get(f"channels/{CHANNEL}")["checkpoint"])

    def _checkpoint(self, name: str) -> Checkpoint:
        uri = str(self._get(f"checkpoints/{quote(name)}")["uri"])
        return Checkpoint(name, read_policy(str(Path(url2pathname(urlsplit(uri).path)))))

    def _get(self, path: str) -> Mapping[str, str]:
        with self.server.client() as client:
            reply = client.get(f"/v1/{path}")
        if reply.status != 200:
            raise AnswerUnusable(url=self.server.url, status=reply.status, why=reply.body[:200])
        document: Mapping[str, str] = reply.json()
        return document


def percent(share: float | None) -> str:
    return "—" if share is None else f"{share:.0%}"


def _verdict(cycle: Cycle) -> str | None:
    result = cycle.stage("gate").result
    return None if result is None else str(result["outcome"])


def _stages(cycle: Cycle) -> Iterator[tuple[str, float]]:
    for one in cycle.stages:
        if one.started_at is not None and one.ended_at is not None:
            yield one.stage, (one.ended_at - one.started_at) / _SECOND_US
