"""Access: keys, tenants, roles, quotas and privacy."""

from dataclasses import dataclass
from typing import Literal, get_args

from penstock.core.settings import RoomSettings, setting

Role = Literal["ingest", "read", "serve", "train", "promote", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
QuotaName = Literal["events_per_hour", "queries_per_hour", "stored_bytes"]
QUOTAS: tuple[QuotaName, ...] = get_args(QuotaName)


@dataclass(frozen=True, kw_only=True)
class AccessSettings(RoomSettings):
    keys_refresh_seconds: float = setting(
        5.0,
        "seconds that a revoked key may still work",
        "Lower it when it has to stop sooner.",
        minimum=0.1,
    )
    tenant_events_per_hour_max: int = setting(
        0,
        "events that a tenant may send in an hour; 0 for no limit",
        "Set it when tenants share a service; `penstock quotas set` sets one for a single tenant.",
        minimum=0,
    )
    tenant_queries_per_hour_max: int = setting(
        0,
        "queries of a tenant in an hour, for each process; 0 for no limit",
        "The same.",
        minimum=0,
    )
    tenant_stored_bytes_max: int = setting(
        0,
        "bytes of events that a tenant may have stored, as they were sent; 0 is no limit",
        "The same.",
        minimum=0,
    )
