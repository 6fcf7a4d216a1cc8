"""Trainers: a command or an HTTP service that makes a checkpoint from a parent and a shard.

`train` raises StageLost soon after `lost` is set, TrainerFailed, TrainerRefused, InvalidInput."""

import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any
from urllib.parse import urljoin

import msgspec
import sqlalchemy as sa

from penstock.backends.database.engine import Database
from penstock.backends.execution.guarded_process import run_guarded
from penstock.backends.http.address import EgressPolicy, HttpAddress
from penstock.backends.http.client import HttpAnswer, HttpClient
from penstock.core.clock import SECOND_US
from penstock.core.errors import InvalidInput
from penstock.core.files import SHARED_MODE, make_directory, relative_name, sha256_digest
from penstock.core.settings import ENVIRONMENT_PREFIX, Settings
from penstock.registry.checkpoints.checkpoint import Form, StateRefused
from penstock.registry.checkpoints.digests import check_uri, is_path, path_of
from penstock.registry.checkpoints.registration import withdraw
from penstock.registry.checkpoints.tables import checkpoint
from penstock_jobs.loop.cycles import StageLost, TrainerFailed, TrainerRefused, database_now
from penstock_jobs.loop.loop_file import LoopFile, label_of
from penstock_jobs.loop.tables import loop_cycle

_OUTPUT = "checkpoint"
ANSWER_BYTES_MAX = 64 * 1024
#: How much of a trainer's output an error quotes.
_OUTPUT_CHARS_MAX = 2_000
#: Statuses: the job goes on; the trainer is unreachable (0: no answer); the job is gone.
_LATER, _AWAY, _GONE = (202, 408, 425, 429), (0, 502, 503, 504), (404, 410)


class TrainerFolders(msgspec.Struct, frozen=True):
    """The folders of one cycle. Each try has its own, so that a late try does no harm."""

    cycle: Path

    @classmethod
    def of(cls, settings: Settings, loop: LoopFile, tenant: str, number: int) -> "TrainerFolders":
        data = settings.data / "loops" / relative_name(label_of(loop.name, tenant))
        return cls((loop.trainer.output or data).absolute() / f"cycle-{number:04d}")

    @property
    def work(self) -> Path:
        return self.cycle / "work"

    def outputs(self) -> list[Path]:
        return sorted(self.cycle.glob(f"try-*/{_OUTPUT}"))


class TrainedCheckpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    uri: str
    digest: str
    form: Form = "whole"
    note: str = ""


class TrainingTask(msgspec.Struct, frozen=True, kw_only=True):
    #: Equal for tries with equal inputs, and for no others.
    key: str
    #: The number of the try, unique within a task.
    attempt: int
    #: The limit of this try, and its setting in the loop file: `limit` or `budget`.
    limit_s: float
    limited_by: str = "limit"
    #: What the trainer is given, apart from its folders.
    facts: Mapping[str, str | int]

    def lost(self) -> StageLost:
        return StageLost(stage="train", cycle=self.facts["cycle"], loop=self.facts["loop"])

    def too_slow(self, log: object, output: str) -> TrainerFailed:
        limit = f"{round(self.limit_s, 1):g} s, the `{self.limited_by}` of the loop file"
        return _failed(f"had not finished after {limit}, and was stopped", log, output)


def read_answer(content: bytes, source: object) -> TrainedCheckpoint:
    if len(content) > ANSWER_BYTES_MAX:
        raise _unfit_answer(source, f"it is longer than {ANSWER_BYTES_MAX} bytes")
    try:
        answer = msgspec.json.decode(content, type=TrainedCheckpoint)
        check_uri(answer.uri)
        digest = sha256_digest(answer.digest.lower())
    except (UnicodeDecodeError, msgspec.DecodeError, InvalidInput) as error:
        raise _unfit_answer(source, str(error).rstrip(".")) from error
    return msgspec.structs.replace(answer, digest=digest)


def _unfit_answer(source: object, why: object) -> TrainerFailed:
    text = f"its answer {source} cannot be used: {why}"
    return TrainerFailed(why=f"{text}. It is a JSON object with `uri` and `digest`: docs/loop.md")


def _failed(end: str, log: object, output: str) -> TrainerFailed:
    return TrainerFailed(why=f"it {end}. The end of its output, from {log}: {output}")


