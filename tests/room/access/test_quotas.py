"""Quotas: counted by tenant and hour, and refused with which and until when."""

from pathlib import Path

import pytest

from penstock.access.quotas import (
    HOUR_US,
    Quotas,
    QuotaUsedUp,
    own_quotas,
    set_quota,
    survey_quotas,
)
from penstock.core.errors import InvalidInput
from tests.support.lakes import HandLake, body_of, hand_lake, make_event

pytestmark = pytest.mark.usefixtures("each_database")


def quotas_of(lake: HandLake) -> Quotas:
    quotas = Quotas(lake.lake.database, lake.lake.settings, lake.clock)
    quotas.refresh()
    return quotas


def test_a_used_up_quota_says_which_and_until_when(tmp_path: Path) -> None:
    with hand_lake(tmp_path, tenant_events_per_hour_max=10) as lake:
        quotas = quotas_of(lake)
        quotas.require("acme", "events_per_hour")
        quotas.count("acme", "events_per_hour", 10)
        with pytest.raises(QuotaUsedUp, match="events_per_hour of 10 is used up until") as refused:
            quotas.require("acme", "events_per_hour")
        left_s = HOUR_US // 1_000_000
        assert 0 < int(refused.value.http_headers["Retry-After"]) <= left_s + 1
        assert refused.value.http_fields["quota"] == "events_per_hour"
        quotas.require("bolt", "events_per_hour")  # another tenant's is its own
        lake.clock.advance(left_s)
        quotas.require("acme", "events_per_hour")


def test_what_others_took_counts_too(tmp_path: Path) -> None:
    with hand_lake(tmp_path, tenant_events_per_hour_max=2) as lake:
        lake.store([make_event("s", 1), make_event("s", 2)], "acme")
        with pytest.raises(QuotaUsedUp):
            quotas_of(lake).require("acme", "events_per_hour")


def test_stored_bytes_are_those_that_were_sent(tmp_path: Path) -> None:
    events = [make_event("s", number, source=f"s{number % 3}") for number in range(9)]
    size = len(body_of(events))
    with hand_lake(tmp_path) as lake:
        lake.store(events, "acme")
        [use] = [
            use
            for use in survey_quotas(lake.lake.database, lake.lake.settings, lake.clock)
            if use.name == "stored_bytes"
        ]
        assert use.used == pytest.approx(size, rel=0.02)
        set_quota(lake.lake.database, "acme", "stored_bytes", size // 2)
        with pytest.raises(QuotaUsedUp, match="until some of it is removed"):
            quotas_of(lake).require("acme", "stored_bytes")


def test_a_tenant_has_its_own(tmp_path: Path) -> None:
    with hand_lake(tmp_path, tenant_queries_per_hour_max=1) as lake:
        database = lake.lake.database
        set_quota(database, "acme", "queries_per_hour", 2)
        set_quota(database, "free", "queries_per_hour", 0)
        quotas = quotas_of(lake)
        for tenant, count in (("acme", 2), ("bolt", 1)):
            for _ in range(count):
                quotas.require(tenant, "queries_per_hour")
                quotas.count(tenant, "queries_per_hour")
            with pytest.raises(QuotaUsedUp):
                quotas.require(tenant, "queries_per_hour")
        quotas.count("free", "queries_per_hour", 1000)
        quotas.require("free", "queries_per_hour")
        set_quota(database, "acme", "queries_per_hour", 3)
        assert [own for (tenant, _), own in own_quotas(database).items() if tenant == "acme"] == [3]
        set_quota(database, "acme", "queries_per_hour", None)
        assert [tenant for tenant, _ in own_quotas(database)] == ["free"]


def test_a_quota_that_is_none_is_refused(lake: HandLake) -> None:
    with pytest.raises(InvalidInput, match="events_per_hour"):
        set_quota(lake.lake.database, "acme", "events_per_day", 1)
    with pytest.raises(InvalidInput, match="unprintable"):
        set_quota(lake.lake.database, "", "events_per_hour", 1)
