"""Plays the story: users work with a checkpoint, and a cycle of the loop makes the next one."""

import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import msgspec

from penstock.backends.execution import open_executor
from penstock.backends.http import ServerUnreachable
from penstock.core.clock import SECOND_US, SystemClock
from penstock.events.event import TENANT_DEFAULT
from penstock.ingest.file_import import wait_until_stored
from penstock.ingest.recorder.recorder import Recorder
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.channel import assign, channel_state
from penstock.registry.channels.promotion import Promotion, gate_judge, promote, release
from penstock.registry.checkpoints.digests import path_of
from penstock.registry.checkpoints.registration import register
from penstock_jobs.loop.cycles import Cycle
from penstock_jobs.loop.loop_file import load_loop
from penstock_jobs.loop.runner import Runner
from penstock_jobs.rewards import runs as rewards
from penstock_jobs.simulator.demo import story
from penstock_jobs.simulator.demo.engines import Engines, Weights
from penstock_jobs.simulator.demo.folders import DemoFolders
from penstock_jobs.simulator.demo.labels import JudgeMiss, corrected_rate, label_messages
from penstock_jobs.simulator.demo.server import Server
from penstock_jobs.simulator.demo.story import (
    LEARN,
    Act,
    Chapter,
    StoryEnding,
    UserReaction,
    percent,
)
from penstock_jobs.simulator.demo.traffic import ServedModel, Traffic, play_sessions
from penstock_jobs.simulator.users import Words

CHANNEL = "production"
FIRST = "demo-0000"
_ACTOR, _PROJECT = "demo", "sums"
#: Messages of each side of a canary that a person labels, after each part of its traffic. A part
#: has twice the sessions of a cycle, since they are shared by two checkpoints.
_LABELS = 120
_STORED_SECONDS_MAX = 30.0
_SENT_SECONDS_MAX = 60.0
_DIGEST = re.compile(r"(sha256:[0-9a-f]{8})[0-9a-f]{56}")
_now_us = SystemClock().now_us


