"""Who may do what: keys, tenants and roles."""

from typing import Literal, get_args

Role = Literal["ingest", "read", "serve", "train", "promote", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
QuotaName = Literal["events_per_hour", "queries_per_hour", "stored_bytes"]
QUOTAS: tuple[QuotaName, ...] = get_args(QuotaName)
