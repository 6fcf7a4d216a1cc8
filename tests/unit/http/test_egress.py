"""Which addresses are dialled for others."""

import socket

import pytest

from penstock.backends.http import AddressForbidden
from penstock.backends.http.address import EgressPolicy
from penstock.core.errors import SettingInvalid

INTERNET = EgressPolicy()


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "198.18.0.1", "224.0.0.1", "255.255.255.255",
        "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "2002:7f00:1::",
        "::7f00:1", "64:ff9b:1::7f00:1", "2001:0:7f00:1::1", "fec0::1", "5f00::1", "2001:db8::1",
        "192.0.0.1", "192.0.2.1", "192.88.99.1", "240.0.0.1", "100.100.100.200", "168.63.129.16",
        "fd00:ec2::254",
    ],
)  # fmt: skip
def test_addresses_of_the_neighbourhood_are_not_dialled(address: str) -> None:
    assert not INTERNET.permits(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "93.184.216.34", "2606:4700:4700::1111"])
def test_addresses_of_the_internet_are(address: str) -> None:
    assert INTERNET.permits(address)


def test_an_operator_allows_networks() -> None:
    policy = EgressPolicy.of("10.0.0.0/8, fd00::/8")
    assert policy.permits("10.1.2.3")
    assert policy.permits("::ffff:10.1.2.3")
    assert policy.permits("fd12::1")
    assert not policy.permits("192.168.1.1")


def test_where_clouds_keep_their_keys_is_allowed_by_itself_alone() -> None:
    around = EgressPolicy.of("169.254.0.0/16, fd00::/8, 100.64.0.0/10, 0.0.0.0/0")
    assert around.permits("169.254.1.1")
    for address in ("169.254.169.254", "::ffff:a9fe:a9fe", "fd00:ec2::254", "100.100.100.200"):
        assert not around.permits(address)
        assert not EgressPolicy(of_operator=True).permits(address)
    assert EgressPolicy.of("169.254.169.254/32").permits("169.254.169.254")


def test_an_operators_own_word_reaches_neighbours() -> None:
    own = EgressPolicy(of_operator=True)
    for address in ("127.0.0.1", "::1", "0.0.0.0", "10.1.2.3", "192.168.1.1", "fd12::1", "8.8.8.8"):
        assert own.permits(address)
    for address in ("169.254.1.1", "fe80::1%eth0", "224.0.0.1", "ff02::1"):
        assert not own.permits(address)
    with pytest.raises(OSError, match="has no address"):
        own.connect(("nowhere.invalid", 80), 5.0)


def test_addresses_are_refused_before_they_are_dialled() -> None:
    for host in ("localhost", "127.1", "2130706433", "0177.0.0.1", "::ffff:127.0.0.1", "10.0.0.1"):
        with pytest.raises(AddressForbidden, match=f"{host} is not dialled"):
            INTERNET.check_host(host)
    for host in ("8.8.8.8", "inside.example", "x" * 64):  # names wait
        INTERNET.check_host(host)


@pytest.mark.parametrize("networks", ["10.0.0.1/8", "localhost", "10/8,"])
def test_what_is_no_network_is_refused(networks: str) -> None:
    with pytest.raises(SettingInvalid):
        EgressPolicy.of(networks)


def test_the_policy_is_asked_about_what_a_name_stands_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for host in ("localhost", "127.0.0.1", "127.1", "2130706433", "0x7f000001"):
            with pytest.raises(AddressForbidden):
                INTERNET.connect((host, port), 5.0)
        EgressPolicy.of("127.0.0.0/8").connect(("localhost", port), 5.0).close()


def test_a_name_with_many_addresses_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def look_up(_host: str, port: int, **_kind: object) -> list[tuple[object, ...]]:
        places = [f"8.8.8.{number}" for number in range(100)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in places]

    def connect(_address: object, timeout: float, *_rest: object) -> socket.socket:
        tried.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(TimeoutError):
        INTERNET.connect(("many.example", 80), 5.0)
    assert len(tried) == 4
    assert max(tried) <= 5


def test_what_was_judged_is_what_is_dialled(monkeypatch: pytest.MonkeyPatch) -> None:
    """An attacker's name server says the internet at first, and this machine ever after."""
    answers = iter(["8.8.8.8", "127.0.0.1"])
    dialled = []

    def look_up(_host: str, port: int, **_kind: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    def connect(address: tuple[str, int], *_rest: object) -> socket.socket:
        dialled.append(address)
        return socket.socket()

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(socket, "create_connection", connect)
    INTERNET.connect(("attacker.example", 80)).close()
    assert dialled == [("8.8.8.8", 80)]
