import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaTimeoutError

from tests.support.servers.broker import Broker
from tests.support.servers.proxy import TcpProxy

_PATIENCE_SECONDS = 180


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"topic-{uuid4().hex}"
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as admin:
        admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])
    return name


def _send(address: str, topic: str, value: bytes) -> None:
    with closing(KafkaProducer(bootstrap_servers=address)) as producer:
        producer.send(topic, value).get(_PATIENCE_SECONDS)


def _values(address: str, topic: str) -> Iterator[bytes]:
    partition = TopicPartition(topic, 0)
    with closing(
        KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    ) as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for records in consumer.poll(1000).values():
                yield from (record.value for record in records)


def test_what_was_acknowledged_survives_an_orderly_restart_and_a_kill(
    broker: Broker, topic: str
) -> None:
    _send(broker.address, topic, b"first")
    broker.restart()
    _send(broker.address, topic, b"second")
    broker.kill()
    broker.start()
    assert list(_values(broker.address, topic)) == [b"first", b"second"]


def test_a_paused_broker_keeps_quiet_and_a_resumed_one_goes_on(broker: Broker, topic: str) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.address)) as producer:
        producer.partitions_for(topic)
        broker.pause()
        try:
            sent = producer.send(topic, b"value")
            with pytest.raises(KafkaTimeoutError):
                sent.get(0.2)
        finally:
            broker.resume()
        assert sent.get(_PATIENCE_SECONDS).offset == 0


def test_clients_that_come_through_a_proxy_stay_behind_it(broker: Broker, topic: str) -> None:
    with TcpProxy("127.0.0.1", broker.behind_proxy_port, port=broker.advertised_port) as proxy:
        _send(proxy.address, topic, b"through the proxy")
        with closing(KafkaAdminClient(bootstrap_servers=proxy.address)) as admin:
            [seen] = admin.describe_cluster()["brokers"]
            assert seen["port"] == proxy.port
    assert list(_values(broker.address, topic)) == [b"through the proxy"]


def test_a_topic_that_nobody_made_is_not_there(broker: Broker) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=broker.address)) as admin:
        assert "nobody-made-it" not in admin.list_topics()
        with closing(KafkaConsumer(bootstrap_servers=broker.address)) as consumer:
            assert not consumer.partitions_for_topic("nobody-made-it")
        assert "nobody-made-it" not in admin.list_topics()


def test_a_person_can_run_one_until_ctrl_c(broker: Broker, tmp_path: Path) -> None:
    script = Path(__file__).parent / "broker.py"
    command = [sys.executable, str(script), "--data", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as run:
        assert run.stdout
        try:
            assert select.select([run.stdout], [], [], _PATIENCE_SECONDS)[0]
            address = os.read(run.stdout.fileno(), 100).decode().strip()
            with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
                assert admin.list_topics() == []
            run.send_signal(signal.SIGINT)
            assert run.wait(_PATIENCE_SECONDS) == 0
        finally:
            run.terminate()


def test_without_java_the_tests_skip_and_in_ci_they_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="java is not installed"):
        Broker(tmp_path / "broker").start()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="java is not installed"):
        Broker(tmp_path / "broker").start()
