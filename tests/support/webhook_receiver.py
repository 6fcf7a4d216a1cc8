"""Somebody who is told of changes over HTTP, and does what receivers do: takes, fails, hangs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.servers.scripted_server import Answer, Script, Server, answering

TAKEN = Answer(204)


@dataclass
class Receiver(Server):
    script: Script = lambda _asked: TAKEN

    def versions(self, channel: str = "production") -> list[int]:
        told = [one.document for one in self.asked]
        return [one["version"] for one in told if one["channel"] == channel]


def answers(*statuses: int) -> Script:
    """These, one after the other, and then it takes everything."""
    left = list(statuses)
    return lambda _asked: Answer(left.pop(0)) if left else TAKEN


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    with answering(receiver, "/hook"):
        yield receiver
