"""Sessions told as conversations: who said what, what was edited, what files held then."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.events.event import TENANT_DEFAULT
from penstock_jobs.rewards.bucket import Bucket, as_bucket
from penstock_jobs.rewards.definition import NAME, find_definition
from penstock_jobs.rewards.outcomes import score_bucket
from tests.support.lakes import START_US, Event, make_event
from tests.support.reward_events import DAY_US, rows_of
from tests.support.rewards.stories import Row

Lines = list[str]
PATH = "src/prices.py"


def text_of(lines: Lines) -> str:
    return "".join(f"{line}\n" for line in lines)


class Talk:
    """A session in which something happens every ten seconds."""

    def __init__(self, **files: Lines) -> None:
        self.files: dict[str, str] = {}
        self.events: list[Event] = []
        self._at = 0

    def user(self, text: str) -> "Talk":
        return self._add("user_message", text=text)

    def agent(self, text: str = "Done.") -> "Talk":
        return self._add("model_call", text=text)

    def edit(self, lines: Lines, path: str = PATH) -> "Talk":
        """The agent leaves a file like this."""
        before, self.files[path] = self.files.get(path, ""), text_of(lines)
        return self._add("edit", path=path, before=before, after=self.files[path])

    def replace(self, old: Lines, new: Lines, path: str = PATH) -> "Talk":
        """The agent replaces a part, and shows nothing else of the file."""
        before, after = text_of(old), text_of(new)
        self.files[path] = self.files[path].replace(before, after, 1)
        return self._add("edit", path=path, before=before, after=after)

    def shell(self, command: str) -> "Talk":
        call = {"id": f"t{self._at}", "name": "bash", "arguments": {"command": command}}
        self._add("model_call", tool_calls=[call])
        return self._add("tool_result", call_id=call["id"], tool="bash", ok=True)

    def write(self, lines: Lines, path: str = PATH) -> "Talk":
        """The user leaves a file like this; nobody looks."""
        self.files[path] = text_of(lines)
        return self

    def look(self, path: str = PATH) -> "Talk":
        return self._add("file_observed", path=path, text=self.files[path])

    def add(self, kind: str, **payload: Any) -> "Talk":
        return self._add(kind, **payload)

    def wait(self, seconds: int) -> "Talk":
        self._at += seconds
        return self

    def of(self, session: str) -> list[Event]:
        """Its events, with a look at each file after ten minutes and the end."""
        events = [{**event, "session_id": session} for event in self.events]
        for number, (path, text) in enumerate(sorted(self.files.items())):
            look = {"path": path, "text": text}
            events.append(
                make_event(session, self._at + 600 + number, "file_observed", payload=look)
            )
        end = make_event(session, self._at + 1200, "session_end", payload={"reason": "completed"})
        return [*events, end]

    def _add(self, kind: str, **payload: Any) -> "Talk":
        self._at += 10
        self.events.append(make_event("s", self._at, kind, payload=payload))
        return self


def bucket_of_talks(directory: Path, talks: Mapping[str, Talk]) -> Bucket:
    events = [event for session, talk in talks.items() for event in talk.of(session)]
    return as_bucket(rows_of(directory, events), TENANT_DEFAULT, START_US + DAY_US)


def rows_of_talks(directory: Path, talks: Mapping[str, Talk]) -> list[Row]:
    rows: list[Row] = score_bucket(
        bucket_of_talks(directory, talks), find_definition()
    ).rewards.to_pylist()
    return rows


def worths(directory: Path, talks: Mapping[str, Talk], name: str = NAME) -> dict[str, float | None]:
    """What sessions are worth by the default definition, or by one of its rewards."""
    return {
        row["session_id"]: row["value"]
        for row in rows_of_talks(directory, talks)
        if row["name"] == name
        and row["target_kind"] == "session"
        and row["horizon_s"] in (None, 600)
    }
