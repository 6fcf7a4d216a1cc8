"""The observer: it learns of edits, observes their files when it is time, and sends observations.

Observations stay in its memory until the service has them. Sending one twice is harmless.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.core.clock import SECOND_US, Clock
from penstock.core.endpoint import Caller, Client, Endpoint, Request, decode_cursor, encode_cursor
from penstock.core.errors import InvalidInput
from penstock.core.room import Endpoints
from penstock.events.event import TS_MAX_US
from penstock.ingest.file_import import event_importer
from penstock.lake.lake import Lake
from penstock.lake.query.lake_query import OwnQuery
from penstock_jobs.rewards.history.git_repository import BranchHead
from penstock_jobs.sessions.watching import (
    DueObservation,
    MemoryFile,
    ObserverMemory,
    WatchedEdit,
    Windows,
    WorkTree,
    commit_observations,
    due_observations,
    next_us,
)

LISTED_MAX = 1_000


class EditedFilesRequest(Request):
    """Edits below an absolute `folder`, received since `since_us` and made since `edited_since_us`.

    Both are microseconds since 1970. Without `edited_since_us` all segments are read. `cursor` is
    the `next` of the page before."""

    folder: str
    since_us: Annotated[int, Meta(ge=0, le=TS_MAX_US)] = 0
    edited_since_us: Annotated[int, Meta(ge=0, le=TS_MAX_US)] = 0
    cursor: str = ""
    limit: Annotated[int, Meta(ge=1, le=LISTED_MAX)] = LISTED_MAX


class EditedFile(msgspec.Struct):
    """An edit. `name` is the session's path, `path` the absolute one. `event_id` is a digest if the
    event has none."""

    session_id: str
    event_id: str
    edit_id: str | None
    name: str
    path: str
    project: str | None
    ts_us: int
    received_us: int


class EditedFilesPage(msgspec.Struct):
    """A page of edits. `next` is the cursor of the next page, null if there is none."""

    edits: list[EditedFile]
    next: str | None


def list_edited_files(lake: Lake, caller: Caller, asked: EditedFilesRequest) -> EditedFilesPage:
    folder = asked.folder.rstrip("/")  # empty for the root
    if not asked.folder.startswith("/"):
        raise InvalidInput(what=f"The folder {asked.folder!r}", why="it must be absolute")
    after = decode_cursor(asked.cursor, 3) if asked.cursor else ("-1", "", "")
    names = ("after_us", "after_session", "after_event")
    variables = dict(zip(names, after, strict=True)) | {
        "folder": folder,
        "since_us": str(asked.since_us),
        "edited_since_us": str(asked.edited_since_us),
        "rows_max": str(asked.limit + 1),
    }
    if not variables["after_us"].lstrip("-").isdecimal():
        raise InvalidInput(what="The cursor", why="no page gave it")
    sql = files("penstock_jobs.sessions").joinpath("sql", "edited_files.sql").read_text()
    query = OwnQuery(sql, frozenset({"events"}), variables=variables)
    rows = lake.query(query, tenant=caller.tenant).table()
    edits = msgspec.convert(rows.to_pylist(), list[EditedFile])
    follows = None
    if len(edits) > asked.limit:
        edits = edits[: asked.limit]
        last = edits[-1]
        follows = encode_cursor(last.received_us, last.session_id, last.event_id)
    return EditedFilesPage(edits, follows)


EDITED_FILES = Endpoint(
    "GET /v1/edited-files",
    list_edited_files,
    ("read", "ingest"),
    "Edited files below a folder",
    description="Paths and times of edits, without texts, as `penstock observe` needs them.",
    refused={422: "The answer is over its limit, or took too long."},
    reads_rows=True,
)

ENDPOINTS: Endpoints = [EDITED_FILES]


#: Edits are watched for commits until this age.
WATCHED_SECONDS = 7 * 24 * 3600
EDITS_MAX = 20_000
#: With several gateways, events that came in earlier may become visible later.
_OVERLAP_US = 120 * SECOND_US
#: Edits that come in later than this are not watched, so a request reads only the newest segments.
_LATE_US = 24 * 3600 * SECOND_US
_BODY_BYTES = 4 * 1024 * 1024


@dataclass
class ObservedRound:
    """Counts of a round: new edits, sent events, and left-out files by reason."""

    edits: int = 0
    sent: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


class Observer:
    def __init__(
        self,
        client: Client,
        tree: WorkTree,
        windows: Windows,
        memory: MemoryFile,
        clock: Clock,
        *,
        project: str | None = None,
    ) -> None:
        self._client = client
        self._tree = tree
        self._windows = windows
        self._file = memory
        self._clock = clock
        self._project = project
        self._memory: ObserverMemory = memory.read()

    def round(self) -> ObservedRound:
        """Make a round. Raises InvalidInput and the service's errors; the next round catches up."""
        done = ObservedRound()
        self._send(done)
        if not self._tree.is_there():
            return done
        head = self._tree.head()
        self._learn(done, head)
        due = due_observations(self._memory.edits, self._windows, self._clock.now_us())
        commit = head.commit if head is not None else None
        if commit is not None and self._memory.commit not in (None, commit):
            due += commit_observations(self._memory.edits, commit)
        self._memory.commit = commit
        self._memory.unsent = self._observe(due, head, done)
        self._file.write(self._memory)
        self._send(done)
        return done

    def pause_seconds(self, longest_s: float) -> float:
        due_us = next_us(self._memory.edits, self._windows)
        if due_us is None:
            return longest_s
        left_s = (due_us - self._clock.now_us()) / SECOND_US
        return min(longest_s, max(left_s, 1.0))

    def _learn(self, done: ObservedRound, head: BranchHead | None) -> None:
        memory, now_us = self._memory, self._clock.now_us()
        oldest_us = now_us - WATCHED_SECONDS * SECOND_US
        memory.edits = [edit for edit in memory.edits if edit.ts_us >= oldest_us]
        known = {(edit.session_id, edit.key) for edit in memory.edits}
        fresh: list[EditedFile] = []
        since_next_us = memory.since_us
        since_us, cursor = max(memory.since_us, oldest_us), ""
        edited_since_us = max(oldest_us, memory.asked_us - _LATE_US)
        while True:
            folder = str(self._tree.folder)
            question = EditedFilesRequest(
                folder=folder, since_us=since_us, edited_since_us=edited_since_us, cursor=cursor
            )
            page = self._client.call(EDITED_FILES, question)
            for edit in page.edits:
                since_next_us = max(since_next_us, edit.received_us - _OVERLAP_US)
                is_new = (edit.session_id, edit.event_id) not in known and edit.ts_us >= oldest_us
                if is_new and self._project in (None, edit.project):
                    fresh.append(edit)
            if page.next is None:
                break
            cursor = page.next
        # Only now, so that a request that failed halfway is repeated as a whole.
        memory.since_us, memory.asked_us = since_next_us, now_us
        there = self._tree.look({edit.path for edit in fresh}, ())
        branch = head.branch if head is not None else None
        for edit in fresh:
            memory.edits.append(WatchedEdit(
                edit.session_id, edit.event_id, edit.edit_id, edit.name, edit.path, edit.project,
                edit.ts_us, branch, "text" in there[edit.path].facts,
            ))  # fmt: skip
        done.edits = len(fresh)
        memory.edits = sorted(memory.edits, key=lambda edit: edit.ts_us)[-EDITS_MAX:]

    def _observe(
        self, due: Sequence[DueObservation], head: BranchHead | None, done: ObservedRound
    ) -> list[str]:
        were_there = {edit.path for each in due for edit in each.edits if edit.was_there}
        seen_files = self._tree.look({each.first.path for each in due}, were_there)
        ts_us = self._clock.now_us()
        lines = []
        for each in due:
            file = seen_files[each.first.path]
            if file.why is not None:
                done.left_out[file.why] += 1
                continue
            for edit in each.edits:
                edit.was_there = edit.was_there or "text" in file.facts
            changed = head is not None and any(edit.branch != head.branch for edit in each.edits)
            event = each.event(ts_us, file.facts, branch_changed=changed)
            lines.append(msgspec.json.encode(event).decode())
        return lines

    def _send(self, done: ObservedRound) -> None:
        memory = self._memory
        if not memory.unsent:
            return
        importer = event_importer(self._client)
        body = bytearray()
        for line in memory.unsent:
            body += line.encode() + b"\n"
            if len(body) >= _BODY_BYTES:
                importer.take_body(bytes(body))
                body.clear()
        if body:
            importer.take_body(bytes(body))
        importer.finish()
        done.sent += len(memory.unsent)
        memory.unsent = []
        self._file.write(memory)
