"""The topic as a log, when the network and the broker misbehave."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer

from penstock.backends.eventlog.kafka_log import KafkaEventLog
from penstock.backends.eventlog.kafka_topic import MARK, parse_address, value_of
from penstock.backends.eventlog.log import EventLogSettings, LogUnreachable, LogUnwritable
from penstock.core.errors import SettingInvalid
from penstock.events.frames import encode_unjudged
from tests.support.servers.broker import Broker, running_broker
from tests.support.servers.proxy import TcpProxy
from tests.support.waiting import eventually

REQUEST_SECONDS = 2.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One of this file's own, since its tests stop it."""
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture
def proxy(broker: Broker) -> Iterator[TcpProxy]:
    with TcpProxy("127.0.0.1", broker.behind_proxy_port, port=broker.advertised_port) as made:
        yield made


def open_at(address: str, topic: str) -> KafkaEventLog:
    limits = EventLogSettings(event_bytes_max=1 << 20, log_request_seconds_max=REQUEST_SECONDS)
    return KafkaEventLog(f"kafka://{address}/{topic}", limits)


@pytest.fixture
def topic(broker: Broker) -> str:
    """There already: to make one takes longer than some tests have patience."""
    name = uuid.uuid4().hex
    limits = EventLogSettings(event_bytes_max=1 << 20, log_request_seconds_max=30)
    KafkaEventLog(f"kafka://{broker.address}/{name}", limits).close()
    return name


@pytest.fixture
def log(proxy: TcpProxy, topic: str) -> Iterator[KafkaEventLog]:
    with closing(open_at(proxy.address, topic)) as made:
        yield made


def values(log: KafkaEventLog) -> list[bytes]:
    found: list[bytes] = []
    offset = 0
    while entries := log.read(0, offset, 1 << 20):
        found += [value for entry in entries for value in entry.values]
        offset = entries[-1].next_offset
    return found


def append_until_done(log: KafkaEventLog, value: bytes) -> int:
    """As a client does that retries; how often it had to."""
    for tries in range(100):
        try:
            log.append({0: [value]})
        except LogUnwritable:
            continue
        return tries
    raise AssertionError("it was never appended")


def test_dropped_connections_cost_nothing(log: KafkaEventLog, proxy: TcpProxy) -> None:
    for number in range(5):
        log.append({0: [b"%d" % number]})
        proxy.cut()
        assert values(log) == [b"%d" % one for one in range(number + 1)]


def test_a_broker_that_hangs_is_an_error_in_time_and_no_loss(
    log: KafkaEventLog, proxy: TcpProxy
) -> None:
    """The producer that lost track of a batch would never send anything again."""
    log.append({0: [b"before"]})
    proxy.stall()
    with pytest.raises(LogUnwritable):
        log.append({0: [b"hangs"]})
    with pytest.raises(LogUnreachable):
        log.ends()
    with pytest.raises(LogUnreachable):
        log.read(0, 1, 1000)
    proxy.flow()
    append_until_done(log, b"after")
    found = values(log)
    assert [found[0], found[-1]] == [b"before", b"after"]
    assert set(found) <= {b"before", b"hangs", b"after"}


def test_a_lost_reply_is_asked_for_again(log: KafkaEventLog, proxy: TcpProxy) -> None:
    log.append({0: [b"before"]})
    proxy.lose_replies(times=1)
    append_until_done(log, b"once")
    found = values(log)
    assert found[0] == b"before"
    assert set(found[1:]) == {b"once"}


def test_a_broker_that_restarts_has_everything(broker: Broker, topic: str) -> None:
    with closing(open_at(broker.address, topic)) as log:
        log.append({0: [b"before"]})
        assert values(log) == [b"before"]
        broker.kill()
        with pytest.raises(LogUnwritable):
            log.append({0: [b"while it is away"]})
        with pytest.raises(LogUnreachable):
            log.read(0, 1, 1000)
        broker.start()
        append_until_done(log, b"after")
        found = values(log)
        assert [found[0], found[-1]] == [b"before", b"after"]


def test_a_broker_that_is_not_there_is_said_in_a_sentence() -> None:
    with pytest.raises(LogUnreachable, match=r"kafka://127\.0\.0\.1:1/topic cannot be reached"):
        open_at("127.0.0.1:1", "topic")


