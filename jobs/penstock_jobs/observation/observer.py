"""One observer: learns of edits, looks at their files when it is time, and tells what it saw.

What it is about to tell stands in its memory before it is sent, and until the service has it. So a
kill between the two sends the same events again, which count once."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from penstock.clock import SECOND_US, Clock
from penstock.ingest.file_import import event_importer
from penstock.lake.desk import Desk
from penstock_jobs.observation.calls import EDITED_FILES, EditedFile, EditedFilesQuestion
from penstock_jobs.observation.looks import (
    FileLook,
    WatchedEdit,
    Windows,
    commit_looks,
    due_looks,
    next_us,
)
from penstock_jobs.observation.memory import MemoryFile, ObserverMemory
from penstock_jobs.observation.work_tree import WorkTree
from penstock_jobs.rewards.git_repository import BranchHead

#: Commits are looked at for edits that are younger.
WATCHED_SECONDS = 7 * 24 * 3600
#: The oldest are forgotten beyond them.
EDITS_MAX = 20_000
#: What came in earlier may be seen later, where several gateways take events in.
_OVERLAP_US = 120 * SECOND_US
#: Edits that come in later than this after they were made are not watched, but in the first round:
#: so a question reads the newest files of the lake alone.
_LATE_US = 24 * 3600 * SECOND_US
#: So much goes to the service at once.
_BODY_BYTES = 4 * 1024 * 1024


@dataclass
class ObservedRound:
    """Counts of one round: edits that became known, events that were sent, and files that were not
    looked at, by the reason."""

    edits: int = 0
    sent: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


class Observer:
    def __init__(
        self,
        desk: Desk,
        tree: WorkTree,
        windows: Windows,
        memory: MemoryFile,
        clock: Clock,
        *,
        project: str | None = None,
    ) -> None:
        """`project` is the only one whose sessions count; None is all."""
        self._desk = desk
        self._tree = tree
        self._windows = windows
        self._file = memory
        self._clock = clock
        self._project = project
        self._memory: ObserverMemory = memory.read()

    def round(self) -> ObservedRound:
        """Raises what asking and sending raise, InvalidInput; the next round makes up for it."""
        done = ObservedRound()
        self._send(done)
        if not self._tree.is_there():
            return done
        head = self._tree.head()
        self._learn(done, head)
        looks = due_looks(self._memory.edits, self._windows, self._clock.now_us())
        commit = head.commit if head is not None else None
        if commit is not None and self._memory.commit not in (None, commit):
            looks += commit_looks(self._memory.edits, commit)
        self._memory.commit = commit
        self._memory.unsent = self._told(looks, head, done)
        self._file.write(self._memory)
        self._send(done)
        return done

    def pause_seconds(self, longest_s: float) -> float:
        """Until the next round."""
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
            question = EditedFilesQuestion(
                folder=folder, since_us=since_us, edited_since_us=edited_since_us, cursor=cursor
            )
            page = self._desk.ask(EDITED_FILES, question)
            for edit in page.edits:
                since_next_us = max(since_next_us, edit.received_us - _OVERLAP_US)
                is_new = (edit.session_id, edit.event_id) not in known and edit.ts_us >= oldest_us
                if is_new and self._project in (None, edit.project):
                    fresh.append(edit)
            if page.next is None:
                break
            cursor = page.next
        # Only now: a question that failed halfway is asked again as a whole.
        memory.since_us, memory.asked_us = since_next_us, now_us
        there = self._tree.look({edit.path for edit in fresh}, ())
        branch = head.branch if head is not None else None
        for edit in fresh:
            memory.edits.append(WatchedEdit(
                edit.session_id, edit.event_id, edit.edit_id, edit.name, edit.path, edit.project,
                edit.ts_us, branch, "text" in there[edit.path].seen,
            ))  # fmt: skip
        done.edits = len(fresh)
        memory.edits = sorted(memory.edits, key=lambda edit: edit.ts_us)[-EDITS_MAX:]

    def _told(
        self, looks: Iterable[FileLook], head: BranchHead | None, done: ObservedRound
    ) -> list[str]:
        """Lines of events."""
        looks = list(looks)
        were_there = {
            edit.path for look in looks for edit in look.edits if edit.was_there
        }  # of the same path, any edit knows it
        sights = self._tree.look({look.first.path for look in looks}, were_there)
        ts_us = self._clock.now_us()
        lines = []
        for look in looks:
            sight = sights[look.first.path]
            if sight.why is not None:
                done.left_out[sight.why] += 1
                continue
            for edit in look.edits:
                edit.was_there = edit.was_there or "text" in sight.seen
            changed = head is not None and any(edit.branch != head.branch for edit in look.edits)
            event = look.event(ts_us, sight.seen, branch_changed=changed)
            lines.append(msgspec.json.encode(event).decode())
        return lines

    def _send(self, done: ObservedRound) -> None:
        memory = self._memory
        if not memory.unsent:
            return
        importer = event_importer(self._desk)
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
