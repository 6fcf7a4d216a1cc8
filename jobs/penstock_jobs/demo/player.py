"""Plays the story: users work with a checkpoint, and a cycle of the loop makes the next one."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from penstock.channels.channel import ChannelState, assign, channel_state
from penstock.channels.promotion import Promotion, promote, release
from penstock.checkpoints.registration import register
from penstock.events.event import TENANT_DEFAULT
from penstock.execution import open_executor
from penstock.http.errors import AnswerUnusable
from penstock.lake.lake import Lake
from penstock_jobs.benchmarks.run import register_suite
from penstock_jobs.benchmarks.suite import TASK_BYTES_MAX, read_suite
from penstock_jobs.canary.step import gate
from penstock_jobs.demo.folders import DemoFolders
from penstock_jobs.demo.server import Server
from penstock_jobs.demo.story import EPILOGUE, LEARN, Act, Chapter, Narrator, Reception, StoryEnding
from penstock_jobs.demo.traffic import (
    DemoTraffic,
    TrafficTruth,
    measured_reception,
    scores,
    true_reception,
)
from penstock_jobs.loop.cycles import Cycle
from penstock_jobs.loop.loop_file import load_loop
from penstock_jobs.loop.runner import Runner
from penstock_jobs.rewards import runs as rewards
from penstock_jobs.simulator.policy import policy_of, read_policy
from penstock_jobs.simulator.production import Checkpoint

CHANNEL = "production"
FIRST = "demo-0000"
_ACTOR = "demo"
_SECOND_US = 1_000_000
#: It knows each style, and prefers the bad ones.
_WEAK = policy_of(
    1, careful=0.1, plain=0.27, hasty=0.38, ask=0.15, comments=0.02, tiny=0.03, broken=0.05
)


@dataclass(frozen=True)
class ChannelSplit:
    """A channel at one moment: the current checkpoint, and the canary if some users have one."""

    document: Mapping[str, str]
    checkpoints: Sequence[Checkpoint]

    def serve(self, user: str) -> Checkpoint:
        name = assign(self.document, user).checkpoint
        return next(checkpoint for checkpoint in self.checkpoints if checkpoint.name == name)


@dataclass(frozen=True, kw_only=True)
class Player:
    """`tell` takes a line for the person who watches."""

    lake: Lake
    server: Server
    folders: DemoFolders
    seed: int
    sessions: int
    tell: Callable[[str], None]
    #: How often users came to a canary, by its name.
    _rounds: dict[str, int] = field(default_factory=dict)

    @cached_property
    def _narrator(self) -> Narrator:
        return Narrator(self.tell, lambda: scores(self.lake))

    def begin(self) -> None:
        """Promote a first checkpoint without the gate, which has no other to compare it with.
        Register the suite, so that its tasks are left out of what is trained on."""
        database, settings = self.lake.database, self.lake.settings
        for bench in load_loop(self.folders.loops / LEARN).bench:
            suite = read_suite(bench.suite)
            register_suite(database, TENANT_DEFAULT, suite, TASK_BYTES_MAX)
        weights = self.folders.models / f"{FIRST}.json"
        weights.write_bytes(_WEAK.to_json())
        register(
            database, settings, tenant=TENANT_DEFAULT, name=FIRST, uri=weights.as_uri(),
            digest=None, actor=_ACTOR,
        )  # fmt: skip
        promotion = Promotion(
            tenant=TENANT_DEFAULT,
            channel=CHANNEL,
            checkpoint=FIRST,
            reason="what serves before there is a gate",
            actor=_ACTOR,
            override=True,
        )
        promote(database, promotion, gate(database, TENANT_DEFAULT, True))

    def play(self, acts: Sequence[Act], *, go_on: Callable[[], bool]) -> Iterator[Chapter]:
        """A chapter for each act, as it ends; `go_on` is asked between two. Raises
        PenstockError."""
        chapter: Chapter | None = None
        for number, planned in enumerate(acts, 1):
            if number > 1 and not go_on():
                return
            act = planned.behind(chapter)
            self._narrator.begin_act(number, len(acts), act)
            chapter = self._chapter(number, act)
            yield chapter

    def end(self) -> StoryEnding:
        self.tell(f"\n{EPILOGUE}")
        [serving] = self._serving().checkpoints
        traffic = self._run_traffic("ending", [serving])
        return StoryEnding(serving.name, *self._compare(traffic, serving.name))

    def _chapter(self, number: int, act: Act) -> Chapter:
        [serving] = self._serving().checkpoints
        traffic = self._run_traffic(str(number - 1), [serving])
        measured, known = self._compare(traffic, serving.name)
        cycle = self._cycle(act)
        by_name = scores(self.lake)
        return Chapter(
            number=number,
            act=act,
            parent=serving.name,
            sessions=len(traffic.truths),
            events=traffic.events,
            measured=measured,
            known=known,
            checkpoint=cycle.checkpoint,
            score=by_name.get(cycle.checkpoint or ""),
            score_before=by_name.get(serving.name),
            verdict=_verdict(cycle),
            outcome=cycle.outcome or "open",
            why=cycle.why,
            stages=tuple(_stages(cycle)),
        )

    # A cycle

    def _cycle(self, act: Act) -> Cycle:
        """Run a cycle of the loop, and release the channel if it was rolled back."""
        runner = Runner(
            lake=self.lake,
            loop=load_loop(self.folders.loops / act.loop),
            tenant=TENANT_DEFAULT,
            wait=self._wait,
            tell=self._narrator.cycle,
        )
        cycle = runner.run_once()
        if self._state().pinned:
            release(
                self.lake.database, tenant=TENANT_DEFAULT, channel=CHANNEL,
                reason="the trainer is mended", actor=_ACTOR,
            )  # fmt: skip
        return cycle

    def _wait(self, seconds: float) -> bool:
        """The loop waits for something. While a canary runs, users come to it."""
        if self._state().canary is None:
            time.sleep(seconds)
            return False
        split = self._serving()
        canary = split.checkpoints[-1].name
        self._rounds[canary] = self._rounds.get(canary, 0) + 1
        name = f"{canary}-{self._rounds[canary]}"
        traffic = self._run_traffic(name, split.checkpoints, split.serve)
        for checkpoint in split.checkpoints:
            self._compare(traffic, checkpoint.name)
        return False

    def _state(self) -> ChannelState:
        return channel_state(self.lake.database, TENANT_DEFAULT, CHANNEL)

    # Production

    def _run_traffic(
        self,
        name: str,
        checkpoints: Sequence[Checkpoint],
        serve: Callable[[str], Checkpoint] | None = None,
    ) -> TrafficTruth:
        traffic = DemoTraffic(self.lake, self.server.url, self.server.key, self.sessions)
        return traffic.run(f"demo-{self.seed}-{name}", checkpoints, serve)

    def _compare(self, traffic: TrafficTruth, checkpoint: str) -> tuple[Reception, Reception]:
        """Compute rewards, and compare them with what the simulator knows."""
        definition = load_loop(self.folders.loops / LEARN).load_definition()
        with open_executor(self.lake.settings) as executor:
            rewards.run(self.lake, executor, rewards.RunRequest(definition))
        measured = measured_reception(
            self.lake, definition.version, checkpoint, traffic.from_us, traffic.until_us
        )
        known = true_reception(traffic.truths, checkpoint)
        served = sum(truth.checkpoint == checkpoint for truth in traffic.truths)
        self._narrator.production(checkpoint, served, measured, known)
        return measured, known

    def _serving(self) -> ChannelSplit:
        """What serves now, as an engine asks the service. Raises AnswerUnusable."""
        document = self._get(f"channels/{CHANNEL}")
        names = [document["checkpoint"], document["canary"]]
        return ChannelSplit(document, [self._load(name) for name in names if name is not None])

    def _load(self, name: str) -> Checkpoint:
        uri = self._get(f"checkpoints/{quote(name)}")["uri"]
        return Checkpoint(name, read_policy(str(Path(url2pathname(urlsplit(uri).path)))))

    def _get(self, path: str) -> Mapping[str, str]:
        with self.server.client() as client:
            reply = client.get(f"/v1/{path}")
        if reply.status != 200:
            raise AnswerUnusable(url=self.server.url, status=reply.status, why=reply.body[:200])
        document: Mapping[str, str] = reply.json()
        return document


def _verdict(cycle: Cycle) -> str | None:
    result = cycle.stage("gate").result
    return None if result is None else str(result["outcome"])


def _stages(cycle: Cycle) -> Iterator[tuple[str, float]]:
    """How long each stage took, in seconds."""
    for stage in cycle.stages:
        if stage.started_at is not None and stage.ended_at is not None:
            yield stage.stage, (stage.ended_at - stage.started_at) / _SECOND_US
