"""Ctrl-C, as a terminal sends it: to a program of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.doors import cli
from tests.room.cli.conftest import Run

PENSTOCK = Path(sys.executable).with_name("penstock")
#: Its first rows come at once, the others after years, of which the engine tells nobody.
ENDLESS = "select range from range(1000000000000000) where range < 40000 or hash(range) = 1"


@contextmanager
def started(data: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    program = subprocess.Popen(
        [PENSTOCK, *arguments],
        env={**os.environ, "PENSTOCK_DATA": str(data)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    with program:
        try:
            yield program
        finally:
            program.kill()


def interrupted(program: subprocess.Popen[bytes]) -> tuple[int, bytes]:
    """Ctrl-C, twice, as some wrappers pass it on: the status, and what stands on standard error."""
    for _ in range(2):
        os.killpg(program.pid, signal.SIGINT)
    _out, err = program.communicate(timeout=300)
    return program.returncode, err


@pytest.mark.smoke
@pytest.mark.parametrize("out", ["-", "rows.csv"])
def test_ctrl_c_ends_a_query_wherever_it_is(
    run: Run, data: Path, events_file: Path, tmp_path: Path, out: str
) -> None:
    assert run("import", str(events_file)).status == 0
    named = ["--out", str(tmp_path / out)] if out != "-" else ["--format", "csv"]
    with started(data, "query", ENDLESS, *named) as program:
        assert program.stdout is not None
        if out == "-":
            program.stdout.read(1000)
        else:
            while not (tmp_path / f"{out}.unfinished").exists():
                assert program.poll() is None
        assert interrupted(program) == (130, b"")
    assert not list(tmp_path.glob("rows.csv*"))


def test_what_a_library_makes_of_ctrl_c_is_not_shown(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def query() -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("Query interrupted") from None
        return 0

    monkeypatch.setattr(cli, "_run", query)
    # Who starts the tests in the background of a shell has them ignore it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        outcome = run("query", "select 1")
        assert (outcome.status, outcome.out, outcome.err) == (130, "", "")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_a_library_that_does_not_come_back_ends_the_program() -> None:
    program = """
import ctypes
from penstock.doors import cli
from penstock.__main__ import main

def away() -> int:
    mutex = ctypes.create_string_buffer(128)
    print("away", flush=True)
    for _ in range(2):  # the second waits for ever, whatever signals come
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
    return 0

cli._run = away
main()
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as away:
        assert away.stdout is not None
        assert away.stdout.readline() == b"away\n"
        assert interrupted(away) == (130, b"")


def test_ctrl_c_waits_for_the_end_of_an_import(tmp_path: Path) -> None:
    """Native code that is being loaded may abort where it is interrupted."""
    module = """
import signal
signal.raise_signal(signal.SIGINT)
print("whole", flush=True)
"""
    (tmp_path / "module.py").write_text(module, encoding="utf-8")
    program = """
import threading
from penstock.doors import cli
from penstock.__main__ import main

def command() -> int:
    import module
    threading.Event().wait()
    return 0

cli._run = command
main()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], check=False, cwd=tmp_path, capture_output=True, timeout=300
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"whole\n", b"")


#: The main thread hears nothing, as one whose signal came just before its wait began.
_DEAF = """
import signal, threading
from penstock.backends.terminal.interruption import listening_to_ctrl_c
from penstock.backends.terminal.interruption import on_end_signal

ended = threading.Event()
with listening_to_ctrl_c(), on_end_signal(ended.set):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    print("waiting", flush=True)
    ended.wait()
"""


def test_a_command_that_waits_ends_also_where_its_main_thread_hears_no_signal() -> None:
    with subprocess.Popen([sys.executable, "-c", _DEAF], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"waiting\n"
        program.terminate()
        assert program.wait(timeout=300) == 0
