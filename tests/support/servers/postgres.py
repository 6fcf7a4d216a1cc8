"""PostgreSQL for the tests: a server in a directory of its own, with a database for each test."""

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from penstock.backends.database.engine import Database
from penstock.backends.database.migrations import upgrade
from tests.support.servers.child import ChildServer, start_child
from tests.support.servers.jars import skip
from tests.support.servers.ports import free_port

_WHERE_DEBIAN_PUTS_IT = Path("/usr/lib/postgresql")
_ADMIN, _USER = "admin", "penstock"
_QUICK_AND_SMALL = {
    "autovacuum": "off",  # it takes locks when it likes
    "max_connections": "60",
    "max_wal_senders": "0",
    "shared_buffers": "32MB",
    "wal_level": "minimal",
}
#: Nothing here outlives the machine: a killed server finds its files in the system's memory.
_NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}


class PostgresServer(ChildServer):
    #: Those that are connected are told, and what they have not committed is taken back.
    STOP_SIGNAL = signal.SIGINT

    def __init__(self, directory: Path, *, durable: bool = False) -> None:
        """The directory belongs to nobody else, and whoever runs the server can reach it."""
        self.port = free_port()
        self.log = directory / "server.log"
        self.password = secrets.token_hex(16)
        self._directory = directory
        self._settings = _QUICK_AND_SMALL | ({} if durable else _NOT_DURABLE)
        self._template: str | None = None

    def __getstate__(self) -> dict[str, object]:
        self._migrated()
        return super().__getstate__()

    def start(self) -> None:
        data = self._directory / "data"
        new = not data.exists()
        if new:
            self._make(data)
        settings = [f"--{name}={value}" for name, value in self._settings.items()]
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-k", ""]
        command = [_program("postgres"), "-D", str(data), *address, *settings]
        self._process = start_child([*_as_nobody_special("KILL"), *command], log=self.log)
        self._wait_until(self._answers)
        if new:
            self.execute(f"CREATE ROLE {_USER} LOGIN PASSWORD '{self.password}'")

    def kill(self) -> None:
        """All its processes at once, with no chance to finish anything."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGSTOP)  # it starts no more
        children = _children_of(process.pid)
        for child in children:
            os.kill(child, signal.SIGKILL)
        self.end(signal.SIGKILL)
        while any(_is_running(child) for child in children):
            time.sleep(0.001)  # they hold the memory that the next server wants

    def url(self, database: str, *, password: str | None = None) -> str:
        secret = self.password if password is None else password
        return f"postgresql+psycopg://{_USER}:{secret}@127.0.0.1:{self.port}/{database}"

    @contextmanager
    def database(self, *, migrated: bool = True) -> Iterator[str]:
        """The address of a fresh database, with the newest tables in it or empty."""
        template = self._migrated() if migrated else "template0"
        name = self._create(template)
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement beside everything that is tested, and return its rows."""
        with self.connect(database) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _create(self, template: str) -> str:
        name = f"test_{secrets.token_hex(8)}"
        # Copied as files: by the log, which is what it does unasked, takes half as long again.
        how = f"TEMPLATE {template} STRATEGY FILE_COPY OWNER {_USER}"
        self.execute(f"CREATE DATABASE {name} {how}")
        return name

    def _migrated(self) -> str:
        """Migrations run once a server, not once a test."""
        if self._template is None:
            name = self._create("template0")
            database = Database(self.url(name))
            upgrade(database)
            database.close()
            self._template = name
        return self._template

    def _make(self, data: Path) -> None:
        program = _program("initdb")
        secret = self._directory / "password"
        secret.write_text(self.password)
        if os.geteuid() == 0:
            for path in (self._directory, secret):
                os.chown(path, _nobody_special().pw_uid, _nobody_special().pw_gid)
        options = ["--username", _ADMIN, "--pwfile", str(secret), "--auth", "scram-sha-256"]
        options += ["--encoding", "UTF8", "--locale", "C", "--no-sync"]
        done = subprocess.run(
            [*_as_nobody_special("clear"), program, "-D", str(data), *options],
            cwd=self._directory,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stderr}")

    def _answers(self) -> bool:
        try:
            self.connect("postgres").close()
        except psycopg.OperationalError:
            return False
        return True

    def connect(self, database: str) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=_ADMIN,
            password=self.password,
            dbname=database,
            autocommit=True,
        )


@contextmanager
def running_postgres(*, durable: bool = False) -> Iterator[PostgresServer]:
    """Where the server's user can reach it, which pytest's own directories are not."""
    directory = Path(tempfile.mkdtemp(prefix="penstock-postgres-"))
    server = PostgresServer(directory, durable=durable)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(directory, ignore_errors=True)


def _program(name: str) -> str:
    """The newest where there are several."""
    versions = sorted(_WHERE_DEBIAN_PUTS_IT.glob("*/bin"), key=lambda path: int(path.parent.name))
    path = os.pathsep.join([*map(str, reversed(versions)), os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=path)
    if found is None:
        skip(f"{name} of PostgreSQL is not installed")
    return str(found)


def _as_nobody_special(when_parent_dies: str) -> Sequence[str]:
    """PostgreSQL refuses to run as root. Taking another user's place ends the child's tie to its
    parent, so it is tied again."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        skip("setpriv is not installed, and PostgreSQL does not run as root")
    user = _nobody_special()
    ids = ["--reuid", str(user.pw_uid), "--regid", str(user.pw_gid), "--clear-groups"]
    return ["setpriv", "--pdeathsig", when_parent_dies, *ids]


def _nobody_special() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _children_of(parent: int) -> list[int]:
    """Only Linux tells; elsewhere the server's processes notice by themselves that it is gone."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if _state_and_parent(pid)[1] == str(parent)]


def _is_running(pid: int) -> bool:
    return _state_and_parent(pid)[0] not in ("", "Z")


def _state_and_parent(pid: int) -> tuple[str, str]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ("", "")
    state, parent = stat.rpartition(")")[2].split()[:2]
    return (state, parent)
