"""Programs in a sandbox reach nothing of the machine, and leave nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from penstock_jobs.benchmarks.sandbox.sandbox import IsolatedSandbox, PathRules, SandboxFailed
from penstock_jobs.benchmarks.sandbox.sandbox_files import File
from tests.room.benchmarks.conftest import MIB, open_sandbox, run_in
from tests.support.repository import ROOT
from tests.support.suite_factory import PYTHON

TREE = [File("a.txt", b"one\n"), File("run.sh", b"#!/bin/sh\necho ran\n", "program")]


def python(code: str) -> str:
    return f"{PYTHON} -c '{code}'"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of this machine that is there under the same path while programs run."""
    (tmp_path / "secret").write_text("the answer is 42")
    return tmp_path


@contextmanager
def answering(text: bytes) -> Iterator[int]:
    """A server of this machine that says something to whoever connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(text + connection.recv(100))

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.smoke
def test_a_program_works_on_its_folders(isolation: None) -> None:
    with open_sandbox(tree=TREE) as sandbox:
        ended = run_in(sandbox, "./run.sh && cat a.txt && echo two >> a.txt && echo r > ../out/r")
        assert (ended.status, ended.cut, ended.output) == (0, None, "ran\none\n")
        assert sandbox.changed("tree") == ["a.txt"]
        assert sandbox.read("out", "r", 10) == b"r\n"
        assert sandbox.read("out", "r", 1) is None
        again = run_in(sandbox, "cat a.txt; exit 3")
        assert (again.status, again.output) == (3, "one\ntwo\n")


def test_what_is_no_edit(isolation: None) -> None:
    with open_sandbox(tree=TREE) as sandbox:
        run_in(sandbox, "mkdir -p __pycache__ empty .git && touch __pycache__/x .git/y a.txt")
        assert sandbox.changed("tree") == []
        run_in(sandbox, "chmod +x a.txt; rm run.sh; mkfifo pipe; ln -s /etc/passwd link")
        assert sandbox.changed("tree") == ["a.txt", "link", "pipe", "run.sh"]


def test_it_sees_no_process_and_no_file_of_others(sandbox: IsolatedSandbox, outside: Path) -> None:
    ended = run_in(sandbox, f"ls /proc | grep -c '^[0-9]'; cat {outside}/secret; ls /tmp /run /sys")
    assert int(ended.output.split()[0]) < 8
    assert "answer is" not in ended.output
    environment = run_in(sandbox, "cat /proc/*/environ | tr '\\0' '\\n'; env").output
    assert "PYTEST_CURRENT_TEST" in os.environ
    assert "PYTEST" not in environment


def test_it_writes_nowhere_else(sandbox: IsolatedSandbox, outside: Path) -> None:
    places = [Path(sys.prefix), Path.home(), Path("/etc"), Path("/"), Path("/proc/sys/kernel")]
    for place in places:
        assert run_in(sandbox, f"touch {place}/written-by-a-test").status != 0
    mine = Path("/tmp", f"written-in-a-sandbox-{uuid4().hex}")
    run_in(sandbox, f"echo x > {mine}; echo y > $HOME/y; echo z > /dev/shm/z")
    assert run_in(sandbox, f"cat {mine} $HOME/y /dev/shm/z").output == "x\ny\nz\n"
    assert not mine.exists()


def test_hidden_folders_and_the_history_of_their_repository(
    isolation: None, tmp_path: Path
) -> None:
    repository, suite = tmp_path / "repository", tmp_path / "repository" / "suites" / "s"
    for place in (repository / ".git" / "objects", tmp_path / "worktrees" / "w", suite):
        place.mkdir(parents=True)
        (place / "blob").write_text("the answer is 42")
    (repository / "sources").write_text("to be seen")
    views = PathRules(hidden=[str(suite)], visible=[str(tmp_path)])
    with open_sandbox(views=views) as sandbox:
        ended = run_in(sandbox, f"grep -r . {tmp_path}")
    assert "to be seen" in ended.output
    assert f"{tmp_path}/worktrees/w/blob" in ended.output
    assert "repository/.git" not in ended.output
    assert "suites/s" not in ended.output

    # A working tree whose history lies elsewhere.
    (repository / ".git").rename(tmp_path / "moved")
    (repository / ".git").write_text("gitdir: ../worktrees/w\n")
    (tmp_path / "worktrees/w/commondir").write_text("../../moved\n")
    with open_sandbox(views=views) as sandbox:
        ended = run_in(sandbox, f"grep -r . {tmp_path}")
    assert "answer is" not in ended.output
    assert "to be seen" in ended.output


def test_it_reveals_nothing_by_mounts_of_its_own(isolation: None, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the answer is 42")
    views = PathRules(hidden=[str(tmp_path)], visible=[str(tmp_path.parent)])
    with open_sandbox(views=views) as sandbox:
        tries = f"umount {tmp_path}; umount -l /tmp; cat {tmp_path}/secret"
        for command in (tries, f"unshare -Urm sh -c '{tries}'", "mknod disk b 8 0"):
            ended = run_in(sandbox, command)
            assert ended.status != 0
            assert "answer is" not in ended.output


@pytest.mark.smoke
def test_no_network(sandbox: IsolatedSandbox) -> None:
    with answering(b"hello") as port:
        code = f'import socket; socket.create_connection(("127.0.0.1", {port}), 5)'
        refused = run_in(sandbox, python(code))
        assert "refused" in refused.output
    for address in ("192.0.2.1", "8.8.8.8"):
        code = f'import socket; socket.create_connection(("{address}", 53), 5)'
        assert "unreachable" in run_in(sandbox, python(code)).output


def test_addresses_that_are_allowed_are_reached_and_no_others(sandbox: IsolatedSandbox) -> None:
    code = "import socket,sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 5); "
    code += 's.sendall(b"!"); print(s.recv(99))'
    with answering(b"hello") as port, answering(b"other") as other:
        allowed = [f"127.0.0.1:{port}", f"localhost:{port}"]
        ended = run_in(sandbox, f"{python(code)} 127.0.0.1 {port}", addresses=allowed)
        assert "hello!" in ended.output
        assert (
            "refused"
            in run_in(sandbox, f"{python(code)} 127.0.0.1 {other}", addresses=allowed).output
        )
        # By a name that only stands for something in the sandbox.
        name = socket.gethostname()
        ended = run_in(sandbox, f"getent hosts {name}", addresses=[f"{name}:{port}"])
        assert "127.1.0.1" in ended.output
        number = 'import socket; socket.create_connection(("192.0.2.7", 7), 5); print("in")'
        ended = run_in(sandbox, python(number), addresses=["192.0.2.7:7"])
        assert ended.output == "in\n"


def test_a_fork_bomb_stays_small(isolation: None) -> None:
    with open_sandbox(processes=24) as sandbox:
        bomb = "b() { b & b & }; b; sleep 1; ls -d /proc/[0-9]* | wc -l"
        most = python(
            'import subprocess as s\nn = 0\ntry:\n  while True: s.Popen(["sleep", "9"]); n += 1\n'
            "except OSError: print(n)"
        )
        ended = run_in(sandbox, most)
        assert 15 <= int(ended.output.split()[-1]) <= 24
        ended = run_in(sandbox, bomb, seconds=3)
        assert "fork" in ended.output
        assert run_in(sandbox, "echo fine").output == "fine\n"


def test_the_memory_of_one_process_is_bounded(isolation: None) -> None:
    with open_sandbox(memory_mib=128) as sandbox:
        ended = run_in(sandbox, python("x = bytearray(300 << 20)"))
    assert (ended.status, ended.cut) == (1, None)
    assert "MemoryError" in ended.output


def test_the_memory_of_all_processes_together_is_bounded(isolation: None) -> None:
    hog = python('import time; x = b"1" * (60 << 20); time.sleep(20)')
    with open_sandbox(memory_mib=128) as sandbox:
        began = time.monotonic()
        ended = run_in(sandbox, f"for i in 1 2 3 4 5; do {hog} & done; wait")
    assert (ended.status, ended.cut) == (None, "memory")
    assert ended.seconds < 15 > time.monotonic() - began


def test_shared_memory_counts_once(isolation: None) -> None:
    code = """
