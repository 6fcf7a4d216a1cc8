"""How a target is told of one notice."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock.channels.notices import Notice
from penstock.channels.settings import ChannelSettings
from penstock.channels.webhooks import address_of, find_webhook, signed
from penstock.database.engine import Database
from penstock.errors import ExtraMissing, SettingInvalid
from penstock.eventlog.kafka.topic import TopicAddress, parse_address
from penstock.eventlog.settings import EventLogSettings
from penstock.http.address import HttpAddress
from penstock.http.client import Bounds, Exchange, Heard
from penstock.settings import Settings

if TYPE_CHECKING:
    from penstock.channels.kafka_topic import NoticeTopic

_GONE = 410
#: An answer is read so far, out of courtesy; nothing in it matters.
_ANSWER_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class Failure:
    """Why a target did not take a notice."""

    problem: str
    #: It asks to be left alone for so long.
    pause_s: float = 0
    #: It says that it never comes back: looking often is no use.
    gone: bool = False


class Target(Protocol):
    def send(self, notice: Notice) -> Failure | None:
        """None once it took the notice."""
        ...

    def cut(self) -> None:
        """From another thread: break off what is under way."""
        ...


class WebhookTarget:
    def __init__(self, address: HttpAddress, secret: str, seconds_max: float) -> None:
        self._address = address
        self._secret = secret
        self._exchange = Exchange(Bounds(seconds_max, _ANSWER_BYTES_MAX))

    def send(self, notice: Notice) -> Failure | None:
        body = notice.body.encode()
        # The receiver's clock tells how old a message is: the machine's here, not the database's.
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "penstock",
            **signed(self._secret, body, int(time.time())),
        }
        if self._address.authorization:
            headers["Authorization"] = self._address.authorization
        heard = self._exchange.ask("POST", self._address, headers, body)
        if 200 <= heard.status < 300:  # whatever came of the rest of its answer
            return None
        return Failure(_said(heard), heard.retry_after_s, gone=heard.status == _GONE)

    def cut(self) -> None:
        self._exchange.cut()


def _said(heard: Heard) -> str:
    if not heard.status:
        return heard.why
    if heard.status == _GONE:
        return f"it answered {_GONE}: it is gone for good; remove it, or bring it back"
    if 300 <= heard.status < 400:
        return f"it answered {heard.status}: messages are not sent on to other addresses"
    return f"it answered {heard.status}"


class TopicTarget:
    def __init__(self, topic: "NoticeTopic") -> None:
        self._topic = topic

    def send(self, notice: Notice) -> Failure | None:
        problem = self._topic.send(notice)
        return Failure(problem) if problem else None

    def cut(self) -> None:
        """Kafka's own time-out ends it."""


def topic_of(settings: Settings) -> TopicAddress | None:
    """None where the settings name none. Raises SettingInvalid."""
    url = settings.room(ChannelSettings).notice_topic_url
    if not url:
        return None
    try:
        if not url.startswith("kafka://"):
            raise _unfit("it is not kafka://HOST:PORT/TOPIC")
        return parse_address(url)
    except SettingInvalid as error:
        raise _unfit(str(error.facts["why"])) from None


def _unfit(why: str) -> SettingInvalid:
    return SettingInvalid(name="notice_topic_url", origin="the settings", why=why)


def open_topic(settings: Settings) -> "NoticeTopic | None":
    """None where the settings name none. Raises ExtraMissing, SettingInvalid."""
    address = topic_of(settings)
    if address is None:
        return None
    try:
        from penstock.channels.kafka_topic import NoticeTopic
    except ModuleNotFoundError as error:
        raise ExtraMissing(extra="kafka", what="The topic for changes of channels") from error
    return NoticeTopic(address, request_s=settings.room(EventLogSettings).log_request_seconds_max)


def open_webhook(database: Database, webhook_id: str, seconds_max: float) -> WebhookTarget | None:
    """None once it was removed."""
    found = find_webhook(database, webhook_id)
    if found is None:
        return None
    webhook, secret = found
    return WebhookTarget(address_of(webhook.url), secret, seconds_max)
