"""Ports for servers that must come back on the port they had."""

import os
import random
import socket

# Below the range from which Linux takes the ports of outgoing connections. A client that dials a
# dead server's port in that range over and over may be given that very port, and keep it.
_LOWEST, _HIGHEST = 20_000, 32_000

# Each process among which the tests are spread has a part of them: a port that one gave to a server
# that is down for now looks free to the others.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_share = (_HIGHEST - _LOWEST) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_first = _LOWEST + _worker * _share

_dice = random.SystemRandom()  # the tests' seed is fixed, and runs side by side must differ
_given: set[int] = set()


def free_port() -> int:
    """A loopback port on which nothing listens, never the same twice in this process."""
    while True:
        port = _dice.randrange(_first, _first + _share)
        if port not in _given and _is_free(port):
            _given.add(port)
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
