"""Plays the story: users work with a checkpoint, and a cycle of the loop makes the next one."""

import fcntl
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname
from zlib import crc32

from penstock.backends.execution import open_executor
from penstock.backends.http.errors import AnswerUnusable, ServerUnreachable
from penstock.core.clock import SECOND_US, SystemClock
from penstock.core.errors import InvalidInput
from penstock.core.files import make_directory
from penstock.core.settings import FILE_NAME
from penstock.events.event import TENANT_DEFAULT
from penstock.ingest.file_import import wait_until_stored
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.registry.channels.change import ChannelState
from penstock.registry.channels.channel import assign, channel_state
from penstock.registry.channels.promotion import Promotion, gate_judge, promote, release
from penstock.registry.checkpoints.registration import register
from penstock_jobs.loop.cycles import Cycle
from penstock_jobs.loop.loop_file import load_loop
from penstock_jobs.loop.runner import Runner
from penstock_jobs.rewards import runs as rewards
from penstock_jobs.simulator.delivery import HttpSink
from penstock_jobs.simulator.demo import story
from penstock_jobs.simulator.demo.labels import (
    JudgeMiss,
    corrected_rate,
    label_messages,
    true_labels,
)
from penstock_jobs.simulator.demo.server import Server
from penstock_jobs.simulator.demo.story import (
    LEARN,
    Act,
    Chapter,
    StoryEnding,
    UserReaction,
    percent,
)
from penstock_jobs.simulator.examples import LEFT_BEHIND, examples_folder
from penstock_jobs.simulator.policy import policy_of, read_policy
from penstock_jobs.simulator.production import Checkpoint, Production
from penstock_jobs.simulator.truth import SessionTruth

CHANNEL = "production"
FIRST = "demo-0000"
_ACTOR = "demo"
#: An hour of the users takes six seconds.
_COMPRESSION = 600
_SPACING_S = 2.0
#: The horizon of rewards in the users' time, and compressed, with time to observe.
_HORIZON_S = 600
_HORIZON_US = 1_050_000
_BATCH_MAX = 200
_POLL_US = 20_000
#: Messages of each side of a canary that people label, after each part of its traffic.
_LABELS = 100
_STORED_SECONDS_MAX = 30.0
_WEAK = policy_of(
    1, careful=0.1, plain=0.27, hasty=0.38, ask=0.15, comments=0.02, tiny=0.03, broken=0.05
)
_DIGEST = re.compile(r"(sha256:[0-9a-f]{8})[0-9a-f]{56}")
_now_us = SystemClock().now_us

#: Marks a folder that a demo made, which the next demo may replace.
_MARK = "MADE-BY-PENSTOCK-DEMO"
_MARK_TEXT = "`penstock demo` made this folder. The next demo with the same --data replaces it.\n"
_SETTINGS = """\
flush_seconds_max = 0.2
loop_poll_seconds = 0.1
canary_settle_seconds = 0
canary_look_seconds = 0.1
canary_quiet_seconds = 1
"""


@dataclass
class DemoFolders:
    data: Path

    def __post_init__(self) -> None:
        self.story = self.data.with_name(f"{self.data.name}-story")
        self.loops, self.models = self.story / "loop", self.story / "models"
        self.log = self.story / "serve.log"


def make_folders(data: Path | None, *, isolated: bool = True) -> DemoFolders:
    """Make the demo's folders, with settings and the files of examples/demo for users to change.

    Raises InvalidInput if they hold other files, or if a service uses them."""
    lake = (data or Path("penstock-demo")).absolute()
    if not lake.name:
        why = "the demo needs a folder beside it"
        raise InvalidInput(what=f"The directory {lake}", why=why)
    folders = DemoFolders(lake)
    try:
        for folder in (folders.data, folders.story):
            _check_free(folder)
        for folder in (folders.data, folders.story):
            if (folder / _MARK).exists():
                shutil.rmtree(folder)
            make_directory(folder)
            (folder / _MARK).write_text(_MARK_TEXT, encoding="utf-8")
        (lake / FILE_NAME).write_text(_SETTINGS, encoding="utf-8")
        source = examples_folder() / "demo"
        shutil.copytree(source, folders.loops, ignore=shutil.ignore_patterns(*LEFT_BEHIND))
        folders.models.mkdir()
        # The commands use this Python, which has the trainer's libraries.
        python = shlex.quote(sys.executable).replace("\\", "\\\\").replace('"', '\\"')
        for file in folders.loops.glob("*.toml"):
            text = file.read_text(encoding="utf-8")
            text = re.sub(r'(?<=")(exec )?python3 ', lambda call: f"{call[1] or ''}{python} ", text)
            if not isolated:
                text = text.replace("[[bench]]", "[[bench]]\nisolation = false")
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        why = error.strerror or str(error)
        raise InvalidInput(what=f"The directory {error.filename}", why=why) from error
    return folders


