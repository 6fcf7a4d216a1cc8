"""The audit of recorded attempts: sessions that agents recorded are found in the lake, and judged
by the rules."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import chain

import msgspec

from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock.registry.checkpoints.attempts import (
    Attempt,
    AttemptAudit,
    attempts_of,
    audit_in,
    record_audits,
    with_audit,
)
from penstock.registry.checkpoints.journal import AttemptScope
from penstock_jobs.benchmarks.audit.model import AuditModel
from penstock_jobs.benchmarks.audit.rules import AuditedTask, telling_lines
from penstock_jobs.benchmarks.audit.steps import AttemptTranscript, steps_of
from penstock_jobs.benchmarks.audit.transcripts import audit_of
from penstock_jobs.benchmarks.sandbox.sandbox_files import File
from penstock_jobs.benchmarks.suite import BenchmarkTask, Suite, TaskFiles

_EVENTS = "select type, payload from events where session_id = $session order by seq"


@dataclass(frozen=True)
class AuditReport:
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
