"""What a process can still do after it has limited itself, tried in processes that do."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.backends.execution.confinement import CallRule, filter_program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux is asked")

_BEGIN = """
import errno, os, signal, socket, subprocess, sys, threading
from pathlib import Path
from penstock.backends.execution.confinement import *
def fails(work):
    try:
        work()
    except (OSError, MemoryError) as error:
        print(type(error).__name__, flush=True)
    else:
        print("done", flush=True)
"""


def _run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _BEGIN + program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_no_memory_beyond_the_limit() -> None:
    ended = _run("""
limit_resources(memory_bytes=64 << 20, cpu_seconds=60, open_files=64)
fails(lambda: bytearray(16 << 20))
fails(lambda: bytearray(128 << 20))
""")
    assert ended.stdout.split() == ["done", "MemoryError"]


def test_no_cpu_time_beyond_the_limit() -> None:
    ended = _run("""
limit_resources(memory_bytes=64 << 20, cpu_seconds=1, open_files=64)
while True:
    pass
""")
    assert ended.returncode < 0


def test_no_files_beyond_the_limit() -> None:
    ended = _run("""
limit_resources(memory_bytes=64 << 20, cpu_seconds=60, open_files=16)
fails(lambda: [os.open("/dev/null", os.O_RDONLY) for _ in range(20)])
""")
    assert ended.stdout.split() == ["OSError"]


def test_limits_are_never_raised() -> None:
    ended = _run("""
import resource
limit_resources(memory_bytes=64 << 20, cpu_seconds=60, open_files=16)
limit_resources(memory_bytes=64 << 30, cpu_seconds=6000, open_files=1600)
print(resource.getrlimit(resource.RLIMIT_CPU)[0], resource.getrlimit(resource.RLIMIT_NOFILE)[0])
""")
    assert ended.stdout.split() == ["60", "16"]


def test_only_the_named_paths_can_be_opened(tmp_path: Path) -> None:
    for name in ("pinned", "other"):
        (tmp_path / name).write_text(name)
    (tmp_path / "spill").mkdir()
    ended = _run(
        """
folder = Path(sys.argv[1])
assert limit_files([str(folder / "pinned"), str(folder / "gone")], [str(folder / "spill")])
fails(lambda: (folder / "pinned").read_text())
fails(lambda: (folder / "pinned").write_text("changed"))
fails(lambda: (folder / "other").read_text())
fails(lambda: (folder / "spill" / "piece").write_text("spilled"))
fails(lambda: os.listdir(folder))
""",
        tmp_path,
    )
    assert ended.stdout.split() == [
        "done", "PermissionError", "PermissionError", "done", "PermissionError",
    ]  # fmt: skip


def test_forbidden_calls_fail_and_others_do_not() -> None:
    ended = _run("""
assert forbid_calls([CallRule("socket", errno.EPERM), CallRule("execve", errno.EPERM)])
fails(lambda: socket.socket())
fails(lambda: os.execv("/bin/true", ["true"]))
thread = threading.Thread(target=print, args=["thread"])
thread.start()
thread.join()
""")
    assert ended.stdout.split() == ["PermissionError", "PermissionError", "thread"]


def test_a_call_can_be_forbidden_by_its_argument() -> None:
    ended = _run("""
plain = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6)
rules = [
    CallRule("socket", errno.EAFNOSUPPORT, argument=0, values=tuple(map(int, plain))),
    CallRule("unshare", errno.EPERM, argument=0, mask=0x10000000),
]
assert forbid_calls(rules)
for family in plain:
    fails(lambda: socket.socket(family).close())
fails(lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
libc = __import__("ctypes").CDLL(None, use_errno=True)
print(libc.unshare(0x10000000), libc.unshare(0))
""")
    assert ended.stdout.split() == ["done", "done", "done", "OSError", "-1", "0"]


def test_what_it_starts_is_limited_as_well() -> None:
    ended = _run("""
assert forbid_calls([CallRule("socket", errno.EPERM)])
program = "import socket; socket.socket()"
print(subprocess.run([sys.executable, "-c", program], capture_output=True).stderr)
""")
    assert "PermissionError" in ended.stdout


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_a_filter_stays_inside_it(machine: str) -> None:
    rules = [
        CallRule("ptrace", errno.EPERM),
        CallRule("clone", errno.EPERM, argument=0, mask=0x10000000),
        CallRule("socket", errno.EAFNOSUPPORT, argument=0, values=(1, 2, 10)),
    ]
    content = filter_program(rules, machine)
    steps = [content[at : at + 8] for at in range(0, len(content), 8)]
    for number, step in enumerate(steps):
        returns = step[0] == 6
        assert returns or number + 1 + max(step[2], step[3]) < len(steps)
    assert steps[-1][0] == 6
