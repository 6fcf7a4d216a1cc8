"""Somebody who is told of changes over HTTP, and does what receivers do: takes, fails, hangs."""

import base64
import hmac
from collections.abc import Iterator, Mapping
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


def is_signed(
    secret: str, headers: Mapping[str, str], body: bytes, *, now_s: float, age_s_max: float = 300
) -> bool:
    """What a receiver checks; the names of `headers` are in lower case."""
    at_s = headers.get("webhook-timestamp", "")
    if not (at_s.isascii() and at_s.isdecimal()) or abs(now_s - int(at_s)) > age_s_max:
        return False
    content = f"{headers.get('webhook-id', '')}.{at_s}.".encode() + body
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, content, "sha256")).decode()
    sent = headers.get("webhook-signature", "").encode().split(b" ")
    return any(hmac.compare_digest(f"v1,{signature}".encode(), one) for one in sent)
