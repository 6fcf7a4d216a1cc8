"""The ways in which a client can be slow on purpose."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def room_for_files(count: int) -> Iterator[bool]:
    """Whether this process may open so many files within the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft == resource.RLIM_INFINITY or soft >= count:
        yield True
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))
    try:
        yield enough == count
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def openings(key: str) -> list[bytes]:
    """What each kind of slow client sends before it is slow."""
    head = b"POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n" % key.encode()
    ask = b"GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n"
    chunked = head + b"transfer-encoding: chunked\r\n\r\n"
    return [
        b"",
        b"GET /heal",
        head,
        head + b"a:\r\n" * 100,
        head + b"x: " + b"y" * 30_000,
        head + b"content-length: 1000000\r\n\r\n" + b"x" * 100,
        head + b"content-length: 1000000\r\nexpect: 100-continue\r\n\r\n",
        chunked + b"40\r\n" + b"x" * 60,
        chunked + b"0\r\n" + b"x-trailer: 1\r\n" * 20,
        head + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n" + b"\x81" * 100,
        ask * 15,  # and nothing of the answers is read
        b"\r\n" * 100,
    ]
