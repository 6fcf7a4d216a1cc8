"""From an address to the event log behind it."""

from pathlib import Path

from penstock.errors import SettingInvalid
from penstock.eventlog import EventLog
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
    raise SettingInvalid(
        name="log_url", origin="the settings", why=f"{settings.log_url!r} is not local:DIRECTORY"
    )
