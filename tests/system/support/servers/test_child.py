import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_PATIENCE_SECONDS = 180

_STARTS_A_SERVER = """
import sys, time
from pathlib import Path
from tests.support.servers.child import start_child
server = "import os, time; os.write(1, b'up'); time.sleep(600)"
start_child([sys.executable, "-c", server], log=Path(sys.argv[1]))
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_a_server_ends_with_whoever_started_it_even_when_that_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    os.mkfifo(log)  # it ends when nobody is left who writes to it
    reader = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    parent = subprocess.Popen([sys.executable, "-c", _STARTS_A_SERVER, str(log)])
    try:
        assert _read(reader) == b"up"
        parent.send_signal(signal.SIGKILL)
        assert _read(reader) == b""
    finally:
        parent.kill()
        parent.wait()
        os.close(reader)


def _read(pipe: int) -> bytes:
    assert select.select([pipe], [], [], _PATIENCE_SECONDS)[0]
    return os.read(pipe, 100)
