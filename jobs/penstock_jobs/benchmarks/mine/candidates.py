"""Candidates: sessions whose work a commit settled, then merged pull requests and commits; their
prompts and their checks."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa

from penstock.core.clock import SECOND_US
from penstock.lake.lake import Lake
from penstock_jobs.benchmarks.attempt import AttemptTask, RunConditions, TreeScore, score_copy
from penstock_jobs.benchmarks.environments.environment import Layer
from penstock_jobs.benchmarks.environments.recipes import ci_jobs, session_command
from penstock_jobs.benchmarks.mine.history import HistoryCommit, ProjectHistory
from penstock_jobs.benchmarks.mine.rules import CheckPlan, Finding, MinedChange, file_kind
from penstock_jobs.benchmarks.sandbox import sandbox as sandboxes
from penstock_jobs.benchmarks.sandbox.sandbox_files import File, text_of
from penstock_jobs.benchmarks.suite import BenchmarkTask, TaskFiles, TaskLimits
from penstock_jobs.rewards.history.git_history import carrying_commits
from penstock_jobs.rewards.history.session_commits import is_of
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


@dataclass(frozen=True)
class Candidate:
    """A change that may become a task. `settled` is the commit that settled it."""

    settled: str
    #: The commit of its tree.
    base: str
    prompt: str
    #: session, pull request or commit.
    source: str
    session: str | None = None
    commands: tuple[str, ...] = ()


def session_candidates(lake: Lake, tenant: str, history: ProjectHistory) -> Iterator[Candidate]:
    """Find the sessions in a repository whose work was settled by one of its commits."""

    def ask(columns: str, view: str, session: str) -> pa.Table:
        sql = _OF_SESSION.format(columns, view, quoted([session]))
        return lake.query(sql, tenant=tenant).arrow()

    for row in lake.query(_SESSIONS, tenant=tenant).arrow().to_pylist():
        base = history.full_name(row["commit"]) if row["commit"] else None
        if base is None and not is_of(history.repository, row["repo"], row["project"]):
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


# The check of a candidate, and its verification: untouched trees fail, settled ones pass

SCRIPT = Path(__file__).with_name("mined_check.py")
LIMITS = TaskLimits(check_seconds=300)
#: Trees are judged so often, always alike.
_ROUNDS = 3
_OUTPUT_CHARS_MAX = 20_000
_RUBRIC = Path(__file__).with_name("rubric.md")


@dataclass(frozen=True)
class VerifyTask:
    task: str
    candidate: Candidate
    conditions: RunConditions
    change: MinedChange = field(repr=False)
    plan: CheckPlan = field(repr=False)
    layer: Layer | None = None


class Verification(NamedTuple):
    """A check with what it says of the untouched and of the settled tree."""

    plan: CheckPlan
    before: str
    after: str
    #: How many of the tests fail before.
    failing: int


def rubric_plan(change: MinedChange) -> CheckPlan:
    solution = "\n".join(diff.text for diff in change.source)
    return CheckPlan("rubric", rubric=_RUBRIC.read_text("utf-8"), solution=solution)


def check_files(change: MinedChange, plan: CheckPlan) -> list[File]:
    """The files of the check beside its script: its plan, and what it lays over a tree."""
    content = msgspec.json.format(msgspec.json.encode(asdict(plan)), indent=1)
    files = [File("check.json", content + b"\n")]
    if plan.check == "rubric":
        texts = {file.path: text for file in change.tree if (text := text_of(file))}
        return [*files, File("before.json", msgspec.json.encode(texts))]
    return [*files, *(file._replace(path=f"tests/{file.path}") for file in change.tests)]


def verify(work: VerifyTask) -> Verification | Finding:
    """Find tests that fail before and pass after, and judge both trees three times.

    For a command or a rubric the first round asks whether it tells the trees apart."""
    if work.conditions.isolated:
        sandboxes.check_isolation()
    plan, untouched = work.plan, list(work.change.tree)
    laid = {file.path: file for file in (*untouched, *work.change.solution)}
    settled = list(laid.values())
    after = _score(work, plan, settled)
    if after.score != 1:
        why = after.error or " ".join(after.output.strip().splitlines()[-2:])[:200]
        return Finding("settled_fails", f"the settled tree fails its check: {why}")
    before = _score(work, plan, untouched)
    failing = int(before.score == 0)
    if plan.check == "pytest":
        wanted = _passed(after)
        failing = len(wanted - _passed(before))
        plan = replace(plan, tests=sorted(wanted))
    if not failing:
        return Finding("untouched_passes", before.error or "the untouched tree passes its check")
    for _ in range(_ROUNDS - 1):
        after, before = _score(work, plan, settled), _score(work, plan, untouched)
        if (after.score, before.score) != (1, 0):
            ends = f"{after.error or after.score} and {before.error or before.score}"
            return Finding("flaky", f"the same trees are not judged alike, but then {ends}")
    before_shown, after_shown = (score.output[-_OUTPUT_CHARS_MAX:] for score in (before, after))
    return Verification(plan, before_shown, after_shown, failing)


def _score(work: VerifyTask, plan: CheckPlan, tree: list[File]) -> TreeScore:
    named, how = (work.task, work.candidate.prompt, ()), (LIMITS, ("python", SCRIPT.name))
    judged, none = plan.check == "rubric", Path("/")
    task = BenchmarkTask(*named, "edit", *how, none, none, none, judged=judged)
    check = [File(SCRIPT.name, SCRIPT.read_bytes()), *check_files(work.change, plan)]
    files = TaskFiles(list(work.change.tree), check)
    return score_copy(AttemptTask(work.conditions, task, files, work.layer), tree)


def _passed(score: TreeScore) -> set[str]:
    """Read the tests that pass, which the check prints last."""
    line = score.output.strip().rpartition("\n")[2]
    return set(json.loads(line)) if score.error is None and line.startswith("[") else set()
