"""No program in a sandbox reaches a socket or a pipe of the machine, whenever somebody starts to
listen there; and it reads no home."""

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock_jobs.benchmarks.sandbox.sandbox import IsolatedSandbox, PathRules
from tests.room.benchmarks.conftest import open_sandbox, run_in
from tests.support.repository import ROOT
from tests.support.suite_factory import PYTHON

#: Waits until the machine is ready, then tries its sockets and pipes.
PROGRAM = """
import errno, os, socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20) as machine:
    machine.recv(1)
for path in sys.argv[2:]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(5)
            answer = client.connect_ex(path)
            print("REACHED" if answer == 0 else errno.errorcode[answer], path, kind.name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        try:
            client.sendto(b"hello", path)
            print("REACHED", path)
        except OSError as error:
            print(error)
    try:
        os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        print("REACHED", path)
    except OSError as error:
        print(error)
"""


@contextmanager
def gate(ready: Callable[[], None]) -> Iterator[int]:
    """A port: `ready` is called once somebody has connected, who gets a byte after that."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                ready()
                connection.sendall(b"!")

        thread = threading.Thread(target=answer)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_what_starts_to_listen_later_is_not_reached_either(isolation: None, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "file").write_text("it is seen")
    with ExitStack() as stack:

        def listen(name: str, kind: socket.SocketKind, *, only_bind: bool = False) -> str:
            server = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
            server.bind(str(tmp_path / name))
            (tmp_path / name).chmod(0o777)
            if kind != socket.SOCK_DGRAM and not only_bind:
                server.listen()
            servers[name] = server
            return str(tmp_path / name)

        def pipe(name: str) -> None:
            os.mkfifo(tmp_path / name)
            (tmp_path / name).chmod(0o777)
            readers.append(os.open(tmp_path / name, os.O_RDONLY | os.O_NONBLOCK))

        def start() -> None:
            servers["bound"].listen()
            listen("late", socket.SOCK_STREAM)
            listen("late-packets", socket.SOCK_SEQPACKET)
            listen("late-datagrams", socket.SOCK_DGRAM)
            pipe("late-pipe")

        servers: dict[str, socket.socket] = {}
        readers: list[int] = []
        listen("early", socket.SOCK_STREAM)
        listen("early-datagrams", socket.SOCK_DGRAM)
        listen("bound", socket.SOCK_STREAM, only_bind=True)
        pipe("pipe")
        names = [*servers, "pipe", "late", "late-packets", "late-datagrams", "late-pipe"]
        # Also by a link of the sandbox's own, which leads there.
        paths = [f"{tmp_path}/{name}" for name in names] + ["link/late"]
        with open_sandbox(views=PathRules(visible=[str(tmp_path)])) as sandbox, gate(start) as port:
            command = f"cat {tmp_path}/file; ln -s {tmp_path} link; "
            command += shlex.join([PYTHON, "-c", PROGRAM, str(port), *paths])
            ended = run_in(sandbox, command, addresses=[f"127.0.0.1:{port}"])
        for name in ("late", "early"):
            with socket.socket(socket.AF_UNIX) as client:  # of the machine, which may
                client.connect(f"{tmp_path}/{name}")
        for reader in readers:
            os.close(reader)
    assert ended.status == 0, ended.output
    assert ended.output.startswith("it is seen")
    assert "REACHED" not in ended.output
    assert ended.output.count("ECONNREFUSED") == 3 * len(paths), ended.output
    assert ended.uncovered == []


def test_programs_have_unix_sockets_among_themselves(sandbox: IsolatedSandbox) -> None:
    code = """
import multiprocessing, socket
with multiprocessing.Manager() as manager:
    print(manager.list([42])[0])
for place in ("own", "/tmp/own", "\\0abstract"):
    server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    server.bind(place); server.listen(); client.connect(place)
    print("own")
