"""aider: `.aider.chat.history.md`, all chats of a project, one after the other.

Edits come from the commits that aider reports, if the project's Git repository has them. Else they
come from the answer's blocks, for files that aider reports as changed. Times have no zone and count
as UTC; all events of a chat have the chat's time.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from penstock.core.errors import InvalidInput
from penstock_jobs.importers.edits import FileEdit
from penstock_jobs.importers.fields import digest_of
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft
from penstock_jobs.rewards.history.git_repository import Commit, Repository, read_branch
from penstock_jobs.rewards.history.git_repository import read_texts as read_blobs

_BEGIN = "# aider chat started at "
_PROMPT, _NOTICE = "####", "> "
#: Commands whose text goes to the model.
_SPOKEN = ("/ask ", "/code ", "/architect ")
_MODEL = re.compile(r"(?:Main model|Model|Models): (\S+)")
_VERSION = re.compile(r"Aider v(\S+)", re.IGNORECASE)
_TOKENS = re.compile(r"Tokens: ([\d.,]+[kM]?) sent.*?([\d.,]+[kM]?) received")
_COMMIT = re.compile(r"Commit ([0-9a-f]{7,40}) (.*)")
_APPLIED = re.compile(r"Applied edit to (.+)")
_BLOCK = re.compile(
    r"^(?P<path>[^\n]+)\n(?:```|~~~)[^\n]*\n<{5,9} SEARCH\n(?P<old>.*?)^={5,9}\n"
    r"(?P<new>.*?)^>{5,9} REPLACE",
    re.DOTALL | re.MULTILINE,
)
_SCALES = {"k": 1_000, "M": 1_000_000}
_GIT_SECONDS_MAX = 30.0


class AiderImporter(Importer):
    name = "aider"

    def recognises(self, candidate: Candidate) -> bool:
        begins = candidate.beginning if candidate.ends(".md") else b""
        return begins.lstrip().startswith(_BEGIN.encode())

    def read(self, source: Source, notes: Notes) -> Iterator[ImportedEvent]:
        commits = _Commits(source, notes)
        chats: dict[str, int] = {}
        chat: _AiderChat | None = None
        for line in _lines(source, notes):
            if line.startswith(_BEGIN):
                if chat is not None:
                    yield from chat.events()
                begun = line.removeprefix(_BEGIN).strip()
                nth = chats[begun] = chats.get(begun, 0) + 1
                chat = _AiderChat((begun, nth), source.time_us(begun), notes, commits)
            elif chat is not None:
                chat.take(line)
            elif line:
                notes.skip("line before the first chat", line)
        if chat is not None:
            yield from chat.events()


def _lines(source: Source, notes: Notes) -> Iterator[str]:
    """Read all lines, including blank ones, which occur in blocks of edits."""
    last = 0
    for number, line in source.lines(notes):
        yield from [""] * (number - last - 1)
        yield line.decode(errors="replace").rstrip()
        last = number


class _AiderChat(SessionDraft):
    def __init__(
        self, begun: tuple[str, int], clock_us: int, notes: Notes, commits: "_Commits"
    ) -> None:
        super().__init__("", "aider", clock_us, notes)
        self._new_session = begun
        self.start = {"client": "aider"}
        self._commits = commits
        self._prompt: list[str] = []
        self._first = ""
        self._answer: list[str] = []
        self._usage: dict[str, int] | None = None
        self._blocks: dict[str, list[FileEdit]] = {}
        self._prompts = self._answers = 0

    def events(self) -> list[ImportedEvent]:
        self._end_prompt()
        self._end_answer()
        self._apply(*self._blocks)
        # Chats have no ids, but a start and a first prompt.
        self.session_id = f"aider-{digest_of(*self._new_session, self._first)[:16]}"
        for event in self.made:
            event.session_id = self.session_id
        return self.finished()

    def take(self, line: str) -> None:
        if line.startswith(_PROMPT):
            self._end_answer()
            self._prompt.append(line.removeprefix(_PROMPT).removeprefix(" "))
            return
        self._end_prompt()
        if f"{line} ".startswith(_NOTICE):
            self._take_notice(line.removeprefix(_NOTICE).strip())
        else:
            self._answer.append(line)

    def _take_notice(self, text: str) -> None:
        if told := _MODEL.match(text):
            self.model = told[1]
        elif told := _VERSION.match(text):
            self.start["client_version"] = told[1]
        elif told := _TOKENS.match(text):
            self._usage = {"prompt": _number(told[1]), "completion": _number(told[2])}
            self._end_answer()
        elif told := _COMMIT.match(text):
            self._end_answer()
            self._take_commit(told[1], told[2])
        elif told := _APPLIED.match(text):
            self._end_answer()
            if not self._commits.known:
                self._apply(told[1].strip())

    def _end_prompt(self) -> None:
        """Add the collected lines of a prompt, or of a command."""
        if not self._prompt:
            return
        text, self._prompt = "\n".join(self._prompt).strip(), []
        self._prompts += 1
        self._first = self._first or text
        key = f"prompt-{self._prompts}"
        if not text.startswith("/") or text.startswith(_SPOKEN):
            self.add_prompt(text, key)
        elif text.split(maxsplit=1)[0] == "/undo":
            self.add("feedback", {"kind": "undo"}, key)
        else:
            self.add("x_command", {"text": text}, key)

    def _end_answer(self) -> None:
        text, self._answer = "\n".join(self._answer).strip(), []
        usage, self._usage = self._usage, None
        if not text and usage is None:
            return
        self._answers += 1
        self.add_answer(f"answer-{self._answers}", text=text or None, usage=usage)
        for block in _BLOCK.finditer(text):
            path = block["path"].strip().strip("`*")
            self._blocks.setdefault(path, []).append(FileEdit(path, block["old"], block["new"]))

    def _apply(self, *paths: str) -> None:
        """Add the answer's blocks for files that aider reports as changed."""
        answer = f"answer-{self._answers}"
        for path in paths:
            for at, change in enumerate(self._blocks.pop(path, [])):
                self.changes.add(change, f"{answer}:{path}:{at}", answer)

    def _take_commit(self, name: str, message: str) -> None:
        commit = self._commits.find(name)
        files = list(self._commits.changes(commit)) if commit is not None else []
        for change in files:
            self._blocks.pop(change.path, None)
            self.changes.add(change, f"{name}:{change.path}", f"answer-{self._answers}")
        self._apply(*self._blocks)  # not in this repository
        self.clock_us = commit.ts_us if commit is not None else self.clock_us
        facts = {
            "commit": commit.name if commit is not None else name,
            "message": message,
            "files": [change.path for change in files] or None,
        }
        self.add("vcs_commit", facts, f"commit-{name}")