import os, time
x = b"1" * (80 << 20)
for _ in range(5):
    if os.fork() == 0:
        time.sleep(0.5); os._exit(0)
for _ in range(5): os.wait()
print("done")
"""
    with open_sandbox(memory_mib=192) as sandbox:
        ended = run_in(sandbox, python(code.strip()))
    assert (ended.output, ended.cut) == ("done\n", None)


def test_the_disk_is_bounded(isolation: None) -> None:
    with open_sandbox(disk_mib=8) as sandbox:
        fill = "dd if=/dev/zero of={} bs=1M count=100 2>&1 | grep -c 'No space\\|too large'"
        for place in ("big", "/tmp/big", "/dev/shm/big", "$HOME/big"):
            assert run_in(sandbox, fill.format(place)).output.strip() == "1"
        many = python('for n in range(10**6): open(f"{n}", "w").close()')
        assert "No space" in run_in(sandbox, many).output
        assert sandbox.changed("tree")


def test_time_is_bounded_for_the_whole_tree_of_processes(sandbox: IsolatedSandbox) -> None:
    ended = run_in(sandbox, "trap '' TERM INT HUP; (setsid sleep 60 &); sleep 60", seconds=0.4)
    assert (ended.status, ended.cut) == (None, "time")
    assert 0.4 <= ended.seconds < 10


def test_nothing_runs_on(sandbox: IsolatedSandbox) -> None:
    sleep = _sleep()
    daemon = f"(setsid nohup {' '.join(sleep)} >/dev/null 2>&1 &)"
    commands = "for file in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $file; echo; done"
    ended = run_in(sandbox, f"{daemon}; sleep 0.2; {commands} | grep -c '^{' '.join(sleep)}'")
    assert ended.output.strip() == "1"
    assert not _runs(sleep)


def test_where_the_one_that_asked_is_killed_nothing_runs_on(isolation: None) -> None:
    sleep = _sleep()
    code = f"""
