"""The settings of Iceberg tables."""

from dataclasses import dataclass

from penstock.core.settings import RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class IcebergSettings(RoomSettings):
    """See docs/ask.md."""

    iceberg: str = setting(
        "off",
        "whether upkeep keeps a table of Apache Iceberg in step with each tenant's segments",
        "Turn it on where Spark, Trino, Snowflake or another engine reads the lake.",
        choices=("off", "on"),
    )
