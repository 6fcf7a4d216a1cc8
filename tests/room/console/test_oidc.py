"""Signing in by an OpenID provider: who is let in, with which rights, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.backends.http.address import HttpAddress
from penstock.backends.http.client import HttpClient
from penstock.core.errors import InvalidInput
from penstock.doors.console.sign_in import (
    OpenIdProvider,
    Person,
    ProviderUnusable,
    SignInRefused,
    group_keys,
    new_challenge,
    person_of,
    read_challenge,
)
from penstock.doors.settings import ConsoleSettings
from tests.support.servers.scripted_provider import CLIENT, SECRET, Provider, scripted_provider

BACK = "http://127.0.0.1:1/sign-in/oidc"
KEYS = {"ml-team": "k-read", "on-call": "k-promote"}


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with scripted_provider() as running:
        yield running


@pytest.fixture
def client(provider: Provider, tmp_path: Path) -> OpenIdProvider:
    provider.claims = {"email": "ann@example.com", "groups": ["ml-team"]}
    provider.forged = False
    (tmp_path / "secret").write_text(SECRET + "\n")
    made = OpenIdProvider.of(
        ConsoleSettings(
            oidc_issuer=provider.url,
            oidc_client_id=CLIENT,
            oidc_client_secret_file=str(tmp_path / "secret"),
            oidc_groups="ml-team=k-read, on-call=k-promote",
        )
    )
    assert made is not None
    return made


def _sign_in(client: OpenIdProvider, **changed: str) -> Person:
    challenge = new_challenge("/channels")
    there = HttpAddress.of(client.authorization_url(challenge, BACK), "the provider")
    asking = HttpClient(there, seconds_max=30, egress=None)
    answer = asking.request("GET", {})
    asking.close()
    back = HttpAddress.of(answer.headers["location"], "the redirect")
    fields = dict(pair.split("=") for pair in back.query.split("&"))
    kept = read_challenge(challenge.text, fields["state"])
    assert kept.next_path == "/channels"
    return client.person(changed.get("code", fields["code"]), kept, BACK)


def test_a_member_of_a_group_has_the_rights_of_its_key(client: OpenIdProvider) -> None:
    assert _sign_in(client) == Person("ann@example.com", "k-read")


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"groups": ["others"]}, "in no group"),
        ({"groups": None}, "in no group"),
        ({"nonce": "of another"}, "another sign-in"),
        ({"aud": "another-client"}, "is invalid"),
        ({"iss": "https://elsewhere.test"}, "is invalid"),
        ({"exp": 1}, "is invalid"),
    ],
)
def test_what_does_not_hold_is_refused(
    client: OpenIdProvider, provider: Provider, claims: dict[str, Any], why: str
) -> None:
    provider.claims |= claims
    with pytest.raises(SignInRefused, match=why):
        _sign_in(client)


def test_a_forged_token_and_a_guessed_code_are_of_no_use(
    client: OpenIdProvider, provider: Provider
) -> None:
    with pytest.raises(ProviderUnusable, match="400"):
        _sign_in(client, code="guessed")
    provider.forged = True
    with pytest.raises(SignInRefused, match="is invalid"):
        _sign_in(client)


def test_an_answer_of_another_sign_in_is_refused() -> None:
    challenge = new_challenge("/")
    with pytest.raises(SignInRefused, match="another sign-in"):
        read_challenge(challenge.text, new_challenge("/").state)
    with pytest.raises(SignInRefused, match="did not start"):
        read_challenge("", challenge.state)


def test_a_provider_that_is_away_is_named() -> None:
    settings = ConsoleSettings(
        oidc_issuer="http://127.0.0.1:1", oidc_client_id="c", oidc_groups="a=b"
    )
    client = OpenIdProvider.of(settings)
    assert client is not None
    with pytest.raises(ProviderUnusable):
        client.authorization_url(new_challenge("/"), BACK)


def test_the_first_group_that_fits_counts() -> None:
    both = {"sub": "u", "groups": ["on-call", "ml-team"]}
    assert person_of(both, KEYS, "groups") == Person("u", "k-read")
    assert person_of({"sub": "u", "roles": "on-call"}, KEYS, "roles") == Person("u", "k-promote")
    unverified = {"sub": "u", "email": "root@example.com", "email_verified": False}
    assert person_of(unverified | {"groups": ["ml-team"]}, KEYS, "groups").name == "u"


def test_groups_are_pairs() -> None:
    assert group_keys("a=k1, b=k2") == {"a": "k1", "b": "k2"}
    for text in ("a", "a=", "=k"):
        with pytest.raises(InvalidInput, match="GROUP=KEY"):
            group_keys(text)
    assert OpenIdProvider.of(ConsoleSettings()) is None
