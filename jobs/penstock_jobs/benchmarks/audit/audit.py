"""Audits: what agents left of their attempts is read as steps, and judged by rules and by a model.

The model is the one that judges follow-ups (`PENSTOCK_JUDGE_URL`). It is shown what was asked and
done, never a score, and has to quote what it suspects."""

import hashlib
import json
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from importlib.resources import files
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from penstock.backends.database.engine import Database
from penstock.backends.http.address import EgressPolicy
from penstock.core.errors import InvalidInput, one_line
from penstock.core.settings import Settings
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.registry.checkpoints.attempts import (
    Attempt,
    AttemptAudit,
    Finding,
    attempts_of,
    audit_in,
    record_audits,
    with_audit,
)
from penstock.registry.checkpoints.journal import AttemptScope
from penstock_jobs.benchmarks.audit.rules import AuditedTask, findings_in, telling_lines
from penstock_jobs.benchmarks.audit.steps import AttemptTranscript, Step, steps_of
from penstock_jobs.benchmarks.sandbox.sandbox_files import File
from penstock_jobs.benchmarks.suite import BenchmarkTask, Suite, TaskFiles
from penstock_jobs.importers.importer import ImportedEvent, recognise
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.session_import import READ_ERRORS
from penstock_jobs.importers.sources import candidates
from penstock_jobs.importers.transcript import SessionDraft
from penstock_jobs.rewards import RewardSettings
from penstock_jobs.rewards.followups import llm_judge

#: Task names such as `astropy__astropy-12907`, which tell the repository.
_TASK_REPOSITORY = re.compile(r"(?:[\w.-]+__)([\w.-]+)-\d+")


def audit_of(task: AuditedTask | str, transcript: AttemptTranscript | None) -> AttemptAudit | None:
    """Audit a transcript, if there is one. Of an imported task only the name is known."""
    if transcript is None or not transcript.steps:
        return None
    if isinstance(task, str):
        name = _TASK_REPOSITORY.fullmatch(task.rpartition("/")[2])
        task = AuditedTask(names=frozenset({name[1]} if name else ()))
    return AttemptAudit(len(transcript.steps), findings_in(task, transcript))


def read_transcript(path: Path) -> AttemptTranscript:
    """Read a file, or all of a folder that can be read; no steps if there is none.

    A trajectory beside an agent's own logs has the same steps: it counts alone."""
    if (trajectory := path / "trajectory.json").is_file():
        path = trajectory
    notes, events = Notes(str(path)), list[ImportedEvent]()
    for candidate, whole in candidates(path, notes, recognise) if path.exists() else ():
        importer = whole or recognise(candidate)
        for source in importer.sources(candidate) if importer else ():
            try:
                events += importer.read(source, notes) if importer else ()
            except (SourceUnfit, OSError, *READ_ERRORS) as error:
                notes.skip("a transcript that cannot be read", f"{source.path}: {one_line(error)}")
    # An answer that was read in parts is made last, and numbered where it began.
    events.sort(key=lambda event: (event.session_id, event.seq or 0))
    return steps_of((event.type, event.payload) for event in events)


def transcript_in(content: bytes, name: str) -> AttemptTranscript:
    """Read a transcript that an agent left under a name."""
    with TemporaryDirectory() as folder:
        file = Path(folder, Path(name).name)
        file.write_bytes(content)
        return read_transcript(file)


def transcript_of_messages(messages: Sequence[Any]) -> AttemptTranscript:
    draft = SessionDraft("sample", "messages", 0, Notes("sample"))
    for number, message in enumerate(messages):
        if isinstance(message, dict):
            draft.add_message(message, str(number))
    return steps_of((event.type, event.payload) for event in draft.finished())


_PROMPT = (files(__package__) / "prompt.md").read_text(encoding="utf-8")
_VERSION = hashlib.sha256(_PROMPT.encode()).hexdigest()[:12]
#: Shown at a time.
_STEPS = 20
#: Shorter quotes occur everywhere.
_QUOTE_CHARS_MIN, _QUOTE_CHARS_MAX = 8, 200


class _Answer(msgspec.Struct):
    suspicious: bool
    quote: str = ""


