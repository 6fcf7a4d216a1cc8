"""What programs of a sandbox try with the kernel, and what it answers."""

import errno
import os
import platform
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.backends.execution.confinement import _CALLS, _MACHINES
from penstock_jobs.benchmarks.sandbox import process as forbidden_calls
from penstock_jobs.benchmarks.sandbox.sandbox import (
    IsolatedSandbox,
    PathRules,
    PlainSandbox,
    ProgramEnd,
    Sandbox,
    SandboxLimits,
    SandboxProgram,
)
from penstock_jobs.benchmarks.sandbox.sandbox_files import File
from tests.room.benchmarks.conftest import MIB, open_sandbox, run_in
from tests.support.suite_factory import PYTHON

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in _MACHINES,
    reason="here the kernel refuses no calls",
)
COLUMN = _MACHINES[platform.machine()][0] if platform.machine() in _MACHINES else 0
Run = Callable[[str], ProgramEnd]


@pytest.fixture
def plain() -> Iterator[PlainSandbox]:
    with PlainSandbox(SandboxLimits(512 * MIB, 32, 16 * MIB), 64 * 1024) as sandbox:
        for folder in ("tree", "home", "scratch"):
            sandbox.put(folder, [], writable=True)
        yield sandbox


@pytest.fixture(params=["sandbox", "plain"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a Python program in a sandbox."""
    sandbox: Sandbox = request.getfixturevalue(request.param)

    def run_python(code: str) -> ProgramEnd:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": "/nowhere", "KEY": "ü"}
        places = ("tree", "home", "scratch")
        command = [PYTHON, "-c", code]
        folders = {"tree": True}
        return sandbox.run(SandboxProgram(command, *places, 20.0, environment, folders))

    return run_python


def number_of(call: str) -> int | None:
    return _CALLS[call][COLUMN]


def test_it_has_no_capability_and_gets_none(sandbox: IsolatedSandbox) -> None:
    status = run_in(sandbox, "cat /proc/self/status").output
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert int(facts[kind], 16) == 0, kind
    assert (facts["NoNewPrivs"], facts["Seccomp"]) == ("1", "2")
    code = "import ctypes; print(ctypes.CDLL(None).prctl(27, 0, 0, 0, 0))"
    assert run_in(sandbox, f"{PYTHON} -c '{code}'").output == f"{0b1110_1111}\n"


def test_every_forbidden_call_is_refused(run: Run) -> None:
    rules = {
        rule.call: rule.error
        for rule in forbidden_calls.FORBIDDEN_CALLS
        if rule.argument is None and number_of(rule.call) is not None
    }
    numbers = {call: number_of(call) for call in rules}
    ended = run(f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for call, number in {numbers}.items():
    result = libc.syscall(number, 0, 0, 0, 0, 0, 0)
    print(call, result, ctypes.get_errno())
""")
    answers = [line.split() for line in ended.output.splitlines()]
    assert answers == [[call, "-1", str(error)] for call, error in rules.items()]


def test_no_namespace_can_be_made(run: Run) -> None:
    flags = {"user": 28, "mount": 17, "pid": 29, "net": 30, "ipc": 27, "uts": 26, "cgroup": 25}
    ended = run(f"""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, bit in {flags}.items():
    for call, flags in (({number_of("unshare")}, 1 << bit), ({number_of("clone")}, 1 << bit | 17)):
        result = libc.syscall(call, flags, 0, 0, 0, 0)
        if result == 0 and call == {number_of("clone")}:
            os._exit(0)
        print(name, result, ctypes.get_errno())
print("time", libc.unshare(0x80), ctypes.get_errno())
""")
    answers = [line.split() for line in ended.output.splitlines()]
    refused = [[name, "-1", str(errno.EPERM)] for name in flags for _ in range(2)]
    assert answers == [*refused, ["time", "-1", str(errno.EPERM)]]


def test_sockets_of_four_families_only(run: Run) -> None:
    ended = run("""
import socket
for family in range(1, 46):
    try:
        socket.socket(family, socket.SOCK_RAW if family == 16 else socket.SOCK_DGRAM).close()
        print(family)
    except OSError as error:
        assert error.errno in (97, 94, 1), error
        if family == 40: print("machine:", error)
""")
    assert ended.output.split("\n")[:4] == ["1", "2", "10", "16"]
    assert "machine: [Errno 97]" in ended.output
    assert len(ended.output.splitlines()) == 5


def test_calls_of_other_architectures_end_it(run: Run) -> None:
    if platform.machine() != "x86_64":
        pytest.skip("this processor has one architecture")
    ended = run("import ctypes; ctypes.CDLL(None).syscall(0x40000000 | 39)")
    assert ended.status == 128 + signal.SIGSYS
    # mov eax, 20; int 0x80: `getpid` of 32-bit programs.
    ended = run("""
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("b814000000cd80c3"))
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
""")
    assert ended.status == 128 + signal.SIGSYS


def test_beside_others_no_process_can_be_traced() -> None:
    assert {rule.call for rule in forbidden_calls.FORBIDDEN_BESIDE_OTHERS} >= {"ptrace"}
    alone = forbidden_calls.call_filter(beside_others=False)
    beside = forbidden_calls.call_filter(beside_others=True)
    assert alone is not None is not beside
    assert len(beside) > len(alone)


def test_files_of_root_alone_are_not_read(isolation: None, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("somebody else sees what is his")
    (tmp_path / "secret").write_text("the answer is 42")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "public").write_text("known")
    (tmp_path / "inner").mkdir(mode=0o700)
    (tmp_path / "inner" / "public").write_text("also known")
    tmp_path.chmod(0o700)
    with open_sandbox(views=PathRules(visible=[str(tmp_path)])) as sandbox:
        ended = run_in(
            sandbox, f"cd {tmp_path}; cat secret; cat public inner/public; cat /etc/shadow"
        )
    assert "answer" not in ended.output
    assert "knownalso known" in ended.output
    assert ended.output.count("Permission denied") == 2
    assert ended.status != 0


# Work that must go on


def test_threads_processes_and_a_server(run: Run) -> None:
    ended = run("""
import http.server, os, subprocess, sys, threading, urllib.request, concurrent.futures, asyncio
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print(urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").status)
print(subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout)
with concurrent.futures.ProcessPoolExecutor(2) as pool:
    print(sum(pool.map(abs, [-1, -2])))
async def shell():
    process = await asyncio.create_subprocess_shell("echo $KEY", stdout=-1)
    return (await process.communicate())[0].decode()
print(asyncio.run(shell()), os.environ["PYTHONPATH"])
""")
    assert ended.output.split()[-5:] == ["200", "42", "3", "ü", "/nowhere"]


def test_compilers_and_tests(isolation: None) -> None:
    tree = [
        File("Makefile", b"all: main\n\t./main\nmain: main.c\n\t$(CC) -pthread -o main main.c\n"),
        File(
            "main.c",
            b"#include <pthread.h>\n#include <stdio.h>\n"
            b'static void *say(void *_) { puts("thread"); return 0; }\n'
            b"int main(void) { pthread_t t; pthread_create(&t, 0, say, 0);"
            b" return pthread_join(t, 0); }\n",
        ),
        File("test_it.py", b"def test_it(tmp_path):\n    (tmp_path / 'a').write_text('b')\n"),
        File("it.js", b"setTimeout(() => console.log('node ' + require('os').cpus().length), 5)"),
    ]
    with open_sandbox(tree=tree, memory_mib=4096) as sandbox:
        ended = run_in(sandbox, f"{PYTHON} -m pytest -q -p no:cacheprovider test_it.py")
        assert "1 passed" in ended.output
        if shutil.which("make") and shutil.which("cc"):
            assert "thread" in run_in(sandbox, "make").output
        if shutil.which("node"):
            assert "node" in run_in(sandbox, "node it.js").output
        if shutil.which("git"):
            git = "git init -q . && git add . && git -c user.name=a -c user.email=a@b.c"
            ended = run_in(sandbox, f"{git} commit -q -m first && git log --oneline")
            assert "first" in ended.output


def test_a_command_that_is_not_there(plain: PlainSandbox) -> None:
    ended = plain.run(SandboxProgram(["no-such"], "tree", "home", "scratch", 9.0, {"PATH": "/bin"}))
    assert (ended.status, ended.output) == (127, "no-such: No such file or directory\n")


def test_what_a_plain_program_uses_is_bounded(plain: PlainSandbox) -> None:
    code = """
import resource
for kind in (resource.RLIMIT_DATA, resource.RLIMIT_FSIZE, resource.RLIMIT_CPU):
    print(resource.getrlimit(kind)[1])
try:
    bytearray(600 << 20)
except MemoryError:
    print("bounded")
"""
    ended = plain.run(SandboxProgram([PYTHON, "-c", code], "tree", "home", "scratch", 9.0, {}))
    data, file_bytes, cpu_seconds, bounded = ended.output.split()
    assert (int(data), int(file_bytes), bounded) == (512 * MIB, 32 * MIB, "bounded")
    assert int(cpu_seconds) == 9 * (os.cpu_count() or 1) + 1