class CommandTrainer(msgspec.Struct, frozen=True, kw_only=True):
    """A command, which gets its facts as PENSTOCK_… variables.

    Its process group ends with the command, its time limit, the claim of the stage and the runner:
    nothing may write into a finished checkpoint."""

    command: str
    directory: Path
    folders: TrainerFolders
    #: The data directory of Penstock.
    data: Path

    def train(self, task: TrainingTask, lost: Event) -> TrainedCheckpoint:
        try_folder, work = self.folders.cycle / f"try-{task.attempt:03d}", self.folders.work
        output = try_folder / _OUTPUT
        try:
            for folder in (output, work):
                make_directory(folder, SHARED_MODE)
        except OSError as error:
            what = f"The output folder of the trainer {error.filename}"
            raise InvalidInput(what=what, why=error.strerror or error) from error
        answer, log = try_folder / "answer.json", try_folder / "trainer.log"
        folders = {"data": self.data, "output": output, "work": work, "answer": answer}
        facts = {**task.facts, **folders}.items()
        variables = {f"{ENVIRONMENT_PREFIX}{name.upper()}": str(value) for name, value in facts}
        end = run_guarded(
            self.command,
            environment={**os.environ, **variables},
            seconds_max=task.limit_s,
            cancelled=lost.is_set,
            directory=self.directory,
            log=log,
        )
        if end.cancelled:
            raise task.lost()
        if end.status is None:
            raise task.too_slow(log, end.output)
        if end.status:
            raise _failed(f"ended with status {end.status}", log, end.output)
        try:
            with answer.open("rb") as file:
                content = file.read(ANSWER_BYTES_MAX + 1)
        except OSError as error:
            absent = isinstance(error, FileNotFoundError)
            raise _unfit_answer(answer, "it is not there" if absent else error) from error
        return read_answer(content, answer)


@dataclass(frozen=True, kw_only=True)
class HttpTrainer:
    """An HTTP service. Each request carries the key of the task as its Idempotency-Key.

    So a request after an outage, or from another runner, finds the same job. A job outlives its
    runner and is deleted when its time is over."""

    address: HttpAddress
    egress: EgressPolicy
    token: str | None = field(default=None, repr=False)
    #: Time limit of one request.
    seconds_max: float = 60.0
    #: Pause between requests without a Retry-After. It doubles while the trainer is unreachable.
    pause_s: float
    #: The longest pause, even if the trainer asks for more.
    pause_s_max: float = 300.0
    #: A trainer that is unreachable for this long has failed.
    silence_s: float

    def train(self, task: TrainingTask, lost: Event) -> TrainedCheckpoint:
        deadline = time.monotonic() + task.limit_s
        job: HttpAddress | None = None
        heard_at, outages = time.monotonic(), 0
        while True:
            asked_at = time.monotonic()
            response = self._ask("GET" if job else "POST", job, task)
            where = (job or self.address).text
            why = f"it answered {response.status}: {_text_of(response)}"
            now = time.monotonic()
            if response.status in _AWAY:
                outages += 1
                why = response.problem or why
                if asked_at - heard_at >= self.silence_s:
                    later = "Its job goes on, and the next try finds it again"
                    raise TrainerFailed(why=f"{where} cannot be reached: {why}. {later}")
            elif response.status in _LATER:
                heard_at, outages = now, 0
                if "location" in response.headers:
                    job = self._beside(response.headers["location"])
            else:
                return self._understand(response, where, of_job=job is not None)
            if now >= deadline:
                break
            pause_s = self.next_pause_s(response.retry_after_s, outages)
            if lost.wait(min(pause_s, deadline - now)):
                raise task.lost()
        self._ask("DELETE", job, task)  # whether this arrives changes nothing
        raise task.too_slow((job or self.address).text, why)

    def next_pause_s(self, retry_after_s: float, outages: int) -> float:
        grown_s = self.pause_s * 2.0 ** min(max(outages - 1, 0), 40)
        return min(retry_after_s or grown_s, self.pause_s_max)

    def _ask(self, method: str, job: HttpAddress | None, task: TrainingTask) -> HttpAnswer:
        headers = {"Accept": "application/json", "User-Agent": "penstock"}
        headers["Idempotency-Key"] = task.key
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        body = None
        if method == "POST":
            headers["Content-Type"] = "application/json"
            body = msgspec.json.encode(task.facts)
        bounds: dict[str, Any] = {"seconds_max": self.seconds_max, "bytes_max": ANSWER_BYTES_MAX}
        client = HttpClient(job or self.address, egress=self.egress, **bounds)
        response = client.request(method, headers, body).if_whole()
        if not self.token:
            return response
        # A trainer may echo the request: the token must not appear in errors of the loop.
        return replace(response, body=response.body.replace(self.token.encode(), b"***"))

    def _understand(self, response: HttpAnswer, where: str, *, of_job: bool) -> TrainedCheckpoint:
        status, text = response.status, _text_of(response)
        if status >= 500 or (of_job and status in _GONE):
            raise _failed(f"ended with status {status}", where, text)
        if status >= 300:
            why = text if status >= 400 else "redirects are not followed"
            raise TrainerRefused(address=where, status=status, why=why)
        if status != 200:
            raise _unfit_answer(where, f"its status is {status}, not 200 or 202")
        return read_answer(response.body, where)

    def _beside(self, location: str) -> HttpAddress:
        """Resolve a `Location`. Another server is refused: it must not get the token."""
        trainer = self.address
        try:
            job = HttpAddress.of(urljoin(trainer.text, location), "Its Location")
        except (ValueError, InvalidInput) as error:
            raise _unfit_answer(trainer.text, f"its Location is unfit: {error}") from error
        if (job.secure, job.host, job.port) != (trainer.secure, trainer.host, trainer.port):
            why = f"its Location is not at {trainer.host}:{trainer.port}"
            raise _unfit_answer(trainer.text, why)
        return job


