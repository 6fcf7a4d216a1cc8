"""A tenant that does all it can to hurt a service: `python -m bench.hostile_tenant URL`, with its
keys in the environment, until its input is closed. The soak runs it beside an honest tenant."""

import gzip
import itertools
import json
import os
import random
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import pyarrow as pa

from penstock.backends.http import ServerUnreachable
from penstock.backends.http.client import ServiceClient
from penstock.core.settings import MIB
from tests.support.lake.hostile_sql import hostile_statements
from tests.support.lakes import make_event
from tests.support.slow_clients import openings, room_for_files

#: More than a tenant's slots for queries, so that some wait always.
_ASKERS = 4
_SLOW_CLIENTS = 400
_DRIP_SECONDS = 5.0
_LINES = 12_000
_BOMB_BYTES = 1024 * MIB
#: Within the limit after decompression.
_LARGE_BYTES = 60 * MIB
_NICE = 19
#: Keys of the tenant, for events and for queries.
INGEST_KEY, READ_KEY = "HOSTILE_INGEST_KEY", "HOSTILE_READ_KEY"

Body = tuple[bytes, dict[str, str]]


def main() -> None:
    url = sys.argv[1]
    ingest_key, read_key = os.environ[INGEST_KEY], os.environ[READ_KEY]
    os.nice(_NICE)  # it would have a machine of its own
    statuses: Counter[str] = Counter()
    bodies = list(_bodies())
    statements = hostile_statements()
    random.Random(1).shuffle(statements)
    attacks: list[Callable[[], None]] = [
        *(partial(_send, url, ingest_key, each, statuses) for each in bodies),
        *(
            partial(_ask, url, read_key, statements[number::_ASKERS], statuses)
            for number in range(_ASKERS)
        ),
        partial(_be_slow, url, ingest_key, statuses),
    ]
    for attack in attacks:
        threading.Thread(target=attack, daemon=True).start()
    sys.stdin.read()  # whoever started this closes it
    json.dump(statuses, sys.stdout)
    sys.stdout.flush()
    os._exit(0)


def _bodies() -> Iterator[list[Body]]:
    """Those of each list are sent one after another."""
    garbage = [
        b"garbage\n" * _LINES,
        b'{"session_id":"s","ts":"never","type":"x_y","payload":{}}\n' * _LINES,
        b"[" * 200_000 + b"\n",
        b'{"a":' * 100_000 + b"\n",
        b"\xff\xfe\n" * _LINES,
        b'{"session_id":"s","session_id":"s","ts":1,"type":"x_y","payload":{}}\n' * _LINES,
        b"\n" * 5_000_000,
        os.urandom(MIB),
    ]
    yield [(body, {}) for body in garbage]
    line = json.dumps(make_event("bomb", 1)).encode() + b"\n"
    zstd = pa.Codec("zstd")
    packed: list[Body] = []
    for content in (b"\n", b"[", b"x\n", line):
        for size in (_LARGE_BYTES, _BOMB_BYTES // 8):
            whole = content * (size // len(content))
            packed.append((gzip.compress(whole, 9), {"Content_Encoding": "gzip"}))
            packed.append((zstd.compress(whole, asbytes=True), {"Content_Encoding": "zstd"}))
    yield packed
    whole = gzip.compress(line * 10_000)
    broken = [whole[:-9], whole[:20] + b"x" * 500, b"\x1f\x8b" * 10_000, whole + b"more", b"\x1f"]
    yield [
        *((body, {"Content_Encoding": "gzip"}) for body in broken),
        (b"\x28\xb5\x2f\xfd" + b"\xff" * 1_000, {"Content_Encoding": "zstd"}),
    ]


def _send(url: str, key: str, bodies: list[Body], statuses: Counter[str]) -> None:
    client = ServiceClient(url, key)
    for body, headers in itertools.cycle(bodies):
        try:
            statuses[f"events {client.post('/v1/events', body, **headers).status}"] += 1
        except ServerUnreachable:
            statuses["events cut off"] += 1


def _ask(url: str, key: str, statements: list[str], statuses: Counter[str]) -> None:
    client = ServiceClient(url, key, 120)
    for sql in itertools.cycle(statements):
        body = json.dumps({"sql": sql}).encode()
        try:
            statuses[f"query {client.post('/v1/query', body).status}"] += 1
        except ServerUnreachable:
            statuses["query cut off"] += 1


def _be_slow(url: str, key: str, statuses: Counter[str]) -> None:
    """Each connection sends a byte now and then, and is opened again when it was cut off."""
    host, port = url.removeprefix("http://").split(":")
    kinds = itertools.cycle(openings(key))
    ends: list[socket.socket] = []
    with room_for_files(_SLOW_CLIENTS + 500):
        while True:
            while len(ends) < _SLOW_CLIENTS:
                with suppress(OSError):
                    end = socket.create_connection((host, int(port)))
                    end.sendall(next(kinds))
                    end.setblocking(False)
                    ends.append(end)
                    statuses["slow connection"] += 1
            time.sleep(_DRIP_SECONDS)
            ends = [end for end in ends if _drip(end)]


def _drip(end: socket.socket) -> bool:
    """Whether the connection is still there."""
    try:
        end.send(b"x")
    except BlockingIOError:
        return True
    except OSError:
        end.close()
        return False
    return True


if __name__ == "__main__":
    main()
