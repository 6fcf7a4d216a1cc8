"""Addresses that a sandbox lets through keep their names and ports."""

import pytest

from penstock.core.errors import InvalidInput
from penstock_jobs.benchmarks.sandbox.network import Forward, address_of, plan, split


def test_names_get_places_of_their_own_on_the_loopback() -> None:
    found = plan(
        ["packages.example:443", "packages.example:80", "files.example:443", "localhost:8000"]
    )
    assert found.names == {"packages.example": "127.1.0.1", "files.example": "127.1.0.2"}
    assert Forward("127.1.0.1", "packages.example", 80) in found.all
    assert Forward("127.0.0.1", "localhost", 8000) in found.all
    assert found.extra == ()


def test_a_number_is_made_an_address_of_the_sandbox() -> None:
    found = plan(["10.1.2.3:80", "10.1.2.3:81", "127.0.0.1:5", "[::1]:6"])
    assert found.extra == ("10.1.2.3",)
    assert [one.listen for one in found.all] == ["10.1.2.3", "10.1.2.3", "127.0.0.1", "::1"]


def test_the_same_twice_is_one() -> None:
    assert len(plan(["127.0.0.1:80", "127.0.0.1:80", "localhost:80"]).all) == 1


@pytest.mark.parametrize(
    "text", ["", "host", "host:", "host:0", "host:65536", "a b:80", ":80", "-x:80", "x:٣"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        split(text)


def test_version_6_can_be_reached_by_name_alone() -> None:
    with pytest.raises(InvalidInput, match="use a name"):
        plan(["[2001:db8::1]:80"])


def test_serving_addresses_are_urls() -> None:
    assert address_of("http://gpu-7:8000/v1") == "gpu-7:8000"
    assert address_of("https://models.example/v1") == "models.example:443"
    assert address_of("http://[::1]:80") == "[::1]:80"
    for text in ("gpu-7:8000", "ftp://x:1", "http://", "http://x:99999"):
        with pytest.raises(InvalidInput):
            address_of(text)