def _text_of(response: HttpAnswer) -> str:
    """Return the detail of a problem document, else the beginning of the body."""
    try:
        document = msgspec.json.decode(response.body)
    except (UnicodeDecodeError, msgspec.DecodeError):
        document = None
    problem = document if isinstance(document, dict) else {}
    text = problem.get("detail") or problem.get("title") or response.body.decode(errors="replace")
    return " ".join(str(text).split())[:_OUTPUT_CHARS_MAX] or "nothing"


Trainer = CommandTrainer | HttpTrainer


#: Outcomes of cycles whose checkpoint never served.
_UNUSED = ("refused", "failed", "over_budget")


def remove_outputs(database: Database, settings: Settings, loop: LoopFile, tenant: str) -> int:
    """Remove folders that are older than the loop file keeps. Returns how many.

    A checkpoint that loses its files is withdrawn first, so that nobody promotes it."""
    if loop.trainer.keep_s is None:
        return 0
    cycles, made = loop_cycle.c, checkpoint.c
    same = sa.and_(made.tenant == cycles.tenant, made.name == cycles.checkpoint)
    before_us = database_now(database) - loop.trainer.keep_s * SECOND_US
    ended = (
        sa.select(cycles.number, cycles.outcome, cycles.checkpoint, made.state)
        .select_from(loop_cycle.outerjoin(checkpoint, same))
        .where(cycles.tenant == tenant, cycles.loop == loop.name, cycles.ended_at < before_us)
        .order_by(cycles.number)
    )
    # The files may also be registered under another name or for another tenant.
    usable = sa.select(made.tenant, made.name, made.uri).where(made.state != "withdrawn")
    with database.read() as connection:
        rows, registered = connection.execute(ended).all(), connection.execute(usable).all()
    needed = {
        (row.tenant, row.name): Path(os.path.realpath(path_of(row.uri)))
        for row in registered
        if is_path(row.uri)
    }
    removed = 0
    for row in rows:
        folders = TrainerFolders.of(settings, loop, tenant, row.number)
        outputs, own = folders.outputs(), (tenant, row.checkpoint)
        # The checkpoint never served, and cannot serve now.
        unused = row.outcome in _UNUSED and row.state in (None, "registered", "withdrawn")
        if unused and own in needed and any(_overlap(path, needed[own]) for path in outputs):
            reason = f"cycle {row.number} ended as {row.outcome}; its files are removed"
            who = {"tenant": tenant, "actor": f"loop-{loop.name}"}
            with suppress(StateRefused):  # it is in use
                withdraw(database, name=row.checkpoint, reason=reason, **who)
                del needed[own]
        for path in (*outputs, *([folders.work] if unused else [])):
            if not any(_overlap(path, place) for place in needed.values()):
                removed += _remove(path, folders.cycle)
    return removed


def _overlap(folder: Path, place: Path) -> bool:
    """Whether one path contains the other. `place` is free of links."""
    real = Path(os.path.realpath(folder))
    return place.is_relative_to(real) or real.is_relative_to(place)


def _remove(path: Path, cycle: Path) -> bool:
    """Remove a path. Returns False if it is missing, or reached by a link out of the cycle."""
    expected = Path(os.path.realpath(cycle)) / path.relative_to(cycle)
    if Path(os.path.realpath(path.parent)) != expected.parent:
        return False
    try:
        if path.is_symlink():
            path.unlink()
        else:
            shutil.rmtree(path)
    except FileNotFoundError:  # another runner was faster
        return False
    return True