class AuditModel:
    def __init__(self, settings: Settings, database: Database) -> None:
        """Raises InvalidInput without a model."""
        judge = settings.room(RewardSettings)
        if not judge.judge_url:
            why = "it needs a language model: set PENSTOCK_JUDGE_URL and PENSTOCK_JUDGE_MODEL"
            raise InvalidInput(what="An audit by a model", why=why)
        limits = judge.judge_requests_max, judge.judge_tokens_max
        budget = llm_judge.RunBudget(database, f"audit-{uuid.uuid4().hex}", *limits)
        egress = EgressPolicy.for_operator(settings)
        self._model = llm_judge.LanguageModel(judge, budget, egress)
        self._chars_max = judge.judge_message_chars_max
        self.name = f"{judge.judge_model}@{_VERSION}"

    def audit(self, result: Attempt, read: AttemptTranscript) -> tuple[Attempt, str | None]:
        """An attempt as it counts once the model has read it; or why it has not."""
        known = audit_in(result)
        if result.score is None or known is None or known.cleared:
            return result, None
        parts = range(0, len(read.steps), _STEPS)
        try:
            found = [self._ask(read.request, read.steps[at : at + _STEPS]) for at in parts]
        except llm_judge.ModelFailure as failure:
            return result, f"not audited by the model: {failure.kind}"
        findings = tuple(filter(None, found))
        audit = msgspec.structs.replace(known, findings=findings, model=self.name)
        return with_audit(result, audit), None

    def _ask(self, request: str, steps: Sequence[Step]) -> Finding | None:
        acts = {step.number: {"kind": step.kind} | self._texts(step) for step in steps}
        asked = llm_judge.bounded(request, self._chars_max)
        shown = json.dumps({"request": asked, "steps": acts}, ensure_ascii=False)
        answer = llm_judge.read_answer(self._model.ask(_PROMPT, shown), _Answer)
        if answer is not None and not answer.suspicious:
            return None
        quote = " ".join(answer.quote.split()) if answer else ""
        for number, texts in acts.items() if len(quote) >= _QUOTE_CHARS_MIN else ():
            if any(quote in " ".join(text.split()) for text in texts.values()):
                return Finding(f"model {self.name}", number, quote[:_QUOTE_CHARS_MAX])
        raise llm_judge.ModelFailure("unreadable_answer", "it quotes nothing that was shown")

    def _texts(self, step: Step) -> dict[str, str]:
        most, names = self._chars_max // _STEPS, ("text", "before", "after", "output")
        return {name: llm_judge.bounded(getattr(step, name) or "", most) for name in names}


_EVENTS = "select type, payload from events where session_id = $session order by seq"


class AuditReport(msgspec.Struct, frozen=True):
    suite: str
    suite_version: str
    checkpoint: str
    attempts: int
    #: Attempts with a transcript; of the others nothing is known.
    audited: int
    suspect: int
    #: Attempts that a model read, too; and why others were not.
    by_model: int
    unread: dict[str, int]
    #: By task and number: the findings, and who took the attempt for honest, and why.
    findings: list[tuple[str, int, AttemptAudit]]


def attempt_session(scope: AttemptScope, task: str, attempt: int) -> str:
    """The id under which an agent may record its session, and the audit finds it."""
    digest = sha256("\0".join((*asdict(scope).values(), task, str(attempt))).encode())
    return f"attempt-{digest.hexdigest()[:32]}"


def audited_task(suite: Suite, task: BenchmarkTask, files: TaskFiles) -> AuditedTask:
    """A task as an audit knows it: lines of its check and solution that its tree lacks."""
    own, parts = _lines(files.tree), files.parts
    check = _lines(chain(*(part.check for part in parts))) - own
    answer = _lines(chain(*(part.solution or () for part in parts))) - own
    names = frozenset(repo.rpartition("/")[2].removesuffix(".git") for repo in suite.sources.repos)
    return AuditedTask(task.prompt, check, answer, names)


def _lines(files: Iterable[File]) -> frozenset[str]:
    texts = (file.content.decode(errors="replace") for file in files)
    return frozenset(line for text in texts for line in telling_lines(text))


def audit_recorded(lake: Lake, scope: AttemptScope, model: AuditModel | None = None) -> AuditReport:
    """Audit the attempts that were not, if their sessions are in the lake; and report on all."""
    audited, unread = [], Counter[str]()
    for each in attempts_of(lake.database, scope):
        result, known = each.result, audit_in(each.result)
        if result.score is None or (known is not None and (model is None or known.model)):
            continue
        transcript = _session(lake, scope, result)
        if known is None:
            result = with_audit(result, audit_of(result.task, transcript))
        if model is not None and transcript.steps:
            result, why_not = model.audit(result, transcript)
            unread.update(filter(None, [why_not]))
        audited += [replace(each, result=result)] if result.audit != each.result.audit else []
    with lake.database.write() as connection:
        record_audits(connection, scope, audited)
    results = [each.result for each in attempts_of(lake.database, scope)]
    audits = [(*result.place, audit) for result in results if (audit := audit_in(result))]
    return AuditReport(
        scope.suite,
        scope.suite_version,
        scope.checkpoint,
        attempts=len(results),
        audited=len(audits),
        suspect=sum(result.audit is not None and result.score is None for result in results),
        by_model=sum(audit.model is not None for *_, audit in audits),
        unread=dict(unread),
        findings=[each for each in audits if each[2].findings],
    )


def _session(lake: Lake, scope: AttemptScope, attempt: Attempt) -> AttemptTranscript:
    session = attempt_session(scope, *attempt.place)
    query = OwnQuery(_EVENTS, frozenset({"events"}), {"session": session}, sessions=[session])
    rows = lake.query(query, tenant=scope.tenant).arrow().to_pylist()
    return steps_of((row["type"], msgspec.json.decode(row["payload"])) for row in rows)
