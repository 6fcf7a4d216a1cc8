"""The settings of the gateway and the writer."""

from dataclasses import dataclass

from penstock.core.settings import MIB, RoomSettings, setting


@dataclass(frozen=True, kw_only=True)
class IngestSettings(RoomSettings):
    """See docs/reference/settings.md."""

    body_bytes_max: int = setting(
        32 * MIB,
        "request body as sent",
        "Raise it when clients send larger batches.",
        minimum=1,
        at_most="tenant_inflight_bytes_max",
    )
    body_decoded_bytes_max: int = setting(
        64 * MIB,
        "request body after decompression",
        "Raise it when clients compress batches that are larger than this.",
        minimum=1,
        at_most="tenant_inflight_bytes_max",
    )
    inflight_bytes_max: int = setting(
        128 * MIB,
        "bodies and events not yet on disk, all keys",
        "Raise it when a machine with free memory answers 503.",
        minimum=1,
    )
    tenant_inflight_bytes_max: int = setting(
        64 * MIB,
        "bodies and events of one tenant not yet on disk",
        "Lower it when one tenant crowds out the others.",
        minimum=1,
        at_most="inflight_bytes_max",
    )
    flush_rows_max: int = setting(
        50_000,
        "events in a new segment",
        "Raise it for larger segments under heavy load.",
        minimum=1,
    )
    flush_bytes_max: int = setting(
        15 * MIB,  # one row group, as a rule
        "bytes of events in a new segment",
        "Lower it when the writer needs too much memory.",
        minimum=1,
    )
    flush_seconds_max: float = setting(
        2.0,
        "age of the oldest event before a flush",
        "Raise it for fewer, larger segments; lower it for events stored sooner.",
        minimum=0,
        at_most="lease_seconds",
    )
    flush_files_per_second_max: float = setting(
        5.0,
        "new segments a second, when many tenants send and each would write a small one",
        "Raise it when thousands of tenants' events must be in segments sooner; lower it for"
        " fewer, larger segments.",
        minimum=0.01,
    )
    rejected_ratio_max: float = setting(
        0.5,
        "share of rejected lines that trips the fuse of a source",
        "Raise it when a bad client cannot be fixed and each of its lines is needed.",
        minimum=0,
    )
