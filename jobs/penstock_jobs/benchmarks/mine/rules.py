"""Rules of proposals: which changes make a task, and what is measured of them. All are pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from os.path import normpath
from pathlib import PurePosixPath
from typing import Any, Literal, NamedTuple

from penstock.core.files import is_relative_name
from penstock.core.settings import MIB
from penstock_jobs.benchmarks.mine.history import FileDiff
from penstock_jobs.benchmarks.sandbox.sandbox_files import IGNORED, File, text_of
from penstock_jobs.rewards.texts.changes import ink
from penstock_jobs.rewards.texts.languages import comment_start, is_comment

CHANGED_LINES_MAX = 1_000
_CHANGED_FILES_MAX, _TREE_FILES_MAX, _TREE_BYTES_MAX = 20, 5_000, 64 * MIB
#: Fewer words ask for nothing that a person could do.
_PROMPT_WORDS_MIN = 8
_PROMPT_CHARS_MAX = 20_000
#: Shorter lines of code, and such with fewer marks, are chance.
_TELLING_CHARS, _CODE_MARKS_MIN = 20, 3
_CODE_MARKS = re.compile(r"[()\[\]{}=;<>_]")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{2,}")
_STRING = re.compile(r""""([^"\n]{10,})"|'([^'\n]{10,})'""")
_LINE_NUMBER = re.compile(r"([\w./-]+\.\w+):\d+|\bline \d+ (?:of|in) `?([\w./-]+\.\w+)")

FileKind = Literal["test", "docs", "dependencies", "source"]

_BUNDLES = (".bundle", ".pack")
_TEST_FOLDERS = {"test", "tests", "testing", "testdata", "spec", "specs", "__tests__", "t"}
_TEST_NAME = re.compile(
    r"(?i)^(test_.*|tests?\.\w+|conftest\.py|.*[._-](test|tests|spec)\.\w+|.*Tests?\.(java|kt|cs))$"
)
_DOCS_FOLDERS = {"doc", "docs", "changelog.d", "changes", "newsfragments", "releasenotes"}
_DOCS_NAME = re.compile(
    r"(?i)^((licen[cs]e|authors|changelog|changes|news|history|copying).*|.*\.(md|rst|txt|adoc))$"
)
_CONFIG_NAME = re.compile(
    r"(?i)^(.*\.lock|.*-lock\.(json|ya?ml)|(dev-)?requirements.*\.(txt|in)|package\.json|"
    r"pyproject\.toml|setup\.(py|cfg)|(tox|mypy|pytest)\.ini|cargo\.toml|go\.(mod|sum)|"
    r"gemfile|pom\.xml|build\.gradle.*|makefile|manifest\.in|noxfile\.py|codspeed\.yml|\..*)$"
)
_WORK = (
    ("refactor", re.compile(r"(?i)\b(refactor|rename|clean ?up|simplif|restructur|extract)")),
    ("bug", re.compile(
        r"(?i)\b(fix|bug|error|crash|wrong|incorrect|broken|regress|fail|leak|instead of|"
        r"no longer|does ?n[o']t|do ?n[o']t|cannot|can't|prevent|correctly|properly|raises?)"
    )),
    ("feature", re.compile(r"(?i)\b(add|new|support|allow|implement|introduc|accept|enable|let)")),
)  # fmt: skip


class Finding(NamedTuple):
    """A rule that a candidate breaks, and how."""

    rule: str
    why: str


@dataclass(frozen=True)
class CheckPlan:
    #: pytest, command or rubric.
    check: str
    files: Sequence[str] = ()
    #: The tests that must pass; None asks which ones do.
    tests: Sequence[str] | None = None
    command: str = ""
    rubric: str = ""
    solution: str = ""


@dataclass(frozen=True)
class MinedChange:
    """A change as a task: the tree before, the solution over it, and the tests that came with it.

    `tests` are all test files of the settled tree; they are laid over a tree that is checked."""

    tree: Sequence[File]
    solution: Sequence[File]
    tests: Sequence[File]
    diffs: Sequence[FileDiff]

    @cached_property
    def source(self) -> list[FileDiff]:
        return [diff for diff in self.diffs if file_kind(diff.path) == "source"]

    @cached_property
    def tree_text(self) -> str:
        return "\n".join(text_of(file) for file in self.tree)

    def added(self, kind: FileKind) -> list[str]:
        own = (diff.added for diff in self.diffs if file_kind(diff.path) == kind)
        return [line for lines in own for line in lines]

    def added_words(self, kind: FileKind) -> set[str]:
        return words_of("\n".join(self.added(kind)))


def words_of(text: str) -> set[str]:
    return set(_WORD.findall(text))


def file_kind(path: str) -> FileKind:
    *folders, name = path.split("/")
    if _TEST_FOLDERS.intersection(folders) or _TEST_NAME.match(name):
        return "test"
    if _CONFIG_NAME.match(name) or (folders and folders[0] in (".github", ".circleci")):
        return "dependencies"
    return "docs" if _DOCS_NAME.match(name) or _DOCS_FOLDERS.intersection(folders) else "source"


def broken_rule(change: MinedChange, prompt: str) -> Finding | None:
    """Find the first rule that a candidate breaks. The cheapest come first."""
    for rule in (
        only_docs, too_large, says_too_little, unusable_tree, history_in_tree, gives_answer, untold,
    ):  # fmt: skip
        if why := rule(change, prompt):
            return Finding(rule.__name__, why)
    return None