def test_a_value_over_the_limit_costs_the_next_one_nothing(broker: Broker, topic: str) -> None:
    with closing(open_at(broker.address, topic)) as log:
        with pytest.raises(LogUnwritable):
            log.append({0: [b"x" * (log.value_bytes_max * 2)]})
        log.append({0: [b"x" * log.value_bytes_max]})
        assert [len(value) for value in values(log)] == [log.value_bytes_max]


def test_an_aborted_transaction_of_another_producer_is_not_there(
    broker: Broker, topic: str
) -> None:
    with (
        closing(open_at(broker.address, topic)) as log,
        closing(
            KafkaProducer(bootstrap_servers=broker.address, transactional_id=topic)
        ) as producer,
    ):
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"aborted", headers=[MARK]).get(20)
        producer.abort_transaction()
        assert values(log) == []
        log.append({0: [b"after"]})
        assert values(log) == [b"after"]
        producer.begin_transaction()
        producer.send(topic, b"committed", headers=[MARK]).get(20)
        producer.commit_transaction()
        # The broker answers before it has marked the partition.
        eventually(lambda: values(log) == [b"after", b"committed"])


# Addresses and records


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("kafka://a:1/t", {"bootstrap_servers": ["a:1"]}),
        ("kafka://a:1,b:2/t", {"bootstrap_servers": ["a:1", "b:2"]}),
        (
            "kafka://u:p%40ss@a:1/t",
            {
                "bootstrap_servers": ["a:1"],
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "SCRAM-SHA-512",
                "sasl_plain_username": "u",
                "sasl_plain_password": "p@ss",
            },
        ),
        (
            "kafka://a:1/t?security_protocol=SSL&ssl_cafile=/ca.pem",
            {"bootstrap_servers": ["a:1"], "security_protocol": "SSL", "ssl_cafile": "/ca.pem"},
        ),
    ],
)
def test_an_address_becomes_what_the_client_wants(url: str, expected: dict[str, object]) -> None:
    address = parse_address(url)
    assert address.client == expected
    assert "p@ss" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    "url",
    [
        "kafka://",
        "kafka:///t",
        "kafka://a:1",
        "kafka://a:1/",
        "kafka://a:1/t/u",
        "kafka://a:1/t?compression=gzip",
        "kafka://a:1/t?security_protocol=TLS",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(SettingInvalid, match="log_url"):
        parse_address(url)


def test_a_record_of_the_gateway_is_a_value_as_it_is() -> None:
    assert value_of(b"anything", [("other", b""), MARK], 5) == b"anything"


@pytest.mark.parametrize(
    ("headers", "tenant", "version"),
    [
        ([], "default", 1),
        ([("penstock-tenant", b"acme"), ("penstock-schema-version", b"2")], "acme", 2),
        ([("penstock-tenant", b"\xff")], "\ufffd", 1),
        ([("penstock-schema-version", b"one")], "default", 2**31 - 1),
        ([("trace", None), ("penstock-tenant", b"acme")], "acme", 1),  # Kafka lets it be null
    ],
)
def test_any_other_record_is_lines_to_be_judged(headers: Any, tenant: str, version: int) -> None:
    assert value_of(b"{}", headers, 5) == encode_unjudged(b"{}", tenant, 5000, version)


def test_by_tls_and_only_who_knows_the_password(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker", login=("agent", "p@ss/word"))
    broker.start()
    where = f"127.0.0.1:{broker.login_port}"
    try:
        with closing(open_at(f"agent:p%40ss%2Fword@{where}", known(broker))) as log:
            log.append({0: [b"secret"]})
            assert values(log) == [b"secret"]
        for address in (f"agent:wrong@{where}", f"nobody:p%40ss%2Fword@{where}"):
            with pytest.raises(LogUnreachable) as caught:
                open_at(address, known(broker)).close()
            assert "word" not in str(caught.value)
        with pytest.raises(LogUnreachable):  # a certificate that nobody vouches for
            open_at(f"agent:p%40ss%2Fword@{where}", "events").close()
    finally:
        broker.stop()


def known(broker: Broker) -> str:
    """A topic, and whose certificate is believed."""
    return f"events?ssl_cafile={broker.certificate}"