class _Commits:
    def __init__(self, source: Source, notes: Notes) -> None:
        folder = source.real.parent
        self._repository = Repository(folder, seconds_max=_GIT_SECONDS_MAX)
        self._commits: dict[str, Commit] = {}
        if (folder / ".git").exists():
            try:
                commits = read_branch(self._repository, 0).commits
                self._commits = {commit.name: commit for commit in commits}
            except InvalidInput as error:
                notes.skip("repository that cannot be read", str(error))

    @property
    def known(self) -> bool:
        return bool(self._commits)

    def find(self, name: str) -> Commit | None:
        return next((each for full, each in self._commits.items() if full.startswith(name)), None)

    def changes(self, commit: Commit) -> Iterator[FileEdit]:
        files = commit.changed[0] if commit.changed else ()
        blobs = [blob for file in files for blob in (file.blob, file.before) if blob]
        texts = read_blobs(self._repository, blobs).texts
        for file in files:
            if file.blob is None or file.blob in texts:
                before, after = (texts.get(blob or "", "") for blob in (file.before, file.blob))
                yield FileEdit(str(PurePosixPath(file.path)), before, after, is_whole=True)


def _number(text: str) -> int:
    plain = text.replace(",", "")
    return int(float(plain.rstrip("kM")) * _SCALES.get(plain[-1:], 1))


IMPORTERS = (AiderImporter(),)