"""
    ended = run_in(sandbox, shlex.join([PYTHON, "-c", code]))
    assert ended.output.split() == ["42", "own", "own", "own"]


def test_no_abstract_socket_and_no_host_of_a_virtual_machine(sandbox: IsolatedSandbox) -> None:
    code = """
import socket, sys
for family, address in ((socket.AF_UNIX, "\\0" + sys.argv[1]), (40, (1, 1024)), (40, (2, 1024))):
    try:
        socket.socket(family).connect(address)
        print("REACHED")
    except OSError as error:
        print(error.errno)
"""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + (name := f"penstock-test-{os.getpid()}"))
        server.listen()
        ended = run_in(sandbox, shlex.join([PYTHON, "-c", code, name]))
    assert ended.output.split() == ["111", "97", "97"]


# With mounts of their own, which only root may make


def run_in_own_mounts(commands: str, code: str, **environment: str) -> str:
    """What a Python program prints that finds what these commands of a shell mounted."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    root = str(ROOT)
    paths = os.pathsep.join([root, *sys.path])
    script = f"set -e\n{commands}\nexec {shlex.join([sys.executable, '-c', code])}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", script],
        env=os.environ | {"PYTHONPATH": paths} | environment,
        cwd=root, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout


_MOUNTED = """
mount -t tmpfs -o mode=0755 own /srv
mkdir -p /srv/tools/big /srv/tools/one
echo seen > /srv/tools/file
mount -t tmpfs -o mode=0755 own /srv/tools/{below}
echo below > /srv/tools/{below}/file
"""
_CONNECT = """
import json, socket, shlex
from tests.room.benchmarks.conftest import *
from tests.support.suite_factory import PYTHON
servers = [socket.socket(socket.AF_UNIX) for _ in range(2)]
places = ["/srv/tools/socket", "/srv/tools/one/socket"]
for server, place in zip(servers, places):
    server.bind(place); os.chmod(place, 0o777); server.listen()
    socket.socket(socket.AF_UNIX).connect(place)
code = '''
import socket, sys
for place in sys.argv[1:]:
    try:
        client = socket.socket(socket.AF_UNIX)
        client.connect(place)
        print("REACHED")
    except OSError as error:
        print(error.errno)
one, other = socket.socketpair()
one.send(b"pair")
print(other.recv(4).decode())
try:
    one, _ = socket.socketpair(type=socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    one.sendto(b"hello", sys.argv[1])
    print("REACHED")
except OSError as error:
    print(error.errno)
'''
with open_sandbox() as sandbox:
    files = "/srv/tools/file /srv/tools/one/file /srv/tools/big/file"
    ended = run_in(sandbox, f"cat {files}; {shlex.join([PYTHON, '-c', code, *places])}")
print(json.dumps([ended.output.split(), ended.uncovered]))
"""


def test_a_folder_with_mounts_is_covered_folder_by_folder(isolation: None) -> None:
    answer = run_in_own_mounts(_MOUNTED.format(below="one"), _CONNECT)
    output, uncovered = json.loads(answer)
    assert {"seen", "below", "pair"} < set(output)
    assert "REACHED" not in output
    # The first is neither a file nor a folder, so it is not there; the other is in an overlay.
    assert [word for word in output if word.isdecimal()] == ["2", "111", "2"]
    assert uncovered == []


def test_where_a_folder_cannot_be_covered_no_unix_socket_can_be_opened(isolation: None) -> None:
    many = "for i in $(seq 1001); do : > /srv/tools/$i; done\n"
    answer = run_in_own_mounts(_MOUNTED.format(below="big") + many, _CONNECT)
    output, uncovered = json.loads(answer)
    assert uncovered == ["/srv/tools"]
    assert "REACHED" not in output
    assert output[-4:] == ["97", "97", "pair", "97"]


# Homes

