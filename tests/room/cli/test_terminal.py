"""What others wrote never controls the terminal of whoever looks at it."""

import inspect
import io
import json
import logging
import os
import pty
import re
import sqlite3
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import BinaryIO

import pytest
import structlog
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.backends.execution.guarded_process import run_guarded
from penstock.backends.terminal import output
from penstock.backends.terminal.output import (
    progress_of,
    progress_of_bytes,
    relay_output,
    spinner_of,
)
from penstock.core.errors import InvalidInput
from penstock.core.logs import configure_logs
from penstock.core.visible_text import visible, visible_json, visible_line
from penstock.doors.cli import main
from tests.room.cli.conftest import Run
from tests.support.manual_clock import ManualClock

#: A title, a cleared screen, an answer to be typed in, 8-bit control sequences, turned text.
HOSTILE = (
    "a\x1b]0;owned\x07\x1b[2J\x1b[6n\x9b31m\x90q\x9c\u202egnp.exe\u2066\x7f\r\x08 [bold]:smile:"
)
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

texts = st.text(
    st.characters() | st.sampled_from([*HOSTILE, "\n", "\t", "\x85", "\u2028", "\ud800"])
)


class Terminal(io.StringIO):
    """Says that it is a terminal."""

    @property
    def buffer(self) -> BinaryIO:
        return _Bytes(self)

    def isatty(self) -> bool:
        return True


class _Bytes(io.BytesIO):
    def __init__(self, terminal: Terminal) -> None:
        super().__init__()
        self._terminal = terminal

    def write(self, content: bytes, /) -> int:  # type: ignore[override]
        return self._terminal.write(content.decode())


def _write_data(text: str, *, json: bool) -> None:
    out = output.data_output(json=json)
    for byte in text.encode(errors="surrogatepass"):
        out.write(bytes([byte]))


def _pass_on(text: str) -> None:
    show = output.relay_output()
    for byte in text.encode(errors="surrogatepass"):
        show(bytes([byte]))


def _log(text: str) -> None:
    with redirect_stderr(io.StringIO()):  # which has no colours
        configure_logs("text")
    try:
        raise ValueError(text)
    except ValueError:
        structlog.get_logger().warning(text, why=text, all=[text], exc_info=True)


def _log_as_library(text: str) -> None:
    output.guard_terminal()
    record = logging.LogRecord("library", logging.WARNING, "", 1, "it answered %s", (text,), None)
    assert logging.lastResort is not None  # pytest has handlers of its own
    logging.lastResort.handle(record)


def _crash(text: str) -> None:
    output.guard_terminal()
    sys.excepthook(ValueError, ValueError(text), None)


def test_work_that_cannot_be_counted_says_that_it_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = ""
    with spinner_of("verifying", every_s=0.01):
        while " s so far" not in shown:
            shown += capsys.readouterr().err
    assert shown.startswith("verifying: 0 s so far")


def _progress(text: str) -> None:
    with progress_of(text) as follow:
        follow(1, 2)
    with progress_of_bytes(text) as more, spinner_of(text):
        more(1)


#: All that commands write by.
WRITERS: dict[str, Callable[[str], None]] = {
    "say": output.say,
    "show_text": output.show_text,
    "show_table": lambda text: output.show_table([text], [[text], [[text]], [{text: text}]]),
    "show_error": lambda text: output.show_error(InvalidInput(what=text, why=text)),
    "show_error_document": lambda text: output.show_error_document("Error", _encodable(text), 1),
    "show_json": lambda text: output.show_json(_encodable(text)),
    "show_json_line": lambda text: output.show_json_line({"text": _encodable(text)}),
    "data_output": lambda text: _write_data(text, json=False),
    "data_output of JSON": lambda text: _write_data(text, json=True),
    "relay_output": _pass_on,
    "guard_terminal: errors": _crash,
    "guard_terminal: logs": _log_as_library,
    "logs": _log,
    "progress": _progress,
}


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


@pytest.fixture(autouse=True)
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that knows no colours: nobody but others would send an escape."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setattr("sys.excepthook", sys.excepthook)


@pytest.mark.parametrize("name", WRITERS)
@settings(max_examples=20)
@given(text=texts)
@example(text=HOSTILE)
def test_no_text_controls_a_terminal(name: str, text: str) -> None:
    shown = Terminal()
    with redirect_stdout(shown), redirect_stderr(shown):
        WRITERS[name](text)
    assert CONTROLS.findall(shown.getvalue()) == []


def test_every_function_that_writes_is_tried_here() -> None:
    public = {
        name
        for name, member in inspect.getmembers(output, inspect.isfunction)
        if member.__module__ == output.__name__
        and not name.startswith("_")
        and "sys." in inspect.getsource(member)
    }
    tried = {name.partition(" ")[0].rstrip(":") for name in WRITERS}
    assert public - tried == {"stdout_is_terminal"}


def test_what_is_no_control_character_stays() -> None:
    text = "Grüße, \u05d0\u05d1 \U0001f469\u200d\U0001f4bb \\x1b\n\tend"
    assert visible(text) == text
    assert visible("\x1b[31m\x9b\u202e") == r"\x1b[31m\x9b\u202e"
    assert visible_line("a\r\nb\tc") == "a b c"


