"""`penstock record` as a process, and what it wrote down."""

import gzip
import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.waiting import eventually

#: Where no service ever is.
NOBODY = "http://127.0.0.1:9"


@dataclass
class RecordingProxy:
    url: str
    spool: Path
    process: subprocess.Popen[bytes]

    def recorded(self, session: str = "") -> list[dict[str, Any]]:
        found = []
        for path in self.spool.rglob("*.gz"):
            with suppress(FileNotFoundError):
                found += gzip.decompress(path.read_bytes()).splitlines()
        events = [json.loads(line) for line in found]
        own = [
            each for each in events if not session or each["session_id"].split("/")[0] == session
        ]
        return sorted(own, key=lambda each: each["ts"])

    def until(self, session: str, kind: str, count: int = 1) -> list[dict[str, Any]]:

        def are_there() -> bool:
            kinds = [each["type"] for each in self.recorded(session)]
            return kinds.count(kind) >= count

        eventually(are_there)
        return self.recorded(session)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(ask(self.url, "/penstock/status", method="GET")[2])
        return found

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


@contextmanager
def recording_proxy(
    upstream: str, spool: Path, *flags: str, service: str = NOBODY, key: str = "none"
) -> Iterator[RecordingProxy]:
    named = ["--upstream", upstream, "--url", service, "--spool", str(spool), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "record", *named, "--json", *flags],
        stdout=subprocess.PIPE,
        env=os.environ | {"PENSTOCK_KEY": key},
    )
    assert process.stdout is not None
    try:
        url = json.loads(process.stdout.readline())["url"]
        yield RecordingProxy(url, spool, process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(
    url: str,
    path: str,
    body: object = None,
    headers: dict[str, str] | None = None,
    *,
    method: str = "POST",
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    given = {"Content-Type": "application/json"} | (headers or {})
    try:
        connection.request(method, path, content, given)
        answer = connection.getresponse()
        return answer.status, {n.lower(): v for n, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()
