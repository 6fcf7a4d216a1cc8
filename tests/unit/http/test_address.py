"""Addresses of other people's servers."""

import base64

import pytest

from penstock.backends.http.address import HttpAddress, address_group, is_loopback
from penstock.core.errors import InvalidInput


def of(text: str) -> HttpAddress:
    return HttpAddress.of(text, "The address of the test")


def test_an_address_is_taken_apart() -> None:
    found = of("https://gpu-7.example:8443/a/b/?c=d&e#f")
    assert (found.secure, found.host, found.port) == (True, "gpu-7.example", 8443)
    assert (found.path, found.query, found.fragment) == ("/a/b/", "c=d&e", "f")
    assert found.target == "/a/b/?c=d&e"
    assert (found.login, found.authorization) == (None, None)


@pytest.mark.parametrize(
    ("text", "port", "target"),
    [
        ("http://x", 80, "/"),
        ("https://x", 443, "/"),
        ("HTTP://X?a", 80, "/?a"),
        ("http://[::1]:9/a//b", 9, "/a//b"),
        ("http://x/%20;v=1", 80, "/%20;v=1"),
    ],
)
def test_what_is_not_said_is_the_usual(text: str, port: int, target: str) -> None:
    assert (of(text).port, of(text).target) == (port, target)


@pytest.mark.parametrize(
    ("text", "below"),
    [
        ("http://x", "/v1/models"),
        ("http://x/", "/v1/models"),
        ("http://x/a/?key=b", "/a/v1/models?key=b"),
    ],
)
def test_paths_are_put_below_an_address(text: str, below: str) -> None:
    assert of(text).below("v1/models").target == below


def test_a_login_becomes_a_header_and_is_not_shown() -> None:
    found = of("http://ada:p@ss@x/?token=t")
    assert found.authorization == f"Basic {base64.b64encode(b'ada:p@ss').decode()}"
    assert "p@ss" not in repr(found)
    assert "token" not in repr(found)
    assert of("http://@x").login == ""


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "x:80", "//x", "ftp://x", "http:", "http://", "http:///a", "http://:80"),
        *("http://x:0", "http://x:65536", "http://x:a", "http://x:-1", "http://[::1"),
        *("http://x/ä", "http://x/a b", "http://x/\n", "http://x/\x1b", "http://" + "x" * 4_000),
    ],
)
def test_what_is_none_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        of(text)
    assert str(refused.value).startswith("The address of the test cannot be used: ")
    assert len(str(refused.value)) < 120


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("penstock.example.com", False),
        ("10.0.0.1", False),
    ],
)
def test_it_is_known_which_address_no_network_lies_before(host: str, own: bool) -> None:
    assert is_loopback(host) is own


def test_addresses_of_one_network_are_counted_together() -> None:
    assert address_group("10.1.2.3") == address_group("::ffff:10.1.2.3") == "10.1.2.3"
    assert address_group("2001:db8::1") == address_group("2001:db8::ffff:1")
    assert address_group("2001:db8::1") != address_group("2001:db8:0:1::1")
    assert address_group("fe80::1%eth0") == address_group("fe80::2")
    assert {address_group(text) for text in ("", "a:b", "x", "1.2.3", "::1::")} == {""}
