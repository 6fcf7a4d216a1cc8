"""A trainer that is an address, asked by HTTP.

What is asked is known by its key: asked again, after an outage or by another runner, it is the same
job. A job outlives the runner that asked for it, and is told to end where its time is over.
"""

import time
from dataclasses import dataclass, field, replace
from threading import Event
from urllib.parse import urljoin

import msgspec

from penstock.errors import InvalidInput
from penstock.http.address import HttpAddress
from penstock.http.client import Bounds, Exchange, Heard
from penstock_jobs.loop.errors import (
    StageLost,
    TrainerAnswerUnfit,
    TrainerFailed,
    TrainerRefused,
    TrainerTooSlow,
    TrainerUnreachable,
)
from penstock_jobs.loop.training import TOLD_CHARS_MAX, Made, Task, read_answer

#: Come back later; and: what stands before it cannot reach it.
_LATER, _AWAY = (202, 408, 425, 429), (0, 502, 503, 504)
_GONE = (404, 410)


@dataclass(frozen=True)
class Pace:
    """`seconds` between questions where the answer does not say when; more and more of them while
    it is away, and never more than `seconds_max`."""

    seconds: float
    seconds_max: float
    #: Away for so long it has failed.
    silence_s: float


@dataclass(frozen=True)
class Later:
    """It is to be asked again. `away`: nobody knows whether it is there."""

    why: str
    retry_after_s: float = 0.0
    away: bool = False
    location: str | None = None


def understand(heard: Heard, where: str, bytes_max: int, *, of_job: bool) -> Made | Later:
    """What an answer means; `of_job` where a job was asked after, not for. Raises TrainerFailed,
    TrainerRefused, TrainerAnswerUnfit."""
    status = heard.status
    if status in _AWAY:
        why = heard.why or f"it answered {status}: {told(heard)}"
        return Later(why, heard.retry_after_s, away=True)
    if status in _LATER:
        said = f"it answered {status}: {told(heard)}"
        return Later(said, heard.retry_after_s, location=heard.location)
    if status >= 500 or (of_job and status in _GONE):
        raise TrainerFailed(status=status, log=where, output=told(heard))
    if status >= 400:
        raise TrainerRefused(address=where, status=status, why=told(heard))
    if status >= 300:
        why = "it leads elsewhere, and is not followed"
        raise TrainerRefused(address=where, status=status, why=why)
    if status != 200:
        raise TrainerAnswerUnfit(path=where, why=f"its status is {status}, not 200 or 202")
    if len(heard.content) > bytes_max:
        raise TrainerAnswerUnfit(path=where, why=f"it has more than {bytes_max} bytes")
    return read_answer(heard.content, where)


def beside(address: HttpAddress, location: str) -> HttpAddress:
    """What a `Location` of its answer means. Raises InvalidInput, also where that is another
    server, which is not to be told this one's token."""
    try:
        joined = urljoin(address.text, location)
    except ValueError as error:
        raise InvalidInput(what="Its Location", why="it is no address") from error
    found = HttpAddress.of(joined, "Its Location")
    if (found.secure, found.host, found.port) != (address.secure, address.host, address.port):
        why = f"it is not at {address.host}:{address.port}"
        raise InvalidInput(what="Its Location", why=why)
    return found


def told(heard: Heard) -> str:
    """What its body says: the detail of a problem document, else its beginning."""
    try:
        found = msgspec.json.decode(heard.content)
    except (UnicodeDecodeError, msgspec.DecodeError):
        found = None
    known = found if isinstance(found, dict) else {}
    text = known.get("detail") or known.get("title") or heard.content.decode(errors="replace")
    return " ".join(str(text).split())[:TOLD_CHARS_MAX] or "nothing"


@dataclass(frozen=True, kw_only=True)
class HttpTrainer:
    address: HttpAddress
    token: str | None = field(default=None, repr=False)
    bounds: Bounds
    pace: Pace

    def train(self, task: Task, lost: Event) -> Made:
        until = time.monotonic() + task.limit_s
        job: HttpAddress | None = None
        heard_at, outages, last = time.monotonic(), 0, "nothing"
        while True:
            asked_at = time.monotonic()
            heard = self._ask("GET" if job else "POST", job, task)
            where = (job or self.address).text
            found = understand(heard, where, self.bounds.bytes_max, of_job=job is not None)
            if isinstance(found, Made):
                return found
            last, now = found.why, time.monotonic()
            outages = outages + 1 if found.away else 0
            if not found.away:
                heard_at = now
            elif asked_at - heard_at >= self.pace.silence_s:
                raise TrainerUnreachable(address=where, why=found.why)
            if found.location is not None:
                job = self._beside(found.location)
            if now >= until:
                break
            if lost.wait(min(self._pause(found, outages), until - now)):
                loop, cycle = task.facts["loop"], task.facts["cycle"]
                raise StageLost(stage="train", cycle=cycle, loop=loop)
        self._ask("DELETE", job, task)  # whether it could be told changes nothing
        log = (job or self.address).text
        raise TrainerTooSlow(limit_s=f"{task.limit_s:g}", log=log, output=last)

    def _ask(self, method: str, job: HttpAddress | None, task: Task) -> Heard:
        headers = {
            "Accept": "application/json",
            "Idempotency-Key": task.key,
            "User-Agent": "penstock",
        }
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        body = None
        if method == "POST":
            headers["Content-Type"] = "application/json"
            body = msgspec.json.encode(task.facts)
        exchange = Exchange(self.bounds)
        heard = exchange.ask(method, job or self.address, headers, body).if_whole()
        if not self.token:
            return heard
        # Who repeats what it was sent does not make errors of the loop a place to find it.
        return replace(heard, content=heard.content.replace(self.token.encode(), b"***"))

    def _beside(self, location: str) -> HttpAddress:
        try:
            return beside(self.address, location)
        except InvalidInput as error:
            raise TrainerAnswerUnfit(path=self.address.text, why=str(error).rstrip(".")) from error

    def _pause(self, found: Later, outages: int) -> float:
        pause = found.retry_after_s
        if not pause:
            pause = self.pace.seconds * 2.0 ** min(max(outages - 1, 0), 40)
        return min(pause, self.pace.seconds_max)