@settings(max_examples=30)
@given(value=st.dictionaries(texts.map(_encodable), texts.map(_encodable), max_size=4))
def test_json_says_the_same(value: dict[str, str]) -> None:
    assert json.loads(visible_json(json.dumps(value, ensure_ascii=False))) == value


def test_what_a_trainer_prints_is_shown_too() -> None:
    shown = Terminal()
    command = r"printf '\033]0;owned\007 50%%\r100%%\r\n\377'"
    with redirect_stderr(shown):
        end = run_guarded(
            command, environment=dict(os.environ), seconds_max=60, show=relay_output()
        )
    assert end.status == 0
    assert shown.getvalue() == "\\x1b]0;owned\\x07 50%\n100%\n\\xff"


# Commands on a terminal


class OnTerminal:
    """Runs commands in this process, on a pseudo-terminal; what it was sent."""

    def __call__(self, *arguments: str) -> str:
        master, slave = pty.openpty()
        received: list[bytes] = []
        reader = threading.Thread(target=self._read, args=[master, received])
        reader.start()
        with (
            pytest.MonkeyPatch.context() as patch,
            open(slave, "w", encoding="utf-8") as terminal,  # noqa: PTH123 a descriptor
            redirect_stdout(terminal),
            redirect_stderr(terminal),
        ):
            patch.setattr("sys.argv", ["penstock", *arguments])
            with pytest.raises(SystemExit):
                main()
        reader.join()
        os.close(master)
        return b"".join(received).decode().replace("\r\n", "\n")

    @staticmethod
    def _read(master: int, received: list[bytes]) -> None:
        try:
            while block := os.read(master, 65_536):
                received.append(block)
        except OSError:  # the other end is closed
            return


@pytest.fixture
def hostile_lake(run: Run, data: Path, tmp_path: Path) -> OnTerminal:
    event = {
        "session_id": "s",
        "ts": "2026-11-21T10:00:00Z",
        "type": "x_own",
        "source": HOSTILE,
        "payload": {},
    }
    events = tmp_path / "events.jsonl"
    lines = [
        json.dumps(event),
        '{"session_id": "' + HOSTILE + '"}',
        json.dumps(event | {"ts": "never"}),
    ]
    events.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert run("import", str(events)).status == 0
    policy = tmp_path / "policy.toml"
    policy.write_text("[[require]]\nsuite = 'core'\nmetric = 'score'\nminimum = 0.1\n")
    digest = "sha256:" + "0" * 64
    register = ("checkpoints", "register", "one", "--uri", "/one", "--digest", digest, "--no-look")
    assert run(*register).status == 0
    change = ("channels", "policy", "production", "--set", str(policy), "--reason", "why")
    assert run(*change).status == 0
    with sqlite3.connect(data / "penstock.db") as connection:
        connection.execute("UPDATE checkpoint SET registered_by = ?", [HOSTILE])
        connection.execute("DROP TRIGGER keep_channel_change_update")  # it was written before
        connection.execute("UPDATE channel_change SET reason = ?", [HOSTILE])
    connection.close()
    return OnTerminal()


COMMANDS = [
    ("rejected", "list"),
    ("rejected", "show", "1"),
    ("query", "select source from events"),
    ("query", "select source from events", "--format", "csv"),
    ("query", "select source from events", "--json"),
    ("query", f'select 1 as "{HOSTILE}"'),
    ("query", f'select "{HOSTILE}" from events'),
    ("channels", "history", "production"),
    ("checkpoints", "list"),
    ("checkpoints", "show", "one"),
    ("checkpoints", "show", HOSTILE),
    ("ledger",),
    ("import", f"/nowhere/{HOSTILE}"),
    (HOSTILE,),
]


def test_no_command_lets_a_text_control_the_terminal(hostile_lake: OnTerminal) -> None:
    for arguments in COMMANDS:
        shown = hostile_lake(*arguments)
        assert CONTROLS.findall(shown) == [], arguments
        assert "x1b" in shown or "u001b" in shown, (arguments, shown)


def test_a_pipe_gets_the_bytes_of_a_rejected_line(hostile_lake: OnTerminal, run: Run) -> None:
    line = '{"session_id": "' + HOSTILE + '"}'
    assert run("rejected", "show", "1").out == line + "\n"
    assert line in hostile_lake("rejected", "show", "1", "--raw")


def test_a_terminal_gets_no_parquet(hostile_lake: OnTerminal) -> None:
    said = hostile_lake("query", "select 1", "--format", "parquet")
    assert "a terminal shows text; add --out FILE, or use a pipe" in said


def test_without_a_terminal_long_work_says_a_line_every_ten_seconds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = ManualClock()
    with progress_of("sessions", clock) as follow:
        for done in range(0, 50, 2):
            follow(done, 1_000)
            clock.advance(2.0)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"sessions: {done} of 1,000" for done in (10, 20, 30, 40)]


def test_nothing_can_be_told_from_an_empty_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.show_table(["a", "b"], [[None, ""]], nothing="NULL")
    assert capsys.readouterr().out.splitlines()[1].split() == ["NULL"]
    output.show_table(["a", "b"], [[None, ""]])
    assert capsys.readouterr().out.splitlines()[1].split() == ["-"]
