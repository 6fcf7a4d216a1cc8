"""Which files below a folder were edited: what an observer asks."""

from importlib.resources import files
from typing import Annotated

import msgspec
from msgspec import Meta

from penstock.errors import InvalidInput
from penstock.events.event import TS_MAX_US
from penstock.lake.desk import Call, Caller, Question
from penstock.lake.lake import Lake
from penstock.lake.pages import decode_cursor, encode_cursor
from penstock.lake.query import OwnQuery

LISTED_MAX = 1_000


class EditedFilesQuestion(Question):
    """`folder` is absolute; `since_us` a time in microseconds since 1970, from which on the edits
    came in, and `edited_since_us` one from which on they were made, without which all files of the
    lake are looked through; `cursor` is the `next` of the page before."""

    folder: str
    since_us: Annotated[int, Meta(ge=0, le=TS_MAX_US)] = 0
    edited_since_us: Annotated[int, Meta(ge=0, le=TS_MAX_US)] = 0
    cursor: str = ""
    limit: Annotated[int, Meta(ge=1, le=LISTED_MAX)] = LISTED_MAX


class EditedFile(msgspec.Struct):
    """An edit. `name` is the path as its session has it, and `path` the absolute one; `event_id` is
    a digest where the event has none."""

    session_id: str
    event_id: str
    edit_id: str | None
    name: str
    path: str
    project: str | None
    ts_us: int
    received_us: int


class EditedFilesPage(msgspec.Struct):
    """`next` is the cursor of the page that follows; null when there is none."""

    edits: list[EditedFile]
    next: str | None


def list_edited_files(lake: Lake, caller: Caller, asked: EditedFilesQuestion) -> EditedFilesPage:
    """Raises InvalidInput, what queries raise."""
    folder = asked.folder.rstrip("/")  # of the root nothing is left
    if not asked.folder.startswith("/"):
        raise InvalidInput(what=f"The folder {asked.folder!r}", why="name an absolute one")
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
    sql = files("penstock_jobs.observation").joinpath("sql", "edited_files.sql").read_text()
    query = OwnQuery(sql, frozenset({"events"}), variables=variables)
    rows = lake.query(query, tenant=caller.tenant, project=caller.project).table()
    edits = msgspec.convert(rows.to_pylist(), list[EditedFile])
    follows = None
    if len(edits) > asked.limit:
        edits = edits[: asked.limit]
        last = edits[-1]
        follows = encode_cursor(last.received_us, last.session_id, last.event_id)
    return EditedFilesPage(edits, follows)


EDITED_FILES = Call(
    path="/v1/edited-files",
    question=EditedFilesQuestion,
    answer=EditedFilesPage,
    work=list_edited_files,
    roles=("read", "ingest"),
    summary="Which files below a folder were edited",
    description="Paths and times of edits, without their texts: what `penstock observe` looks at.",
    refused={422: "The answer is over its limit, or took too long."},
    reads_rows=True,
    of_projects=True,
)

CALLS = [EDITED_FILES]
