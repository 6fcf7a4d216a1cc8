"""Whose address a request is counted for, where `X-Forwarded-For` names one."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock.access.keys import _FAILURES_MAX
from penstock.backends.http.client import ServiceClient
from penstock.core.errors import SettingInvalid
from penstock.doors.server.http_server import proxy_networks

#: It has not the form of a key, so that none of them waits for a look into the database.
GUESS = {"Authorization": "Bearer guess"}


def statuses(url: str, addresses: list[str]) -> list[int]:
    with ServiceClient(url) as client:
        return [
            client.get("/v1/keys/own", **GUESS, **{"X-Forwarded-For": address}).status
            for address in addresses
        ]


def test_a_client_cannot_name_another_address_as_its_own(start: Callable[..., Any]) -> None:
    many = [f"10.0.0.{number}" for number in range(_FAILURES_MAX)]
    with start() as running:
        assert statuses(running.server.url, [*many, "2001:db8::1", "a:b"]) == [
            *[401] * _FAILURES_MAX,
            *[429, 429],
        ]


def test_what_a_trusted_proxy_says_counts(start: Callable[..., Any]) -> None:
    with start(trusted_proxies="127.0.0.0/8") as running:
        url = running.server.url
        # What the client itself had written stands before what the proxy adds.
        spoofed = [f"10.0.0.{number}, 192.0.2.1" for number in range(_FAILURES_MAX)]
        assert statuses(url, [*spoofed, "10.9.9.9, 192.0.2.1"])[-1] == 429
        assert statuses(url, ["192.0.2.2", "a:b", "x" * 300]) == [401] * 3


@pytest.mark.parametrize("text", ["*", "localhost", "10.0.0.1/8", "10.0.0.1;10.0.0.2"])
def test_proxies_are_addresses(text: str) -> None:
    with pytest.raises(SettingInvalid, match=r"10\.0\.0\.7"):
        proxy_networks(text)
