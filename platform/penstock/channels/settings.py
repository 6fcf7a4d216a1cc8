"""The settings of channels and of those who are told about their changes."""

from dataclasses import dataclass
from typing import ClassVar

from penstock.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class ChannelSettings(RoomSettings):
    """See docs/settings.md."""

    RETIRED: ClassVar = frozenset({
        "channel_poll_seconds", "delivery_poll_seconds",
        "delivery_pause_seconds_max", "deliveries_max",
    })  # fmt: skip

    channel_waiters_max: int = setting(
        1_000,
        "requests of a process that wait for changes of channels",
        "Raise it when more engines than this follow channels through one process.",
        minimum=0,
    )
    notice_topic_url: str = setting(
        "",
        "topic that is told of each change of a channel, kafka://HOST:PORT/TOPIC; empty: none",
        "Set it when services learn of promotions from Kafka.",
    )
    webhook_seconds_max: float = setting(
        10.0,
        "time of one request to a webhook",
        "Raise it for receivers that work before they answer.",
        minimum=0.1,
    )
    channel_wait_seconds_max: float = setting(
        60.0,
        "longest wait of a request for a change of a channel",
        "Keep it below the time after which a proxy gives up a silent request.",
        minimum=0,
    )
    delivery_lease_seconds: float = setting(
        10.0,
        "a deliverer that is silent so long loses the webhook that it was telling",
        "Lower it to take over sooner from a process that died.",
        minimum=0.1,
    )
