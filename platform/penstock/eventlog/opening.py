"""From an address to the event log behind it."""

from pathlib import Path

from penstock.errors import ExtraMissing, SettingInvalid
from penstock.eventlog import EventLog
from penstock.events.packing import HEADER_BYTES_MAX
from penstock.settings import Settings


def open_log(settings: Settings) -> EventLog:
    scheme, _, rest = settings.log_url.partition(":")
    if scheme == "local" and rest:
        from penstock.eventlog.local import LocalEventLog

        return LocalEventLog(
            Path(rest),
            partitions=settings.log_partitions,
            file_bytes_max=settings.log_file_bytes_max,
            bytes_max=settings.log_bytes_max,
            disk_reserve_bytes=settings.disk_reserve_bytes,
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
        partitions=settings.log_partitions,
        value_bytes_max=settings.event_bytes_max + HEADER_BYTES_MAX,
        request_s=settings.log_request_seconds_max,
        refresh_s=settings.log_refresh_seconds,
    )
    return KafkaEventLog(settings.log_url, limits)
