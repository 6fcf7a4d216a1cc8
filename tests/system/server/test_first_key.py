"""The admin key of the first start reaches a person, and nothing that keeps logs."""

import os
import pty
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from penstock.access.keys import KeyRing
from penstock.core.clock import SystemClock
from penstock.lake.lake import Lake, open_existing

_KEY = re.compile(r"pk_admin_[\w-]{32}")


@contextmanager
def _serving(data: Path, out: int | IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "penstock", "serve", "--data", str(data), "--port", "0"]
    with subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


def _lines(reader: IO[bytes], until: str) -> str:
    """What it says, up to a line with these words."""
    lines = []
    for line in reader:
        lines.append(line.decode())
        if until in lines[-1]:
            break
    return "".join(lines)


def _is_admin(lake: Lake, key: str) -> bool:
    ring = KeyRing(lake.database, SystemClock())
    ring.refresh()
    return ring.grant(f"Bearer {key}").role == "admin"


@pytest.mark.smoke
def test_a_pipe_is_told_of_a_file_that_nobody_else_reads(tmp_path: Path) -> None:
    path = tmp_path / "first-admin-key"
    path.write_text("of a lake that was here before")
    with _serving(tmp_path, subprocess.PIPE) as process:
        assert process.stdout is not None
        said = _lines(process.stdout, "Admin key")
        assert f"Admin key: in {path}" in said
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        process.send_signal(signal.SIGTERM)
        said += process.stdout.read().decode()
    assert _KEY.search(said) is None
    with open_existing(tmp_path) as lake:
        assert _is_admin(lake, path.read_text().strip())


def test_a_terminal_is_shown_the_key(tmp_path: Path) -> None:
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as reader, _serving(tmp_path, slave):
        os.close(slave)
        said = _lines(reader, "Admin key")
    with open_existing(tmp_path) as lake:
        assert _is_admin(lake, *_KEY.findall(said))
    assert not (tmp_path / "first-admin-key").exists()
