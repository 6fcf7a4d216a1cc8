"""Candidates: sessions whose work a commit settled, then merged pull requests and commits."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import msgspec
import pyarrow as pa

from penstock.core.clock import SECOND_US
from penstock.lake.lake import Lake
from penstock_jobs.benchmarks.environments.recipes import ci_jobs, session_command
from penstock_jobs.benchmarks.mine.history import HistoryCommit, ProjectHistory
from penstock_jobs.benchmarks.mine.rules import MinedChange, file_kind
from penstock_jobs.benchmarks.mine.verification import Candidate, CheckPlan
from penstock_jobs.rewards.history.git_history import carrying_commits
from penstock_jobs.rewards.history.session_commits import plain_repo, repository_of
from penstock_jobs.rewards.rows import quoted

#: In a longer conversation nobody can say which words were the request.
_MESSAGES_MAX = 5
_SESSIONS = """SELECT session_id, repo, project, "commit" FROM sessions
    WHERE edits > 0 ORDER BY first_ts DESC, session_id"""
_OF_SESSION = "SELECT {} FROM {} WHERE session_id = {} ORDER BY ts, seq"
#: In the arguments of a tool call, as JSON.
_COMMAND = re.compile(r'"(?:command|cmd)":\s*("(?:[^"\\]|\\.)*")')
_HELPERS = ("conftest.py", "__init__.py")
_PULL = re.compile(r"\AMerge pull request |\A.*\(#\d+\)\s*(\n|\Z)")


def session_candidates(lake: Lake, tenant: str, history: ProjectHistory) -> Iterator[Candidate]:
    """Find the sessions in a repository whose work was settled by one of its commits."""

    def ask(columns: str, view: str, session: str) -> pa.Table:
        sql = _OF_SESSION.format(columns, view, quoted([session]))
        return lake.query(sql, tenant=tenant).arrow()

    for row in lake.query(_SESSIONS, tenant=tenant).arrow().to_pylist():
        base = history.full_name(row["commit"]) if row["commit"] else None
        if base is None and not _is_here(history, row["repo"], row["project"]):
            continue
        name = row["session_id"]
        edits = ask("session_id, ts, path, before, after", "edits", name)
        carriers = carrying_commits(edits, history.repository)
        if not carriers:
            continue
        settled, last_us = carriers[0]
        if base is None or base == settled or not history.is_ancestor(base, settled):
            base = history.full_name(f"{settled}~1")
        said = [
            message["text"]
            for message in ask("ts, text", "user_messages", name).to_pylist()
            if message["text"] and message["ts"].timestamp() * SECOND_US <= last_us
        ]
        if base is not None and 0 < len(said) <= _MESSAGES_MAX:
            calls = "\n".join(
                map(str, ask("arguments", "tool_calls", name)["arguments"].to_pylist())
            )
            commands = tuple(map(msgspec.json.decode, _COMMAND.findall(calls)))
            prompt = "\n\n".join(dict.fromkeys(said))
            yield Candidate(settled, base, prompt, "session", name, commands)


def _is_here(history: ProjectHistory, repo: str | None, project: str | None) -> bool:
    names = {plain_repo(name) for name in (repo, project) if name}
    folder, own = repository_of(repo or ""), history.repository.directory.resolve()
    return (history.origin is not None and plain_repo(history.origin) in names) or (
        folder is not None and folder.resolve() == (repository_of(str(own)) or own)
    )


def commit_candidates(commits: Sequence[HistoryCommit]) -> Iterator[Candidate]:
    """Make candidates of merged pull requests and commits; the first one has no tree before."""
    for commit in commits:
        if commit.parents:
            source = "pull request" if _PULL.match(commit.message) else "commit"
            yield Candidate(commit.name, commit.parents[0], commit.message, source)


def prepare(
    history: ProjectHistory, candidate: Candidate
) -> tuple[Candidate, MinedChange, CheckPlan | None]:
    """Read the files of a candidate, complete its prompt, and plan its check.

    Without a plan only a model could judge. Raises InvalidInput."""
    before, after = history.tree(candidate.base), history.tree(candidate.settled)
    diffs = history.diff(candidate.base, candidate.settled)
    if candidate.session is None:
        told = changelog_text((diff.path, diff.added) for diff in diffs)
        candidate = replace(candidate, prompt=prompt_of([candidate.prompt], told))
    changed = {path: entry for path, entry in after.items() if before.get(path) != entry}
    own = {path: entry for path, entry in changed.items() if file_kind(path) != "test"}
    tests = {path: entry for path, entry in after.items() if file_kind(path) == "test"}
    tree = history.files(before)
    change = MinedChange(tree, history.files(own), history.files(tests), diffs)
    brought = [path for path in sorted(changed.keys() - own.keys()) if tests[path].kind != "link"]
    python = (path for path in brought if path.endswith(".py"))
    if runnable := [path for path in python if not path.endswith(_HELPERS)]:
        return candidate, change, CheckPlan("pytest", files=runnable)
    said = session_command(candidate.commands)
    command = said or next((job.command for job in ci_jobs(tree)), None)
    return candidate, change, CheckPlan("command", command=command) if command else None


# Prompts: what a commit or pull request says, without what only its author could know

_MERGE = re.compile(r"\AMerge (pull request|branch|remote-tracking branch|tag)\b.*\n*")
_TRAILER = re.compile(
    r"(?mi)^(signed-off-by|co-authored-by|reviewed-by|acked-by|tested-by|reported-by|suggested-by|"
    r"change-id|cc|bug|issue|pr|pull-request|see-also|reviewed-on|git-svn-id|"
    r"claude-session|generated[- ]by|assisted-by|made-with)\s*:.*$|^\(cherry picked from .*\)$"
)
_URL = re.compile(r"<?https?://[^\s>)]+>?")
_HASH = re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")
_ROLE = re.compile(r"[:{](?:user|ghuser|cve)[:}]`[^`]*`")
_CODE_ROLE = re.compile(r"[:{](?!(?:issue|pr|pull|gh)[:}])[a-z:]+[:}]`([^`<]+)(?:\s*<[^>]*>)?`")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_NUMBER = r"(?:(?:\w[\w.-]*/\w[\w.-]*)?(?:#|\bgh-)\d+|[:{](?:issue|pr|pull|gh)[:}]`[^`]*`)"
_NUMBERS = re.compile(
    r"(?i)[(\[]?(?:\b(?:fix(?:e[sd])?|close[sd]?|resolve[sd]?|refs?|see(?: also)?|related to|"
    rf"part of|in|per|issue|bug|pr|pull request)s?:?\s*)*{_NUMBER}"
    rf"(?:(?:\s*,\s*|\s+and\s+){_NUMBER})*[)\]]?"
)
_SKIP = re.compile(r"\[(?:skip ci|ci skip)\]|(?<!\S)[(\[]\s*[)\]]")
_EMPTY_MARKS = re.compile(r"(?m)^[\s*+.,:;()\[\]-]+$")
#: What a removed number leaves at the beginning of a line.
_LEFT_OVER = re.compile(r"(?m)^(?:[:;,.]\s+)+")
#: Files that tell users what changed.
_CHANGELOG = re.compile(r"(?i)(^|/)(change(s|log)|news|history|release[-_]?notes?)[^/]*(/|\.|$)")
#: Lines of a changelog that say nothing: keys of YAML, versions, dates, rules.
_HEADING = re.compile(
    r"(?i)^\s*(---|\w+:|- \||v?\d[\w.]*.*|#+ .*|[=~^\-*_]{3,}|\.\. .*|"
    r"(un)?released.*|version .*)?\s*$"
)
#: A longer changelog is about more than the change.
_CHANGELOG_LINES_MAX = 15


def clean_message(message: str) -> str:
    """Remove trailers, numbers, hashes and addresses from a commit's message."""
    text = _MERGE.sub("", message.replace("\r", ""))
    text = _LINK.sub(r"\1", _CODE_ROLE.sub(r"`\1`", _ROLE.sub("", text)))
    for pattern in (_TRAILER, _URL, _NUMBERS, _HASH, _SKIP, _LEFT_OVER, _EMPTY_MARKS):
        text = pattern.sub("", text)
    text = re.sub(r"(?m)(?<=\S) +(?=[ ,)]|\.?$)", "", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def changelog_text(added: Iterable[tuple[str, Iterable[str]]]) -> str:
    """Read what a change tells the users, from the added lines of files by path."""
    lines = [
        re.sub(r"^\s*- \|?\s*", "- ", line.rstrip())
        for path, own in added
        if _CHANGELOG.search(path)
        for line in own
        if not _HEADING.match(line)
    ]
    return clean_message("\n".join(lines)) if len(lines) <= _CHANGELOG_LINES_MAX else ""


def prompt_of(messages: Iterable[str], told: str = "") -> str:
    """Join messages and the changelog's text, each once."""
    parts: list[str] = []
    for text in (*map(clean_message, messages), told):
        plain = _plain(text)
        if plain and not any(plain in _plain(part) for part in parts):
            parts = [part for part in parts if _plain(part) not in plain]
            parts.append(text)
    return "\n\n".join(parts)


def _plain(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))
