"""`penstock ARGUMENTS` as a program, but in this process: to start one takes a second."""

import io
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess

import pytest

from penstock.doors.cli import main


def penstock(*arguments: str) -> CompletedProcess[str]:
    """What `subprocess.run` says of it, its output as text."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="") for _ in range(2))
    status = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.argv", ["penstock", *arguments])
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    return CompletedProcess(arguments, status, _text(out), _text(err))


def _text(written: io.TextIOWrapper) -> str:
    written.seek(0)
    return written.read()
