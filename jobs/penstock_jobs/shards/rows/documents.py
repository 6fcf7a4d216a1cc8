"""Rows of text: whole files of repositories, and files of sessions that a recipe's query selects.

A row has files of one repository or session, each with a separator at its end. Files of
repositories are redacted like events. A file's digest decides on which side of the split it is, in
every recipe with the same share: no shard trains on what another holds out.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import chain, groupby
from tempfile import TemporaryFile
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import InvalidInput
from penstock.core.toml_document import read_bounded
from penstock.shards.schema import SHARD_ROWS
from penstock.shards.validation import ShardValidator
from penstock.shards.writer import PartLimits, PartWriter
from penstock_jobs.rewards.history.git_repository import Repository, files_at, read_texts
from penstock_jobs.shards.conversation.token_payload import Ids
from penstock_jobs.shards.exclusion import lot
from penstock_jobs.shards.exclusion import texts as exclusion
from penstock_jobs.shards.recipe import EvaluationSplit, Recipe, Text
from penstock_jobs.shards.registration import AnnouncingStore
from penstock_jobs.shards.rows.engine_branches import ASSISTANT
from penstock_jobs.shards.rows.rendered_branches import TOKENIZER_BYTES_MAX, open_tokenizer
from penstock_jobs.shards.rows.samples import sample_id
from penstock_jobs.shards.rows.slices import SliceResult, counted_columns
from penstock_jobs.shards.selection.plan import ShardPlan, plan_shard
from penstock_jobs.shards.selection.selection import LEFT_OUT_ROWS
from penstock_jobs.shards.selection.session_facts import PinnedSessions, SessionProfile

#: The answer of the query.
_ANSWER = pa.schema(dict.fromkeys(("session_id", "path", "license", "text"), pa.string()))
_SPDX = re.compile(r"[\w.+:()-]+(?: (?:AND|OR|WITH) [\w.+:()-]+)*")
_FILES_AT_ONCE = 64


_IN_ALL_ROWS: dict[str, Any] = {
    "chain_pos": 0, "is_last_step": True, "prompt_len": 0, "reward_components": [],
    "messages": "[]", "status": "completed", "loss_weight": 1.0, "token_source": "text",
}  # fmt: skip


class Document(NamedTuple):
    #: A session; or a repository at a commit, whose id is both.
    origin: SessionProfile
    path: str
    license: str | None
    bytes: int
    sha256: str = ""
    spool_start: int = 0


#: Tokens of a document in a row.
Piece = tuple[Document, Ids]


def build_documents(
    sessions: PinnedSessions, recipe: Recipe, owner: str, folder: str
) -> tuple[ShardPlan, SliceResult]:
    """Plan sessions like any others, choose files and write rows. Raises like `plan_shard`."""
    assert recipe.text is not None
    lake, wanted = sessions.lake, recipe.text
    rows = sessions.query(recipe.query) if recipe.query else _ANSWER.empty_table()
    if sorted(rows.column_names) != sorted(_ANSWER.names):
        why = f"texts need {', '.join(_ANSWER.names)}, not {', '.join(rows.column_names)}"
        raise InvalidInput(what="The columns of the recipe's query", why=why)
    rows = rows.select(_ANSWER.names).cast(_ANSWER)
    # Near-duplicates and the split are of files here.
    exclude = replace(recipe.exclude, near_duplicates=False)
    whole = replace(recipe, exclude=exclude, split=EvaluationSplit())
    plan = plan_shard(sessions, whole, pa.table({"session_id": rows["session_id"].unique()}))
    limits = PartLimits(recipe.output.file_bytes or PartLimits().part_bytes_target)
    writer = PartWriter(AnnouncingStore(lake.store, lake.database, owner), folder, limits)
    with TemporaryFile(dir=lake.settings.data) as spool, writer:
        work = _TextBuild(sessions, recipe, wanted, spool)
        for document, text in chain(_of_repositories(recipe, wanted), _of_sessions(rows, plan)):
            work.add(document, text)
        samples = work.write_rows(writer)
    left_out = pa.Table.from_pylist(work.left_out, LEFT_OUT_ROWS)
    return plan, SliceResult(writer.files, samples, left_out)


def _of_repositories(recipe: Recipe, wanted: Text) -> Iterator[tuple[Document, str]]:
    for source in wanted.repositories:
        repository = Repository(recipe.directory / source.path, source.commit)
        commit, tracked = files_at(repository)
        name = f"{source.repo}@{commit}"
        origin = SessionProfile(name, repo=source.repo, commit=commit, consent="train")
        files = [one for one in tracked if any(fnmatchcase(one[0], own) for own in wanted.files)]
        for start in range(0, len(files), _FILES_AT_ONCE):
            some = files[start : start + _FILES_AT_ONCE]
            blobs = {blob for _, blob, size in some if size <= wanted.max_bytes}
            texts = read_texts(repository, blobs).texts
            for path, blob, size in some:
                yield Document(origin, path, source.license, size), texts.get(blob, "")


def _of_sessions(rows: pa.Table, plan: ShardPlan) -> Iterator[tuple[Document, str]]:
    names, consents = plan.chosen["session_id"].to_pylist(), plan.sessions.consents(plan.numbers)
    chosen = dict(zip(names, consents, strict=True))
    keys = [(name, "ascending") for name in ("session_id", "path")]
    for at in pc.sort_indices(rows.drop_columns("text"), keys).to_pylist():
        [row] = rows.slice(at, 1).to_pylist()
        text, session = row["text"] or "", row["session_id"]
        if session in chosen:
            origin = SessionProfile(session, consent=chosen[session])
            yield Document(origin, row["path"], row["license"], len(text.encode())), text


def side_of(digest: str, share: float) -> Literal["train", "eval"]:
    return "eval" if lot(f"document:{digest}", 0) < round(share * 2**64) else "train"


def cut_rows(documents: Iterable[Piece], length: int) -> Iterator[list[Piece]]:
    """Cut tokens of documents into rows of `length`; the last row may be shorter."""
    pieces: list[Piece] = []
    room = length
    for document, ids in documents:
        start = 0
        while start < len(ids):
            pieces.append((document, ids[start : start + room]))
            start, room = start + room, room - len(pieces[-1][1])
            if not room:
                yield pieces
                pieces, room = [], length
    if pieces:
        yield pieces


class _TextBuild:
    """Chooses files, of equal ones the first. Their texts wait in the spool."""

    def __init__(self, sessions: PinnedSessions, recipe: Recipe, wanted: Text, spool: Any) -> None:
        self.left_out: list[dict[str, Any]] = []
        self._sessions, self._recipe, self._wanted, self._spool = sessions, recipe, wanted, spool
        names = recipe.exclude.suites
        suites = exclusion.find_suites(sessions.lake.database, sessions.tenant, names)
        self._contamination = exclusion.Contamination(suites, recipe.exclude)
        self._documents: dict[str, Document] = {}
        self._signatures: list[exclusion.Signature | None] = []
        path = recipe.directory / (recipe.tokens.tokenizer or "")
        content = read_bounded(path, TOKENIZER_BYTES_MAX, f"The tokenizer {path}")
        self._tokenizer = open_tokenizer(content, str(path))
        self._tokenizer.encode_special_tokens = True  # what stands in a file is text
        self._separator = self._tokenizer.token_to_id(wanted.separator)
        if self._separator is None:
            why = f"{path} has no token {wanted.separator!r}"
            raise InvalidInput(what="separator of [text]", why=why)
        self._shared = {"tokenizer_id": recipe.tokens.tokenizer}
        self._shared["tokenizer_sha256"] = hashlib.sha256(content).hexdigest()

    def add(self, document: Document, text: str) -> None:
        content = text.encode()
        if document.origin.repo and content:  # what comes from sessions was redacted before
            redactor, tenant = self._sessions.lake.redactor, self._sessions.tenant
            [content] = redactor.redact([content], tenant, len(content)).lines
        digest = hashlib.sha256(content).hexdigest()
        if not _SPDX.fullmatch(document.license or ""):
            self._leave_out(document, "no_license", document.license)
        elif document.bytes > self._wanted.max_bytes:
            self._leave_out(document, "too_large", f"{document.bytes} bytes")
        elif not content.strip():
            self._leave_out(document, "redaction_refused" if text.strip() else "no_text")
        elif same := self._documents.get(digest):
            self._leave_out(document, "duplicate", f"of {same.path} in {same.origin.session_id}")
        elif excluded := self._contamination.of(document.origin, [content.decode()]):
            self._leave_out(document, *excluded)
        else:
            start, size = self._spool.tell(), self._spool.write(content)
            self._documents[digest] = Document(*document[:3], size, digest, start)
            compared = [content.decode()] if self._recipe.exclude.near_duplicates else []
            self._signatures.append(exclusion.signature(compared, self._recipe.seed))

    def write_rows(self, writer: PartWriter) -> pa.Table:
        """Write rows by origin and path. Returns what the manifest counts of them."""
        split, digests = self._recipe.split, list(self._documents)
        similarity_min, signatures = self._recipe.exclude.similarity_min, self._signatures
        alike = exclusion.near_duplicates(digests, signatures, digests, similarity_min)
        for digest in digests:
            if excluded := alike.get(digest):
                self._leave_out(self._documents.pop(digest), *excluded)
            elif split.keep not in ("both", side_of(digest, split.eval)):
                self._leave_out(self._documents.pop(digest), "other_side")
        counted, validator = [counted_columns(SHARD_ROWS.empty_table())], ShardValidator()
        place = lambda one: (f"{one.origin.session_id}#", one.path)  # noqa: E731
        in_order = sorted(self._documents.values(), key=place)
        for _, own in groupby(in_order, lambda one: one.origin.session_id):
            for row in self._rows_of(list(own)):
                table = pa.Table.from_pylist([row], SHARD_ROWS)
                validator.check(table)
                writer.write(table)
                counted.append(counted_columns(table))
        return pa.concat_tables(counted).unify_dictionaries()

    def _rows_of(self, documents: list[Document]) -> Iterator[dict[str, Any]]:
        """Make rows of one origin, a side after the other."""
        shared = self._shared | {"created_at": self._sessions.snapshot_us()}
        rows = []
        for side in ("eval", "train"):
            share = self._recipe.split.eval
            own = (one for one in documents if side_of(one.sha256, share) == side)
            tokens = ((one, self._ids_of(one)) for one in own)
            rows += [(side, row) for row in cut_rows(tokens, self._recipe.tokens.max_length)]
        for number, (side, pieces) in enumerate(rows):
            yield shared | {"split": side, "n_branches": len(rows)} | _row(number, pieces)

    def _ids_of(self, document: Document) -> Ids:
        self._spool.seek(document.spool_start)
        text = self._spool.read(document.bytes).decode()
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return np.array([*encoding.ids, self._separator], np.int32)

    def _leave_out(self, document: Document, reason: str, detail: str | None = None) -> None:
        where = document.path if detail is None else f"{document.path}: {detail}"
        row = {"session_id": document.origin.session_id, "reason": reason, "detail": where}
        self.left_out.append(row)


def _row(number: int, pieces: list[Piece]) -> dict[str, Any]:
    ids, documents = np.concatenate([ids for _, ids in pieces]), [one for one, _ in pieces]
    mask, ends = np.ones(len(ids), np.uint8), np.cumsum([len(ids) for _, ids in pieces]).tolist()
    origin, name = documents[0].origin, f"{documents[0].origin.session_id}#{number:06d}"
    return _IN_ALL_ROWS | {
        **dict.fromkeys(("trajectory_id", "rollout_id", "group_id"), name),
        "session_id": origin.session_id,
        "sample_id": sample_id(origin.session_id, number, ids, mask),
        "branch_index": number,
        "input_ids": ids,
        "loss_mask": mask,
        "n_tokens": len(ids),
        "n_trainable": len(ids),
        "turn_spans": [
            {"start": start, "end": end, "turn": turn, "role": ASSISTANT, "sampled": True}
            for turn, (start, end) in enumerate(zip([0, *ends], ends, strict=False))
        ],
        "documents": [document._asdict() for document in documents],
        "license": " AND ".join(sorted({one.license or "" for one in documents})),
        "consent": origin.consent,
    }
