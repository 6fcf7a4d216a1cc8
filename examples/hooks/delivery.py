"""How the hooks of all agents reach Penstock: a file in a spool for each, and one process that
sends what lies there.

A hook writes its events and ends. It never waits for the service and never fails: agents wait for
their hooks, and some are stopped by one that fails. `python3 delivery.py` sends what is left."""

import fcntl
import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from masking import Mask

Row = dict[str, Any]

#: What a hook is given may be long: whole files.
INPUT_BYTES_MAX = 32 * 1024 * 1024
#: What finds no room is dropped and counted: the ledger of the service tells it.
SPOOL_BYTES_MAX = 256 * 1024 * 1024
SPOOL_FILES_MAX = 20_000
BATCH_BYTES, BATCH_FILES = 1024 * 1024, 500
ATTEMPTS = 4
ANSWER_SECONDS_MAX = 30.0
PAUSE_SECONDS_MAX = 30.0
_LOG_BYTES_MAX = 256 * 1024


def run_hook(events_of: Callable[[Row], list[Row]], reply: str = "") -> None:
    """Stores the events of the hook's input, answers `reply`, and ends the process with success."""
    try:
        events = events_of(json.loads(sys.stdin.buffer.read(INPUT_BYTES_MAX)))
        if events and service():
            keep(events)
            start_sending()
    except Exception as error:  # noqa: BLE001  # whatever it is, the agent goes on
        note(f"{type(error).__name__}: {error}")
    with suppress(OSError):
        sys.stdout.write(reply)
        sys.stdout.flush()
    os._exit(0)


class Session:
    """Makes the events of one session. The same key is the same event, however often it comes."""

    def __init__(self, session_id: str, source: str, folder: str = "", at_us: int = 0) -> None:
        self.session_id, self._source, self._folder = session_id, source, folder
        self._at_us = at_us or time.time_ns() // 1000
        self.events: list[Row] = []

    def add(self, kind: str, key: str, **payload: Any) -> None:
        fields = {
            "user": os.environ.get("PENSTOCK_USER"),
            "project": os.environ.get("PENSTOCK_PROJECT") or Path(self._folder).name,
            "checkpoint": os.environ.get("PENSTOCK_CHECKPOINT"),
        }
        self.events.append({
            "session_id": self.session_id,
            "event_id": key[:500],
            "source": self._source,
            "ts": self._at_us + len(self.events),
            "type": kind,
            **{name: value for name, value in fields.items() if value},
            "payload": {name: value for name, value in payload.items() if value is not None},
        })  # fmt: skip

    def start(self, client: str, **more: Any) -> None:
        consent = os.environ.get("PENSTOCK_CONSENT")
        about = {"client": client, "consent": consent, "repo": self._folder or None}
        self.add("session_start", "start", **about, branch=branch_of(self._folder), **more)


def digest(*parts: object) -> str:
    text = json.dumps(parts, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:24]


def branch_of(folder: str) -> str | None:
    """Of the Git repository that a folder lies in."""
    if folder:
        for path in (Path(folder), *Path(folder).parents):
            with suppress(OSError):
                head = (path / ".git" / "HEAD").read_text().strip()
                return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else None
    return None


# The spool


def spool_folder() -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state, "penstock", "hooks").expanduser()


def keep(events: list[Row]) -> None:
    """In a file of its own, which is there once it is whole."""
    folder = spool_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    mask = Mask(folder)
    lines = b"".join(json.dumps(mask.value(event)).encode() + b"\n" for event in events)
    sizes = [size for _, size in _waiting()]
    if len(sizes) >= SPOOL_FILES_MAX or sum(sizes) + len(lines) > SPOOL_BYTES_MAX:
        _count_dropped(events, "spool_full")
        return
    name = f"{time.time_ns():020d}-{os.getpid()}-{os.urandom(4).hex()}"
    _write(folder / f"{name}.part", lines)
    (folder / f"{name}.part").rename(folder / f"{name}.ndjson")


def _waiting() -> list[tuple[str, int]]:
    """Names and sizes, the oldest first."""
    files = []
    with suppress(FileNotFoundError), os.scandir(spool_folder()) as entries:
        for entry in entries:
            if entry.name.endswith(".ndjson"):
                with suppress(FileNotFoundError):
                    files.append((entry.name, entry.stat().st_size))
    return sorted(files)