_HOME = """
mount -t tmpfs -o mode=0755 own /srv
mkdir /srv/me
cd /srv/me
mkdir -p .config/tool .local/bin .local/share/tool/bin .ssh agent
for file in .netrc .ssh/key .config/tool/key .local/share/keys notes agent/agent.sh agent/part; do
    echo "secret of $file" > $file
done
printf '#!/bin/sh\necho tool runs\n' > .local/share/tool/bin/tool
chmod 755 .local/share/tool/bin/tool
ln -s ../share/tool/bin/tool .local/bin/tool
cd /
"""
_READ = """
import json, os, sys
from tests.room.benchmarks.conftest import *
from penstock_jobs.benchmarks.sandbox.sandbox_files import named_places
read = {}
for agent in json.loads(os.environ["AGENTS"]):
    visible = named_places(agent)
    with open_sandbox(views=PathRules(visible=visible)) as sandbox:
        command = "cd /srv/me && find . -type f | sort; ls -A /home /root; tool; " + agent
        read[agent] = [visible, run_in(sandbox, command).output.split("\\n")]
print(json.dumps(read))
"""
#: By the command of an agent, the places that it names and the files that it needs of a home.
_AGENTS: dict[str, tuple[list[str], list[str]]] = {
    "true": ([], []),
    "cat /srv/me/notes": (["/srv/me/notes"], ["./notes"]),
    "cat /srv/me/.netrc": (["/srv/me/.netrc"], ["./.netrc"]),
    "cat /srv/me/agent/agent.sh": (["/srv/me/agent"], ["./agent/agent.sh", "./agent/part"]),
    # What lies beside a key is not the agent's.
    "cat /srv/me/.ssh/key": (["/srv/me/.ssh/key"], ["./.ssh/key"]),
    "ls /srv/me /srv/me/": ([], []),
}


def test_of_a_home_only_what_is_needed_is_read(isolation: None) -> None:
    """One process for all agents: to import what opens a sandbox takes longest."""
    path = f"/srv/me/.local/bin:{os.environ['PATH']}"
    agents = json.dumps(list(_AGENTS))
    answer = run_in_own_mounts(_HOME, _READ, HOME="/srv/me", PATH=path, AGENTS=agents)
    for agent, (visible, output) in json.loads(answer).items():
        named, files = _AGENTS[agent]
        assert visible == named, agent
        assert output[output.index("/home:") + 1] == "", agent
        shown = [line for line in output[: output.index("tool runs")] if line.startswith("./")]
        assert shown == sorted([*files, "./.local/share/tool/bin/tool"]), agent


_BESIDE_MOUNTS = """
from penstock_jobs.benchmarks.sandbox.sandbox import (
    IsolatedSandbox, PathRules, SandboxLimits, SandboxProgram, SandboxRoot
)
tries = (
    "cat /var/opt/mounted/file; echo more >> /var/opt/mounted/file; readlink /var/run;"
    "ls -d /var/lib/dpkg; touch /var/new /var/lib/new /etc/new && test ! -s /etc/shadow; echo $?"
)
limits, root = SandboxLimits(1 << 30, 64, 1 << 26), SandboxRoot(writable=True)
with IsolatedSandbox(limits, PathRules(), 9999, root) as sandbox:
    for name in ("tree", "home", "scratch"):
        sandbox.put(name, [], writable=True)
    how = "tree", "home", "scratch", 60, {"PATH": "/usr/bin:/bin"}, {"tree": True}
    for _ in range(2):
        print(sandbox.run(SandboxProgram(["sh", "-c", tries], *how)).output.split())
"""


def test_a_container_over_folders_with_mounts_below() -> None:
    """As podman, docker and lxcfs make them. Programs write over them, and nothing is changed."""
    mounted = (
        "mount -t tmpfs own /var/opt\nmkdir /var/opt/mounted\necho one > /var/opt/mounted/file"
    )
    first, second = run_in_own_mounts(mounted, _BESIDE_MOUNTS).splitlines()
    seen = f"'{Path('/var/run').readlink()}', '/var/lib/dpkg', '0']"
    assert (first, second) == (f"['one', {seen}", f"['one', 'more', {seen}")
