"""Entire: sessions in a Git repository, on `entire/checkpoints/v1` or with a ref a checkpoint.

Each checkpoint is a source: it has the session so far, as its agent keeps it, and never changes. A
later one need not have all of an earlier one."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.core.errors import InvalidInput
from penstock_jobs.importers import fields
from penstock_jobs.importers.fields import arguments_of
from penstock_jobs.importers.importer import ImportedEvent, Importer, recognise
from penstock_jobs.importers.report import Notes, SourceUnfit
from penstock_jobs.importers.sources import DOCUMENT_BYTES_MAX, Candidate, Source
from penstock_jobs.rewards.history.git_repository import Repository, files_at, git, read_texts

_REFS = ("refs/heads/entire/checkpoints", "refs/remotes/*/entire/checkpoints/**",
         "refs/entire/checkpoints")  # fmt: skip
#: Long ones continue in `full.jsonl.001`.
_TRANSCRIPT = re.compile(r"(.*/)?full\.jsonl(?:\.\d+)?")
_GIT_FOLDER = {"HEAD", "objects", "refs"}


@dataclass(frozen=True)
class _Checkpoint(Source):
    session: str = ""
    blobs: tuple[str, ...] = ()
    bytes: int = 0
    made_us: int = 0

    def size(self) -> int:
        return self.bytes

    def mark(self) -> str:
        return "|".join(self.blobs)

    def changed_us(self) -> int:
        return self.made_us


class EntireImporter(Importer):
    name = "entire"

    def recognises(self, candidate: Candidate) -> bool:
        return candidate.entries >= _GIT_FOLDER and bool(_refs(candidate.real))

    def sources(self, candidate: Candidate) -> Iterator[Source]:
        told: dict[tuple[str, ...], Source] = {}
        for ref in _refs(candidate.real):
            for each in _checkpoints(candidate, ref):
                told.setdefault(each.blobs, each)
        yield from told.values()

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        assert isinstance(source, _Checkpoint)
        if source.bytes > DOCUMENT_BYTES_MAX:
            raise SourceUnfit(f"it is longer than {DOCUMENT_BYTES_MAX // 2**20} MiB")
        try:
            texts = read_texts(Repository(source.folder), source.blobs).texts
        except InvalidInput as error:
            raise SourceUnfit(str(error)) from error
        with TemporaryDirectory() as folder:
            # Some agents name a session by its file, and have no times.
            path = Path(folder, f"{source.session}.jsonl")
            path.write_text("\n".join(texts.get(blob, "") for blob in source.blobs))
            os.utime(path, (source.made_us / 1e6, source.made_us / 1e6))
            candidate = Candidate(path, path.parent, (path.name,))
            importer = recognise(candidate)
            if importer is None:
                raise SourceUnfit("it has no known format")
            for each in importer.sources(candidate):
                yield from importer.read(each, notes)


def _refs(folder: Path) -> list[str]:
    try:
        listed = git(Repository(folder), "for-each-ref", "--format=%(refname)", *_REFS)
    except InvalidInput:
        return []
    return listed.decode().split()


def _checkpoints(candidate: Candidate, ref: str) -> Iterator[_Checkpoint]:
    repository = Repository(candidate.real, ref)
    try:
        files = {path: (blob, size) for path, blob, size in files_at(repository)[1]}
    except InvalidInput:  # its objects are elsewhere
        return
    folders: dict[str, list[str]] = {}
    for path in sorted(files):
        if match := _TRANSCRIPT.fullmatch(path):
            folders.setdefault(match[1] or "", []).append(path)
    metadata = {folder: files.get(f"{folder}metadata.json", ("", 0))[0] for folder in folders}
    texts = read_texts(repository, filter(None, metadata.values())).texts
    for folder, paths in folders.items():
        facts = arguments_of(texts.get(metadata[folder]))
        yield _Checkpoint(
            candidate.path / ref / folder,
            candidate.real,
            (ref, folder),
            session=(fields.text(facts, "session_id") or "session").replace("/", "-"),
            blobs=tuple(files[path][0] for path in paths),
            bytes=sum(files[path][1] for path in paths),
            made_us=fields.moment(facts, "created_at") or candidate.changed_us(),
        )
