"""The settings of the event log."""

from dataclasses import dataclass

from penstock.core.settings import GIB, MIB, RoomSettings, setting

#: A larger block is slower to check after a crash, and no quicker to write.
_BLOCK_BYTES_MAX = 4 * MIB
#: A file of the local log before the next begins: space is given back by whole files.
FILE_BYTES_MAX = 64 * MIB


@dataclass(frozen=True, kw_only=True)
class EventLogSettings(RoomSettings):
    event_bytes_max: int = setting(
        8 * MIB,
        "one event",
        "Raise it when agents send larger edits or outputs.",
        minimum=1,
        at_most="body_decoded_bytes_max",
    )
    log_partitions: int = setting(
        1,
        "partitions of a new log; a local one keeps them, a topic may get more",
        "Set it before the first start to the number of writers.",
        minimum=1,
    )
    log_bytes_max: int = setting(
        8 * GIB,
        "events waiting in the local log before 503",
        "Raise it to outlast longer outages of database or store.",
        minimum=1,
    )
    disk_reserve_bytes: int = setting(
        256 * MIB,
        "disk kept free for the writer: below it 503",
        "Raise it when other programs fill the disk quickly.",
        minimum=0,
    )
    log_request_seconds_max: float = setting(
        10.0,
        "wait for an answer of Kafka",
        "Raise it when brokers are far away or overloaded.",
        minimum=0.1,
    )

    @property
    def file_bytes_max(self) -> int:
        """Less for a small log, so that it has several files."""
        return min(FILE_BYTES_MAX, self.log_bytes_max // 4)

    @property
    def block_bytes_max(self) -> int:
        """Events that share one fsync and one checksum."""
        return min(_BLOCK_BYTES_MAX, self.file_bytes_max // 2)
