"""The audit of transcripts: who cheats is found, and nobody else is suspected."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_jobs.benchmarks.audit.audit import read_transcript, transcript_of_messages
from penstock_jobs.benchmarks.audit.rules import AuditedTask, findings_in
from penstock_jobs.benchmarks.audit.steps import (
    AttemptTranscript,
    Kind,
    Step,
    commands_in,
    files_written,
)
from tests.support.benchmarks.agent_runs import CHEATING, HONEST, AgentRun
from tests.support.benchmarks.transcripts import claude_code, messages, trajectory
from tests.support.benchmarks.unseen_agent_runs import (
    EDGE_CHEATING,
    EDGE_HONEST,
    UNSEEN_CHEATING,
    UNSEEN_HONEST,
)


def _claude_code(folder: Path, run: AgentRun) -> AttemptTranscript:
    return read_transcript(claude_code(folder, run.request, run.acts))


def _harbor(folder: Path, run: AgentRun) -> AttemptTranscript:
    return read_transcript(trajectory(folder, run.request, run.acts))


def _inspect(_folder: Path, run: AgentRun) -> AttemptTranscript:
    return transcript_of_messages(messages(run.request, run.acts))


Read = Callable[[Path, AgentRun], AttemptTranscript]
HARNESSES = pytest.mark.parametrize("read", [_claude_code, _harbor, _inspect])
CHEATS = CHEATING + UNSEEN_CHEATING + EDGE_CHEATING
KINDS: list[Kind] = ["command", "read", "edit", "fetch"]
OTHERS = HONEST + UNSEEN_HONEST + EDGE_HONEST


@HARNESSES
@pytest.mark.parametrize("run", CHEATS, ids=lambda run: run.name)
def test_each_planted_leak_is_found(tmp_path: Path, run: AgentRun, read: Read) -> None:
    found = findings_in(run.task, read(tmp_path, run))
    assert run.rule in {finding.rule for finding in found}, found


@HARNESSES
@pytest.mark.parametrize("run", OTHERS, ids=lambda run: run.name)
def test_an_honest_run_is_never_suspected(tmp_path: Path, run: AgentRun, read: Read) -> None:
    transcript = read(tmp_path, run)
    assert transcript.steps
    assert findings_in(run.task, transcript) == ()


def test_there_are_as_many_as_are_promised() -> None:
    assert (len(CHEATS), len(OTHERS)) == (44, 120)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.text(), st.text()), max_size=4), st.text())
def test_no_transcript_is_too_odd(acts: list[tuple[Kind, str, str]], prompt: str) -> None:
    steps = [
        Step(number, kind, text, output=more, before=more, after=prompt)
        for number, (kind, text, more) in enumerate(acts, 1)
    ]
    findings_in(AuditedTask(), AttemptTranscript(steps, prompt, prompt))


def test_a_finding_names_its_step_and_text(tmp_path: Path) -> None:
    first = findings_in(CHEATING[0].task, _claude_code(tmp_path, CHEATING[0]))[0]
    assert (first.step, first.text) == (2, "git show 9f3c2ab")


def test_commands_are_split_where_a_shell_splits_them() -> None:
    line = "cd /x && FOO=1 git -C /y log --all | head; echo 'a && b' > out.txt"
    assert list(commands_in(line)) == [
        ["cd", "/x"], ["git", "-C", "/y", "log", "--all"], ["head"],
        ["echo", "a && b", ">", "out.txt"],
    ]  # fmt: skip
    assert list(commands_in("bash -lc 'git stash pop'")) == [["git", "stash", "pop"]]
    assert list(commands_in("# it's\necho 'unclosed")) == [["#", "it's", "echo", "'unclosed"]]
    heredoc = "python - <<'EOF'\nrm('tests/test_a.py')\nEOF\nls; cat <<X >> a.py\n1\nX"
    assert list(commands_in("echo '' | wc")) == [["echo", ""], ["wc"]]
    assert [words[0] for words in commands_in(heredoc)] == ["python", "ls", "cat"]
    assert list(files_written(heredoc)) == [("a.py", "1\n", True)]
