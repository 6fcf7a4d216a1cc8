"""aider: `.aider.chat.history.md`, all chats of a project, one after the other.

Edits come from the commits that aider reports, if the project's Git repository has them. Else they
come from the answer's blocks, in the form that aider announced, for files that it reports as
changed. In architect mode one model's plan is sent to another, and stands in the history twice: as
an answer, and like a prompt. Times have no zone and count as UTC; all events of a chat have the
chat's time.
"""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from penstock.core.errors import InvalidInput
from penstock_jobs.importers.edits import FileEdit, edits_of_patch, is_v4a
from penstock_jobs.importers.fields import digest_of
from penstock_jobs.importers.importer import ImportedEvent, Importer
from penstock_jobs.importers.report import Notes
from penstock_jobs.importers.sources import Candidate, Source
from penstock_jobs.importers.transcript import SessionDraft
from penstock_jobs.rewards.history.git_repository import Commit, Repository, read_branch
from penstock_jobs.rewards.history.git_repository import read_texts as read_blobs

_BEGIN = "# aider chat started at "
_HEADER = re.compile(rb"^# aider chat started at \d{4}-", re.MULTILINE)
_PROMPT, _NOTICE = "####", "> "
#: Commands whose text goes to the model.
_SPOKEN = ("/ask ", "/code ", "/architect ")
_MODEL = re.compile(r"(?:Main model|Model|Models): (\S+)")
_EDITOR = re.compile(r"Editor model: (\S+)")
_VERSION = re.compile(r"Aider v(\S+)", re.IGNORECASE)
_TOKENS = re.compile(r"Tokens: ([\d.,]+[kM]?) sent.*?([\d.,]+[kM]?) received")
_COMMIT = re.compile(r"Commit ([0-9a-f]{7,40}) (.*)")
_APPLIED = re.compile(r"Applied edit to (.+)")
_EDIT_FORMAT = re.compile(r".* with (?:architect|(?:editor-)?(?P<form>[a-z-]+)) edit format")
#: aider repeats a question that it asked as if the user had typed it, with the answer.
_QUESTION = re.compile(r".*\? \(Y\)es/\(N\)o.*\[\w+\]:", re.DOTALL)
_THOUGHT = re.compile(r"<(thinking-content-\w+)>.*?</\1>", re.DOTALL)
#: The smallest share of lines that a plan and its repetition have in common.
_PLAN_SHARE_MIN = 0.8
#: aider chooses a fence that the files do not have.
_FENCED = re.compile(
    r"^(?P<above>[^\n]*)\n(?P<fence>`{3,}|~{3,}|<(?P<tag>source|code|pre|codeblock|sourcecode)>)"
    r"[^\n]*\n(?P<body>.*?)^(?:(?P=fence)|</(?P=tag)>) *$",
    re.DOTALL | re.MULTILINE,
)
_UNNUMBERED = re.compile(r"^--- (\S+)[^\n]*\n\+\+\+ (\S+)[^\n]*\n", re.MULTILINE)
_REPLACED = re.compile(
    r"<{5,9} SEARCH>?\n(?P<old>.*?)^={5,9}\n(?P<new>.*?)^>{5,9} REPLACE", re.DOTALL | re.MULTILINE
)
_SCALES = {"k": 1_000, "M": 1_000_000}
_GIT_SECONDS_MAX = 30.0


class AiderImporter(Importer):
    name = "aider"

    def recognises(self, candidate: Candidate) -> bool:
        return bool(_HEADER.search(candidate.beginning))

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
            elif line.strip():
                notes.skip("line before the first chat", line)
        if chat is not None:
            yield from chat.events()


