"""reasoning_in_comments: did the agent think aloud in the code.

Measures: how much of what an edit put in is comments. A model that is charged for its thinking was
seen to move it into comments, where the user has to read it and somebody has to delete it.

Formula, per edit that puts in at least `chars_min` characters: share = characters of inserted lines
that are comments alone / characters of inserted lines. Up to `free_share` costs nothing; beyond,

    value = − (share − free_share) / (1 − free_share)

A line is inserted when `before` has it less often than `after`. A session is the mean of its
edits, weighted by inserted characters.

Range: −1, nothing but comments, to 0.

pending: never. censored: never. invalid: never. Shorter edits, and texts in languages that are
prose (Markdown, plain text), have no row.

To game it: put the comment behind code on its line, or write it into strings and docstrings, of
which only whole lines within triple quotes count. What begins as a comment is told from the line
alone: a Python line in a C file is taken for code.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import PurePosixPath

import pyarrow as pa

from penstock_jobs.rewards.bucket import Bucket, by_session
from penstock_jobs.rewards.reward import Reward, RewardRows
from penstock_jobs.rewards.texts.trail import Row, named

_NAME = "reasoning_in_comments"
_BEGINNINGS: dict[str, tuple[str, ...]] = {
    "#": ("py", "rb", "sh", "bash", "zsh", "pl", "r", "yaml", "yml", "toml", "tf", "mk", "ex"),
    "//": (
        "js", "jsx", "ts", "tsx", "mjs", "java", "kt", "scala", "go", "rs", "c", "h", "cc", "cpp",
        "hpp", "cs", "swift", "php", "dart", "zig", "m", "proto", "groovy", "gradle", "vue",
        "svelte",
    ),
    "--": ("sql", "lua", "hs", "elm", "ada"),
    ";": ("clj", "lisp", "el", "scm", "asm", "ini"),
    "%": ("tex", "erl", "matlab"),
    "<!--": ("html", "xml", "svg"),
}  # fmt: skip
_BY_SUFFIX = {suffix: start for start, suffixes in _BEGINNINGS.items() for suffix in suffixes}
_COLUMNS = ("edit_id", "event_id", "path", "before", "after", "checkpoint")
_BLOCK_STYLE = ("/*", "*/", "* ")


@dataclass(frozen=True)
class CommentParameters:
    """`chars_min` are inserted characters of an edit; `free_share` is of them."""

    chars_min: int = 200
    free_share: float = 0.4

    def __post_init__(self) -> None:
        if not 0 <= self.free_share < 1 or self.chars_min < 1:
            raise ValueError("free_share has to be in [0, 1) and chars_min at least 1")


def reasoning_in_comments(bucket: Bucket, parameters: CommentParameters) -> pa.Table:
    """The rows of this reward: module docstring."""
    rows = RewardRows(_NAME)
    sessions: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for session, edits in by_session(bucket.edits, *_COLUMNS).items():
        for target, edit in named(edits):
            found = _scored(edit, parameters)
            if found is not None:
                value, written = found
                sessions[session].append(found)
                checkpoint = edit["checkpoint"]
                rows.add(
                    session, ("edit", target), value=value, weight=written, checkpoint=checkpoint
                )
    for session, parts in sessions.items():
        written = sum(weight for _, weight in parts)
        value = sum(value * weight for value, weight in parts) / written
        rows.add(session, ("session", session), value=value, weight=written)
    return rows.table()


def _scored(edit: Row, parameters: CommentParameters) -> tuple[float, int] | None:
    """The value, and how many characters it is of."""
    if len(edit["after"] or "") < parameters.chars_min:
        return None
    start = _BY_SUFFIX.get(PurePosixPath(edit["path"] or "").suffix[1:].lower())
    if start is None:
        return None
    comments, written = comment_chars(edit["before"] or "", edit["after"] or "", start)
    if written < parameters.chars_min:
        return None
    excess = max(comments / written - parameters.free_share, 0.0)
    return 0.0 - excess / (1 - parameters.free_share), written


def comment_chars(before: str, after: str, start: str) -> tuple[int, int]:
    """Characters of the inserted lines that are comments, and of all inserted lines."""
    left = Counter(before.splitlines())
    comments = written = 0
    within = False
    for line in after.splitlines():
        opens = line.count('"""') + line.count("'''") if start == "#" else 0
        in_quotes = within or opens > 0
        within = within ^ (opens % 2 == 1)
        known = left.get(line)
        if known:
            left[line] = known - 1
            continue
        text = line.strip()
        written += len(text)
        if in_quotes or _is_comment(text, start):
            comments += len(text)
    return comments, written


def _is_comment(text: str, start: str) -> bool:
    return text.startswith(start) or (start == "//" and text.startswith(_BLOCK_STYLE))


REWARD = Reward(_NAME, 1, reasoning_in_comments, CommentParameters)