def _check_free(folder: Path) -> None:
    if not folder.exists():
        return
    what = f"The directory {folder}"
    if not (folder / _MARK).exists() and (not folder.is_dir() or any(folder.iterdir())):
        why = "it is not empty, and no demo made it; name an empty directory"
        raise InvalidInput(what=what, why=why)
    for lock in folder.glob("log/*/writer.lock"):
        with lock.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                why = "a service uses it; stop the service, or name another directory"
                raise InvalidInput(what=what, why=why) from error


@dataclass(frozen=True)
class TrafficTruth:
    """The truth about the sessions that began in a period."""

    truths: Sequence[SessionTruth]
    events: int
    from_us: int
    until_us: int

    def reaction(self, checkpoint: str) -> UserReaction:
        sessions = [truth for truth in self.truths if truth.checkpoint == checkpoint]
        survivals = [edit.survival.get(_HORIZON_S) for truth in sessions for edit in truth.edits]
        kept = [shares[0] for shares in survivals if shares is not None]
        said = [request.dissatisfied for truth in sessions for request in truth.requests]
        dissatisfied = [one for one in said if one is not None]
        means = (fmean(shares) if shares else None for shares in (kept, dissatisfied))
        return UserReaction(*means)

    def sessions(self, checkpoint: str) -> set[str]:
        return {truth.session_id for truth in self.truths if truth.checkpoint == checkpoint}


