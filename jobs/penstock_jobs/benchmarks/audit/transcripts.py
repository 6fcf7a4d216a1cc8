"""Transcripts of attempts: a file that an agent left, the logs of a trial, or the messages of a
sample. All are read by the importers of sessions."""

import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from penstock.core.errors import one_line
from penstock.registry.checkpoints.attempts import AttemptAudit
from penstock_jobs.benchmarks.audit.rules import AuditedTask, findings_in
from penstock_jobs.benchmarks.audit.steps import AttemptTranscript, steps_of
from penstock_jobs.importers.importer import ImportedEvent, recognise
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.session_import import READ_ERRORS
from penstock_jobs.importers.sources import candidates
from penstock_jobs.importers.transcript import SessionDraft

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
