"""Ports for servers that must come back on the port they had."""

import random
import socket

# Below the range from which Linux takes the ports of outgoing connections. A client that dials a
# dead server's port in that range over and over may be given that very port, and keep it.
_LOWEST, _HIGHEST = 20_000, 32_000

_dice = random.SystemRandom()  # the tests' seed is fixed, and runs side by side must differ
_given: set[int] = set()


def free_port() -> int:
    """A loopback port on which nothing listens, never the same twice in this process."""
    while True:
        port = _dice.randrange(_LOWEST, _HIGHEST)
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