@dataclass(frozen=True, kw_only=True)
class Player:
    lake: Lake
    server: Server
    folders: DemoFolders
    seed: int
    sessions: int
    tell: Callable[[str], None]
    _rounds: dict[str, int] = field(default_factory=dict)
    _explained: set[str] = field(default_factory=set)
    _labels: dict[tuple[str, str], str] = field(default_factory=dict)
    misses: list[JudgeMiss] = field(default_factory=list)

    def begin(self) -> None:
        """Promote a first checkpoint without the gate."""
        database, settings = self.lake.database, self.lake.settings
        weights = self.folders.models / f"{FIRST}.json"
        weights.write_bytes(_WEAK.to_json())
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
        traffic = self._run_traffic("ending", [serving])
        return StoryEnding(serving.name, *self._compare(traffic, serving.name))

    def _chapter(self, number: int, act: Act) -> Chapter:
        [serving] = self._serving()[1]
        traffic = self._run_traffic(str(number - 1), [serving])
        measured, known = self._compare(traffic, serving.name)
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
            parent=serving.name,
            sessions=len(traffic.truths),
            events=traffic.events,
            measured=measured,
            known=known,
            checkpoint=cycle.checkpoint,
            score=by_name.get(cycle.checkpoint or ""),
            score_before=by_name.get(serving.name),
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
        document, checkpoints = self._serving()

        def serve(user: str) -> Checkpoint:
            name = assign(document, user).checkpoint
            return next(checkpoint for checkpoint in checkpoints if checkpoint.name == name)

        canary = checkpoints[-1].name
        self._rounds[canary] = self._rounds.get(canary, 0) + 1
        traffic = self._run_traffic(f"{canary}-{self._rounds[canary]}", checkpoints, serve)
        for checkpoint in checkpoints:
            self._compare(traffic, checkpoint.name, labels=_LABELS)
        return False

    def _state(self) -> ChannelState:
        return channel_state(self.lake.database, TENANT_DEFAULT, CHANNEL)

    def _run_traffic(
        self,
        name: str,
        checkpoints: Sequence[Checkpoint],
        serve: Callable[[str], Checkpoint] | None = None,
    ) -> TrafficTruth:
        """Send sessions, then wait for the last edit's horizon and for the lake to store them."""
        from_us = _now_us()
        name = f"demo-{self.seed}-{name}"
        production = Production(
            crc32(name.encode()), checkpoints, from_us, _COMPRESSION, _SPACING_S, name, serve
        )
        sessions = [session for batch in production.sessions(self.sessions) for session in batch]
        lines = sorted(
            (at_us, session.truth.session_id, line)
            for session in sessions
            for at_us, _, line in session.lines
        )
        edits = [at for session in sessions for at, kind, _ in session.lines if kind == "edit"]
        until_us = max(edits, default=lines[-1][0]) + _HORIZON_US
        # Later observations are dropped: a demo does not wait for them.
        lines = [line for line in lines if line[0] < until_us]
        with closing(HttpSink(self.server.url, self.server.key)) as sink:
            _send(sink, lines)
        _sleep_until(until_us)
        if not wait_until_stored(self.lake, TENANT_DEFAULT, _STORED_SECONDS_MAX):
            why = f"it stored no events for {_STORED_SECONDS_MAX:g} s, though some are missing"
            raise ServerUnreachable(url=self.server.url, why=why)
        self._labels.update(true_labels(sessions))
        return TrafficTruth([session.truth for session in sessions], len(lines), from_us, _now_us())

    def _compare(
        self, traffic: TrafficTruth, checkpoint: str, labels: int = 0
    ) -> tuple[UserReaction, UserReaction]:
        definition = load_loop(self.folders.loops / LEARN).load_definition()
        with open_executor(self.lake.settings) as executor:
            rewards.run(self.lake, executor, rewards.RunRequest(definition))
        period = {"from_us": traffic.from_us, "until_us": traffic.until_us}
        parameters = {"version": definition.version, "checkpoint": checkpoint} | period
        [row] = self._query("user_reaction", ("rewards", "sessions"), parameters)
        measured, known = UserReaction(**row), traffic.reaction(checkpoint)
        served = traffic.sessions(checkpoint)
        corrected = None
        if labels:
            whose = self.server, definition, checkpoint
            label_messages(*whose, self._labels, sessions=served, count=labels)
            corrected = corrected_rate(self.lake, definition, served)
        self.misses.append(JudgeMiss.of(checkpoint, measured, known, corrected))
        kept = percent(measured.kept, measured.kept_margin)
        judged = percent(measured.dissatisfied, measured.dissatisfied_margin)
        by_labels = f", corrected by {labels} labels {percent(*corrected)}" if corrected else ""
        self._tell_stage(
            "production",
            f"{len(served)} sessions of {checkpoint}: users kept {kept} of its edits (truth"
            f" {percent(known.kept)}); {judged} of its requests left them dissatisfied, says the"
            f" judge{by_labels} (truth {percent(known.dissatisfied)})",
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
        sql = (
            files("penstock_jobs.simulator.demo")
            .joinpath(f"{name}.sql")
            .read_text(encoding="utf-8")
        )
        query = OwnQuery(sql, frozenset(views), parameters)
        rows: list[dict[str, Any]] = self.lake.query(query).arrow().to_pylist()
        return rows

    def _serving(self) -> tuple[Mapping[str, str], list[Checkpoint]]:
        """The channel's document, with its checkpoint and canary. Raises AnswerUnusable."""
        document = self._get(f"channels/{CHANNEL}")
        checkpoints = []
        for name in (document["checkpoint"], document["canary"]):
            if name is not None:
                uri = self._get(f"checkpoints/{quote(name)}")["uri"]
                policy = read_policy(str(Path(url2pathname(urlsplit(uri).path))))
                checkpoints.append(Checkpoint(name, policy))
        return document, checkpoints

    def _get(self, path: str) -> Mapping[str, str]:
        with self.server.client() as client:
            reply = client.get(f"/v1/{path}")
        if reply.status != 200:
            raise AnswerUnusable(url=self.server.url, status=reply.status, why=reply.body[:200])
        document: Mapping[str, str] = reply.json()
        return document


def _send(sink: HttpSink, lines: Sequence[tuple[int, str, bytes]]) -> None:
    sent = 0
    while sent < len(lines):
        now_us = _now_us()
        due = sent
        while due < len(lines) and due - sent < _BATCH_MAX and lines[due][0] <= now_us:
            due += 1
        if due == sent:
            _sleep_until(min(lines[sent][0], now_us + _POLL_US))
            continue
        sink.send([(session, line) for _, session, line in lines[sent:due]])
        sent = due


def _sleep_until(moment_us: int) -> None:
    time.sleep(max(0.0, (moment_us - _now_us()) / SECOND_US))
