"""From an address to the event log behind it."""

from pathlib import Path

from penstock.errors import ExtraMissing, SettingInvalid
from penstock.eventlog import EventLog
from penstock.eventlog.settings import EventLogSettings
from penstock.events.packing import HEADER_BYTES_MAX
from penstock.settings import Settings

#: Partitions that were added to a topic are seen so soon.
REFRESH_SECONDS = 5.0


def open_log(settings: Settings) -> EventLog:
    scheme, _, rest = settings.log_url.partition(":")
    if scheme == "local" and rest:
        from penstock.eventlog.local import LocalEventLog

        return LocalEventLog(
            Path(rest),
            partitions=settings.room(EventLogSettings).log_partitions,
            file_bytes_max=settings.room(EventLogSettings).log_file_bytes_max,
            bytes_max=settings.room(EventLogSettings).log_bytes_max,
            disk_reserve_bytes=settings.room(EventLogSettings).disk_reserve_bytes,
        )
    if scheme == "kafka":
        return _open_kafka(settings)
    raise SettingInvalid(
        name="log_url",
        origin="the settings",
        why=f"{settings.log_url!r} is neither local:DIRECTORY nor kafka://HOST:PORT/TOPIC",
    )


def _open_kafka(settings: Settings) -> EventLog:
    try:
        from penstock.eventlog.kafka.log import KafkaEventLog, KafkaLimits
    except ModuleNotFoundError as error:
        raise ExtraMissing(extra="kafka", what=f"The event log {settings.log_url}") from error
    limits = KafkaLimits(
        partitions=settings.room(EventLogSettings).log_partitions,
        value_bytes_max=settings.room(EventLogSettings).event_bytes_max + HEADER_BYTES_MAX,
        request_s=settings.room(EventLogSettings).log_request_seconds_max,
        refresh_s=REFRESH_SECONDS,
    )
    return KafkaEventLog(settings.log_url, limits)