def only_docs(change: MinedChange, _prompt: str) -> str | None:
    def code(path: str, lines: Iterable[str]) -> str:
        start = comment_start(path)
        stripped = (line.strip() for line in lines)
        return "".join(ink(line) for line in stripped if not (start and is_comment(line, start)))

    if any(code(path, added) != code(path, gone) for path, added, gone, _ in change.source):
        return None
    return "it changed only documents, tests, format or dependencies"


def too_large(change: MinedChange, prompt: str) -> str | None:
    counts = (
        ("changed lines", _changed_lines(change), CHANGED_LINES_MAX),
        ("changed files", len(change.source), _CHANGED_FILES_MAX),
        ("files in its tree", len(change.tree), _TREE_FILES_MAX),
        ("bytes in its tree", sum(len(file.content) for file in change.tree), _TREE_BYTES_MAX),
        ("characters in its prompt", len(prompt), _PROMPT_CHARS_MAX),
    )
    over = (f"{count} {what}, over {most}" for what, count, most in counts if count > most)
    return next(over, None)


def says_too_little(_change: MinedChange, prompt: str) -> str | None:
    words = {word.casefold() for word in re.findall(r"[^\W\d_]{2,}", prompt)}
    few = len(words) < _PROMPT_WORDS_MIN
    return f"the request says too little: {prompt[:80]!r}" if few else None


def unusable_tree(change: MinedChange, _prompt: str) -> str | None:
    for path, content, kind in change.tree:
        target = content.decode(errors="replace") if kind == "link" else ""
        to = PurePosixPath(normpath(PurePosixPath(path).parent / target)).parts[:1]
        if to in (("..",), ("/",)) or not is_relative_name(path):
            return f"the name or the target of {path} is not usable"
    return None


def history_in_tree(change: MinedChange, _prompt: str) -> str | None:
    """Find version control, bundles and patches in the tree, and files that hold the fix."""
    telling = {line.strip() for line in change.added("source") if is_code(line)}
    own = {diff.path for diff in change.source}
    for file in change.tree:
        lines = text_of(file).splitlines() if telling and file.path not in own else ()
        held = telling & {line.lstrip("+ \t").rstrip() for line in lines}
        is_kept = IGNORED.intersection(file.path.split("/")) or file.path.endswith(_BUNDLES)
        if is_kept or 2 * len(held) > max(len(telling), 2):
            return f"{file.path} in its tree may hold the solution"
    return None


def gives_answer(change: MinedChange, prompt: str) -> str | None:
    """Find the answer in a prompt: its code, names that only it has, or its place."""
    plain, asked = " ".join(prompt.split()), words_of(prompt)
    for line in change.added("source"):
        if is_code(line) and " ".join(line.split()) in plain:
            return f"its prompt holds a line of the solution: {line.strip()}"
    known = words_of(change.tree_text) | change.added_words("test") | change.added_words("docs")
    told = (change.added_words("source") & asked) - known
    if names := sorted(filter(_is_name, told)):
        return f"its prompt has names that only the solution has: {', '.join(names[:5])}"
    for where in filter(None, (one or other for one, other in _LINE_NUMBER.findall(prompt))):
        if any(f"/{diff.path}".endswith(f"/{where}") for diff in change.source):
            return f"its prompt names a line of {where}"
    return None


def untold(change: MinedChange, prompt: str) -> str | None:
    """Find names and texts of the solution that tests ask for, and that nobody could know."""
    asked = change.added_words("test") & change.added_words("source")
    if names := sorted(asked - words_of(change.tree_text) - words_of(prompt)):
        return f"its tests ask for names that nothing tells: {', '.join(names[:5])}"
    texts = _letters("\n".join(change.added("source")))
    told = _letters(change.tree_text) + _letters(prompt)
    for one, other in _STRING.findall("\n".join(change.added("test"))):
        text = _letters(one or other)
        if " " in text.strip() and text in texts and text not in told:
            return f"its tests ask for a text that nothing tells:{text}"
    return None


def _letters(text: str) -> str:
    return " ".join(("", *re.findall(r"[^\W_]+", text), ""))


def is_code(line: str) -> bool:
    """Whether a line is long enough, and code enough, to be recognised elsewhere."""
    return len(ink(line)) >= _TELLING_CHARS and len(_CODE_MARKS.findall(line)) >= _CODE_MARKS_MIN


def _is_name(word: str) -> bool:
    """Whether a word looks like a name of code rather than one of a language."""
    return "_" in word.strip("_") or word.startswith("_") or bool(re.search(r"[a-z][A-Z]|\d", word))


# Measures


def measure(change: MinedChange, prompt: str) -> dict[str, Any]:
    """Measure the languages, by suffix and size, the size, and the kind of work."""
    suffixes = Counter[str]()
    for diff in change.source:
        suffixes[PurePosixPath(diff.path).suffix[1:].lower()] += len(diff.added) + len(diff.removed)
    return {
        "languages": [suffix for suffix, _ in suffixes.most_common() if suffix],
        "changed_lines": _changed_lines(change),
        "changed_files": len(change.source),
        "work": kind_of_work(prompt),
        "prompt_words": len(prompt.split()),
    }


def _changed_lines(change: MinedChange) -> int:
    return sum(len(diff.added) + len(diff.removed) for diff in change.source)


def kind_of_work(prompt: str) -> str:
    """Guess the kind of work from the first line that names one."""
    for line in prompt.splitlines():
        found = [(match.start(), kind) for kind, words in _WORK if (match := words.search(line))]
        if found:
            return min(found)[1]
    return "other"