from tests.room.benchmarks.conftest import *
with open_sandbox() as sandbox:
    run_in(sandbox, "exec {" ".join(sleep)}", seconds=1000)
"""
    root = str(ROOT)
    path = os.pathsep.join([root, *sys.path])
    asking = subprocess.Popen(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, cwd=root
    )
    while not _runs(sleep):
        assert asking.poll() is None, "there was no sandbox"
        time.sleep(0.01)
    asking.send_signal(signal.SIGKILL)
    asking.wait()
    deadline = time.monotonic() + 20
    while _runs(sleep):
        assert time.monotonic() < deadline, "the program runs on"
        time.sleep(0.01)


def _sleep() -> list[str]:
    """A command that no other test runs."""
    return ["sleep", f"1000.{uuid4().int % 10**12}"]


def _runs(command: list[str]) -> bool:
    """Whether a process of this machine has this command."""
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if process.read_bytes().rstrip(b"\0").decode(errors="replace").split("\0") == command:
                return True
    return False


def test_output_is_kept_at_both_ends(sandbox: IsolatedSandbox) -> None:
    ended = run_in(sandbox, "echo first; timeout 0.5 yes; echo last")
    assert ended.output.startswith("first\n")
    assert ended.output.endswith("last\n")
    assert "bytes left out" in ended.output
    assert len(ended.output) < 70_000
    noise = run_in(sandbox, "head -c 5000 /dev/urandom").output
    noise.encode()


def test_links_and_special_files_are_not_followed(sandbox: IsolatedSandbox, outside: Path) -> None:
    run_in(sandbox, f"ln -s {outside}/secret ../out/link; mkfifo ../out/pipe; mkdir ../out/folder")
    for name in ("link", "pipe", "folder", "missing"):
        assert sandbox.read("out", name, 100) is None
    run_in(sandbox, f"ln -s {outside} there; ln -s / root; ln -s . loop")
    assert sandbox.changed("tree") == ["loop", "root", "there"]


def test_a_tree_too_deep_to_be_read_is_a_change(sandbox: IsolatedSandbox) -> None:
    code = 'import os\nfor _ in range(3000): os.mkdir("dddd"); os.chdir("dddd")'
    assert run_in(sandbox, python(code)).status == 0
    assert len(sandbox.changed("tree")) == 1


def test_folders_that_it_locks_are_read_all_the_same(isolation: None) -> None:
    with open_sandbox(tree=TREE) as sandbox:
        assert run_in(sandbox, "mkdir d; touch d/x; chmod 0 d a.txt; chmod 0 .").status == 0
        assert sandbox.changed("tree") == ["d/x"]


def test_it_cannot_end_or_read_its_keeper(sandbox: IsolatedSandbox) -> None:
    ended = run_in(sandbox, "kill -9 1; kill -STOP 1; cat /proc/1/environ")
    assert ended.status != 0
    assert "Permission denied" in run_in(sandbox, "cat /proc/1/fd/*").output
    assert run_in(sandbox, "sh -c 'kill -9 -1'; echo on").status == 137
    assert run_in(sandbox, "echo fine").output == "fine\n"


def test_a_sandbox_for_somebody_who_is_not_root(isolation: None, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("all the others were tried by somebody who is not root")
    tried = subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "unshare", "-Ur", "true"],
        capture_output=True,
        check=False,
    )
    if tried.returncode:
        pytest.skip("here only root may make namespaces")
    code = """
import os, sys
os.setgroups([]); os.setresgid(65534, 65534, 65534)
# What this interpreter is made of may lie where only root reads: keep that one right.
import ctypes, struct
libc = ctypes.CDLL(None)
libc.prctl(8, 1, 0, 0, 0)
os.setresuid(65534, 65534, 65534)
libc.capset(struct.pack("=Ii", 0x20080522, 0), struct.pack("=IIIIII", 4, 4, 4, 0, 0, 0))
libc.prctl(47, 2, 2, 0, 0)
from tests.room.benchmarks.conftest import *
with open_sandbox(processes=20) as sandbox:
    print(run_in(sandbox, "id -u; grep CapEff /proc/self/status; echo x > made; cat made").output)
    print(sandbox.changed("tree"))
    print(run_in(sandbox, "b() { b & b & }; b; sleep 0.2", seconds=1).output[-200:])
    print(run_in(sandbox, "umount /tmp; touch /etc/x; kill -9 1; echo over").output)
"""
    root = str(ROOT)
    path = os.pathsep.join([root, *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "65534"
    assert int(lines[1].split()[1], 16) == 0
    assert lines[2] == "x"
    assert "['made']" in lines
    assert "fork" in done.stdout
    assert lines[-2].strip() == "over"


def test_a_sandbox_that_is_gone_says_so(isolation: None) -> None:
    sandbox = open_sandbox()
    sandbox._process.process.kill()
    with pytest.raises(SandboxFailed):
        run_in(sandbox, "true")
    sandbox.close()


def test_a_tree_that_does_not_fit_is_refused(isolation: None) -> None:
    big = [File("big", bytes(2 * MIB))]
    with pytest.raises(SandboxFailed, match="No space"), open_sandbox(disk_mib=1, tree=big):
        pass