def _lines(source: Source, notes: Notes) -> Iterator[str]:
    """Read all lines, including blank ones, which occur in blocks of edits."""
    last = 0
    for number, line in source.lines(notes):
        yield from [""] * (number - last - 1)
        yield line.decode(errors="replace").rstrip("\r\n")
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
        self._edit_format = ""
        #: The model that carries out plans, and the model of the next answer if it is that one.
        self._editor: str | None = None
        self._writer: str | None = None
        self._blocks: dict[str, list[FileEdit]] = {}
        #: Files that aider changed, whose commit has not been reported.
        self._applied: list[str] = []
        self._plan: set[str] = set()
        #: Whether aider ends its own lines with two spaces. The model's lines have none.
        self._spaced = False
        self._prompts = self._answers = 0

    def events(self) -> list[ImportedEvent]:
        self._end_prompt()
        self._end_answer()
        self._end_edits()
        # Chats have no ids, but a start and a first prompt.
        self.session_id = f"aider-{digest_of(*self._new_session, self._first)[:16]}"
        for event in self.made:
            event.session_id = self.session_id
        return self.finished()

    def take(self, raw: str) -> None:
        line, spaced = raw.rstrip(), raw.endswith("  ")
        is_own = f"{line} ".startswith((_PROMPT, _NOTICE))
        if is_own and self._spaced and not spaced and any(self._answer):
            self._answer.append(line)  # a heading or a quotation of the model
            return
        self._spaced |= spaced and line.startswith(_NOTICE)
        if line.startswith(_PROMPT):
            self._end_answer()
            self._prompt.append(line.removeprefix(_PROMPT).removeprefix(" "))
            return
        self._end_prompt()
        if is_own:
            self._take_notice(line.removeprefix(_NOTICE).strip())
        else:
            self._answer.append(line)

    def _take_notice(self, text: str) -> None:
        if told := _EDIT_FORMAT.match(text):
            self._edit_format = told["form"] or self._edit_format
        if told := _MODEL.match(text):
            self.model = told[1]
        elif told := _EDITOR.match(text):
            self._editor = told[1]
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
            self._applied.append(told[1].strip())
            if not self._commits.known:
                self._apply()

    def _end_prompt(self) -> None:
        """Add the collected lines of a prompt, or of a command."""
        if not self._prompt:
            return
        text, self._prompt = "\n".join(self._prompt).strip(), []
        self._prompts += 1
        self._first = self._first or text
        key = f"prompt-{self._prompts}"
        lines = _lines_of(text)
        both = len(lines & self._plan)
        if both and both >= _PLAN_SHARE_MIN * max(len(lines), len(self._plan)):
            self.add("x_context", {"kind": "plan", "text": text}, key)
            self._writer = self._editor
        elif _QUESTION.match(text):
            self.add("x_context", {"kind": "client", "text": text}, key)
        elif not text.startswith("/") or text.startswith(_SPOKEN):
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
        writer, self._writer = self._writer or self.model, None
        self.add_answer(f"answer-{self._answers}", text=text or None, usage=usage, model=writer)
        self._end_edits()
        text = _THOUGHT.sub("", text)
        self._plan = _lines_of(text)
        for change in _edits(f"\n{text}", self._edit_format):
            self._blocks.setdefault(change.path, []).append(change)

    def _end_edits(self) -> None:
        self._apply()
        for path, blocks in self._blocks.items():
            self.notes.skip("edit of an answer that aider did not apply", path, len(blocks))
        self._blocks.clear()

    def _apply(self) -> None:
        """Add the answers' blocks for files that aider reports as changed."""
        answer, applied, self._applied = f"answer-{self._answers}", self._applied, []
        for path in dict.fromkeys(applied):
            # A model may name a file by the end of its path.
            near = (name for name in self._blocks if f"/{path}".endswith(f"/{name}"))
            changes = self._blocks.pop(next(near, path), [])
            if not changes:
                self.notes.skip("applied edit whose text the history does not show", path)
            for at, change in enumerate(changes):
                before = self.changes.texts.get(path, "") if change.is_whole else change.before
                placed = change._replace(path=path, before=before)
                self.changes.add(placed, f"{answer}:{path}:{at}", answer)

    def _take_commit(self, name: str, message: str) -> None:
        commit = self._commits.find(name)
        files = list(self._commits.changes(commit)) if commit is not None else []
        for change in files:
            self._blocks.pop(change.path, None)
            self.changes.add(change, f"{name}:{change.path}", f"answer-{self._answers}")
        placed = {change.path for change in files}
        self._applied = [path for path in self._applied if path not in placed]
        self._apply()  # not in this repository
        self.clock_us = commit.ts_us if commit is not None else self.clock_us
        facts = {
            "commit": commit.name if commit is not None else name,
            "message": message,
            "files": [change.path for change in files] or None,
        }
        self.add("vcs_commit", facts, f"commit-{name}")


def _lines_of(text: str) -> set[str]:
    return set(filter(None, map(str.strip, text.splitlines())))


def _edits(text: str, edit_format: str) -> Iterator[FileEdit]:
    """The edits that an answer shows, in aider's forms."""
    if is_v4a(text):
        yield from edits_of_patch(text)
        return
    for block in _FENCED.finditer(text):
        body, above = block["body"], _path_of(block["above"])
        replaced = list(_REPLACED.finditer(body))
        inside = _path_of(body.partition("\n")[0])
        for each in replaced:  # the path may stand above the fence, or in its first line
            inner = _path_of(body[: each.start()].rstrip("\n").rpartition("\n")[2])
            above = inner or above
            yield FileEdit(above, each["old"], each["new"])
        if replaced:
            continue
        if len(files := _UNNUMBERED.split(body)) > 1:
            for old, new, hunks in zip(files[1::3], files[2::3], files[3::3], strict=True):
                action, path = ("Add", new) if old == "/dev/null" else ("Update", old)
                header = f"*** Begin Patch\n*** {action} File: {path}\n"
                yield from edits_of_patch(f"{header}{hunks}*** End Patch")
        elif edit_format == "whole" and (above or inside):
            yield FileEdit(above, "", body, is_whole=True)


def _path_of(line: str) -> str:
    return line.strip().strip("`*#:").strip()


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