class Player(msgspec.Struct, frozen=True, kw_only=True):
    lake: Lake
    server: Server
    folders: DemoFolders
    seed: int
    sessions: int
    engines: Engines
    tell: Callable[[str], None]
    _rounds: dict[str, int] = msgspec.field(default_factory=dict)
    _explained: set[str] = msgspec.field(default_factory=set)
    _said: dict[str, Sequence[Words]] = msgspec.field(default_factory=dict)
    misses: list[JudgeMiss] = msgspec.field(default_factory=list)

    def begin(self) -> None:
        """Promote a first checkpoint without the gate."""
        database, settings = self.lake.database, self.lake.settings
        weights = self.folders.models / f"{FIRST}.npz"
        shutil.copyfile(self.folders.loops / "first.npz", weights)
        whose: Any = {"tenant": TENANT_DEFAULT, "actor": _ACTOR}
        register(database, settings, name=FIRST, uri=weights.as_uri(), digest=None, **whose)
        whose |= {"channel": CHANNEL, "reason": "the first checkpoint, before there is a gate"}
        promotion = Promotion(checkpoint=FIRST, override=True, **whose)
        promote(database, promotion, gate_judge(database, TENANT_DEFAULT))

    def play(self, acts: Sequence[Act], *, go_on: Callable[[], bool]) -> Iterator[Chapter]:
        """Play acts and yield a chapter for each, as long as `go_on` agrees."""
        for number, act in enumerate(acts, 1):
            if number > 1 and not go_on():
                return
            self.tell(f"\nCycle {number} of {len(acts)}. {act.title}\n   {act.told}")
            yield self._chapter(number, act)

    def end(self) -> StoryEnding:
        self.tell("\nThe last checkpoint")
        [serving] = self._serving()[1]
        traffic = self._run_traffic("ending", lambda _user: serving)
        reactions = self._compare(traffic, serving.checkpoint)
        right, score = traffic.right(serving.checkpoint), self._scores().get(serving.checkpoint)
        return StoryEnding(serving.checkpoint, *reactions, right, score)

    def _chapter(self, number: int, act: Act) -> Chapter:
        [serving] = self._serving()[1]
        traffic = self._run_traffic(str(number), lambda _user: serving)
        parent = serving.checkpoint
        measured, known = self._compare(traffic, parent)
        cycle = self._cycle(act)
        by_name = self._scores()
        verdict = cycle.stage("gate").result
        stages = tuple(
            (stage.stage, (stage.ended_at - stage.started_at) / SECOND_US)
            for stage in cycle.stages
            if stage.started_at is not None and stage.ended_at is not None
        )
        return Chapter(
            number=number,
            act=act,
            parent=parent,
            sessions=len(traffic.sessions),
            right=traffic.right(parent),
            measured=measured,
            known=known,
            checkpoint=cycle.checkpoint,
            score=by_name.get(cycle.checkpoint or ""),
            score_before=by_name.get(parent),
            verdict=None if verdict is None else str(verdict["outcome"]),
            outcome=cycle.outcome or "open",
            why=cycle.why,
            stages=stages,
        )

    def _cycle(self, act: Act) -> Cycle:
        loop, tell = load_loop(self.folders.loops / act.loop), self._tell_cycle
        runner = Runner(
            lake=self.lake, loop=loop, tenant=TENANT_DEFAULT, wait=self._wait, tell=tell
        )
        cycle = runner.run_once()
        if self._state().pinned:
            whose = {"tenant": TENANT_DEFAULT, "channel": CHANNEL, "actor": _ACTOR}
            release(self.lake.database, reason="the trainer is fixed", **whose)
        return cycle

    def _wait(self, seconds: float) -> bool:
        if self._state().canary is None:
            time.sleep(seconds)
            return False
        document, models = self._serving()
        by_name = {model.checkpoint: model for model in models}
        canary = models[-1].checkpoint
        self._rounds[canary] = self._rounds.get(canary, 0) + 1
        traffic = self._run_traffic(
            f"{canary}-{self._rounds[canary]}",
            lambda user: by_name[assign(document, user).checkpoint],
            parts=2,
        )
        for name in by_name:
            self._compare(traffic, name, labels=_LABELS)
        return False

    def _state(self) -> ChannelState:
        return channel_state(self.lake.database, TENANT_DEFAULT, CHANNEL)

    def _run_traffic(
        self, name: str, serve: Callable[[str], ServedModel], parts: int = 1
    ) -> Traffic:
        """Let users work, until the lake has stored all that they did."""
        from_us = _now_us()
        name = f"demo-{self.seed}-{name}"
        spool = self.folders.engines / "recorder"
        with closing(Recorder(self.server.url, self.server.key, spool=spool)) as recorder:
            sessions = play_sessions(name, parts * self.sessions, serve, recorder, _PROJECT)
            sent = recorder.flush(_SENT_SECONDS_MAX)
        self.engines.wait_until_delivered()
        if not sent or not wait_until_stored(self.lake, TENANT_DEFAULT, _STORED_SECONDS_MAX):
            why = f"it stored no events for {_STORED_SECONDS_MAX:g} s, though some are missing"
            raise ServerUnreachable(url=self.server.url, why=why)
        self._said.update({one.session_id: one.messages for one in sessions})
        return Traffic(sessions, from_us, _now_us())

    def _compare(
        self, traffic: Traffic, checkpoint: str, labels: int = 0
    ) -> tuple[UserReaction, UserReaction]:
        definition = load_loop(self.folders.loops / LEARN).load_definition()
        with open_executor(self.lake.settings) as executor:
            rewards.run(self.lake, executor, rewards.RunRequest(definition))
        period = {"from_us": traffic.from_us, "until_us": traffic.until_us}
        parameters = {"version": definition.version, "checkpoint": checkpoint} | period
        [row] = self._query("user_reaction", ("rewards", "sessions"), parameters)
        measured, known = UserReaction(**row), traffic.reaction(checkpoint)
        served = {one.session_id for one in traffic.of(checkpoint)}
        corrected = None
        if labels:
            whose = self.lake, definition, checkpoint
            label_messages(*whose, self._said, sessions=served, count=labels)
            corrected = corrected_rate(self.lake, definition, served)
        self.misses.append(JudgeMiss.of(checkpoint, measured, known, corrected))
        right = percent(traffic.right(checkpoint))
        kept = percent(measured.kept, measured.kept_margin)
        judged = percent(measured.dissatisfied, measured.dissatisfied_margin)
        by_labels = f", corrected by {labels} labels {percent(*corrected)}" if corrected else ""
        self._tell_stage(
            "production",
            f"{len(served)} sessions of {checkpoint}, which got {right} of the sums right. Users"
            f" kept {kept} of its edits (truth {percent(known.kept)}). The judge says that {judged}"
            f" of its requests left them dissatisfied{by_labels}"
            f" (truth {percent(known.dissatisfied)})",
        )
        return measured, known

    def _tell_cycle(self, text: str) -> None:
        subject, _, message = text.partition(": ")
        stage, done, result = message.partition(" is done: ")
        if done:
            if stage == "train":
                address, _, digest = result.partition(", ")
                result = f"{address.rpartition('/')[2]}, {digest}"
            elif stage == "bench":
                scores = self._scores().items()
                shown = ", ".join(f"{name} {score:.2f}" for name, score in scores)
                result = f"scores: {shown}"
            self._tell_stage(stage, result)
        elif subject.startswith("cycle") and " " in message:  # its outcome or an error
            self._tell_stage("", message.replace("_", " ", 1))

    def _tell_stage(self, stage: str, text: str) -> None:
        if stage in story.EXPLANATIONS and stage not in self._explained:
            self._explained.add(stage)
            self.tell(f"   {stage:<11}{story.EXPLANATIONS[stage]}:")
            stage = ""
        short = _DIGEST.sub(r"\1…", text)
        self.tell(f"   {stage:<11}{short}")

    def _scores(self) -> Mapping[str, float]:
        rows = self._query("scores", ("benchmark_scores",), {})
        return {row["checkpoint"]: row["score"] for row in rows}

    def _query(
        self, name: str, views: Sequence[str], parameters: Mapping[str, object]
    ) -> list[dict[str, Any]]:
        sql = files(__package__).joinpath(f"{name}.sql").read_text(encoding="utf-8")
        query = OwnQuery(sql, frozenset(views), parameters)
        rows: list[dict[str, Any]] = self.lake.query(query).arrow().to_pylist()
        return rows

    def _serving(self) -> tuple[Mapping[str, Any], list[ServedModel]]:
        """The channel's document, with its checkpoint and canary served."""
        wanted = []
        with self.server.client() as client:
            document = client.ask(f"channels/{CHANNEL}", "checkpoint")
            for part in ("checkpoint", "canary"):
                if (name := document[part]) is not None:
                    uri = client.ask(f"checkpoints/{quote(name)}", "uri")["uri"]
                    wanted.append(Weights(name, path_of(uri), document[f"{part}_version"]))
        return document, self.engines.serve(wanted)