def _write(path: Path, content: bytes) -> None:
    with open(path, "ab", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(content)


def _count_dropped(events: list[Row], reason: str) -> None:
    counts = Counter(event["session_id"] for event in events)
    path = spool_folder() / "dropped"
    if not path.exists() or path.stat().st_size < _LOG_BYTES_MAX:
        rows = ([session, number, reason] for session, number in counts.items())
        _write(path, b"".join(json.dumps(row).encode() + b"\n" for row in rows))


def note(problem: str) -> None:
    """Where a hook says what went wrong: nobody reads what it prints."""
    with suppress(OSError):
        folder = spool_folder()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "problems.log"
        if path.exists() and path.stat().st_size > _LOG_BYTES_MAX:
            path.unlink()
        _write(path, f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {problem[:2000]}\n".encode())


# Sending


def service() -> tuple[str, str] | None:
    """The address and the key: of the environment, else of `penstock login`."""
    url, key = os.environ.get("PENSTOCK_URL", "").strip(), os.environ.get("PENSTOCK_KEY", "")
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    with suppress(OSError, ValueError, KeyError):
        login = json.loads(Path(config, "penstock", "login.json").expanduser().read_text())
        if not url or (not key and login["url"].rstrip("/") == url.rstrip("/")):
            url, key = login["url"], key or login["key"]
    return (url, key.strip()) if url else None


def start_sending() -> None:
    """In a process that outlives the hook, unless one is at it: that one looks again before it
    ends."""
    with _turn() as is_ours:
        if not is_ours:
            return
    subprocess.Popen(
        [sys.executable, "-S", "-E", __file__, "--unless-busy"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


@contextmanager
def _turn(*, wait: bool = False) -> Iterator[bool]:
    """Whether no other process sends; none does until the block ends."""
    lock = os.open(spool_folder() / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(lock)


def send_waiting(*, wait: bool = True) -> bool:
    """Whether the service has all of it. What it has not, a later hook sends. With `wait`, after
    whoever sends now."""
    while _waiting():
        with _turn(wait=wait) as is_ours:
            if not is_ours:
                return False
            names = [name for name, _ in _waiting()]
            while names:
                taken = _send_files(_batch(names))
                if not taken:
                    return False
                names = names[taken:]
            _send_dropped()
    return True


def _batch(names: list[str]) -> list[str]:
    chosen, size = [], 0
    for name in names[:BATCH_FILES]:
        with suppress(FileNotFoundError):
            size += (spool_folder() / name).stat().st_size
        if chosen and size > BATCH_BYTES:
            break
        chosen.append(name)
    return chosen


def _send_files(names: list[str]) -> int:
    """How many of the first are done with; 0 where the service is away."""
    paths = [spool_folder() / name for name in names]
    body = b"".join(path.read_bytes() for path in paths if path.exists())
    status = _post(body) if body else 200
    if status == 413 and len(names) > 1:
        return _send_files(names[: len(names) // 2])
    if status in (400, 413, 422):
        events = [json.loads(line) for line in body.splitlines()]
        _count_dropped(events, "too_large" if status == 413 else "refused")
    elif status != 200:
        return 0
    for path in paths:
        path.unlink(missing_ok=True)
    return len(names)


def _send_dropped() -> None:
    """How many events were dropped, once for each time that the counts were taken."""
    folder = spool_folder()
    if (counted := folder / "dropped").exists():
        counted.rename(folder / f"dropped-{os.urandom(6).hex()}")
    for path in folder.glob("dropped-*"):
        counts: Counter[tuple[str, str]] = Counter()
        for line in path.read_text().splitlines():
            session, number, reason = json.loads(line)
            counts[session, reason] += number
        events = []
        for (session, reason), number in counts.items():
            made = Session(session, "hooks")
            made.add("x_recorder_dropped", f"{path.name}:{reason}", events=number, reason=reason)
            events += made.events
        if _post(b"".join(json.dumps(event).encode() + b"\n" for event in events)) == 200:
            path.unlink()


def _post(body: bytes) -> int:
    """The status that the service answers at last; 0 is none."""
    status, problem = 0, ""
    for attempt in range(ATTEMPTS):
        pause_s = 0.5 * 2**attempt
        try:
            status, asked_s, problem = _attempt(gzip.compress(body, 1))
            pause_s = max(pause_s, asked_s)
        except (OSError, HTTPException, ValueError) as error:
            status, problem = 0, f"{type(error).__name__}: {error}"
        if status not in (0, 408, 425, 429) and status < 500:
            break
        if attempt < ATTEMPTS - 1:
            time.sleep(min(pause_s, PAUSE_SECONDS_MAX) * random.uniform(0.75, 1.25))
    if status != 200:
        note(f"the service answered {status}: {problem}")
    return status


def _attempt(packed: bytes) -> tuple[int, float, str]:
    url, key = service() or ("", "")
    address = urlsplit(url)
    if not address.hostname:
        raise ValueError(f"{url!r} is no address of a service")
    kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connection = kind(address.hostname, address.port, timeout=ANSWER_SECONDS_MAX)
    headers = {"Content-Type": "application/x-ndjson", "Content-Encoding": "gzip"}
    if key:
        headers["Authorization"] = f"Bearer {key}"
    try:
        connection.request("POST", f"{address.path.rstrip('/')}/v1/events", packed, headers)
        answer = connection.getresponse()
        told = answer.read(4096).decode("utf-8", "replace")
        asked = answer.getheader("Retry-After", "")
        return answer.status, float(asked) if asked.isdecimal() else 0.0, told
    finally:
        connection.close()


if __name__ == "__main__":
    raise SystemExit(0 if send_waiting(wait="--unless-busy" not in sys.argv) else 3)
