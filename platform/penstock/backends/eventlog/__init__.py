"""The event log, local or Kafka: accepted events are durable in it before they are Parquet."""

from pathlib import Path

from penstock.backends.eventlog.log import EventLog, EventLogSettings
from penstock.core.errors import ExtraMissing, SettingInvalid
from penstock.core.settings import Settings


def open_log(settings: Settings) -> EventLog:
    """Open the log of `log_url`. Raises SettingInvalid, ExtraMissing, the errors of the log."""
    limits = settings.room(EventLogSettings)
    scheme, _, rest = settings.log_url.partition(":")
    if scheme == "local" and rest:
        from penstock.backends.eventlog.local import LocalEventLog

        return LocalEventLog(
            Path(rest),
            partitions=limits.log_partitions,
            file_bytes_max=limits.file_bytes_max,
            bytes_max=limits.log_bytes_max,
            disk_reserve_bytes=limits.disk_reserve_bytes,
        )
    if scheme == "kafka":
        try:
            from penstock.backends.eventlog.kafka_log import KafkaEventLog
        except ModuleNotFoundError as error:
            raise ExtraMissing(extra="kafka", what=f"The event log {settings.log_url}") from error
        return KafkaEventLog(settings.log_url, limits)
    raise SettingInvalid(
        name="log_url",
        origin="the settings",
        why=f"{settings.log_url!r} is neither local:DIRECTORY nor kafka://HOST:PORT/TOPIC",
    )
