"""Apache Kafka for the tests: one broker that is its own controller, in a directory of its own."""

import base64
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.servers.child import ChildServer, start_child
from tests.support.servers.jars import classpath
from tests.support.servers.ports import free_port

_POM = Path(__file__).parent / "pom" / "kafka.xml"
_MECHANISM = "SCRAM-SHA-512"
_KEYSTORE_PASSWORD = "only-for-tests"
_JVM = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # it starts faster, and no test lives long enough for more
    "-Dorg.apache.logging.log4j.level=INFO",
]
_QUICK_AND_SMALL = {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "broker.heartbeat.interval.ms": "200",
    "broker.session.timeout.ms": "1000",  # after a kill the next start waits for this
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "1000",
    "log.cleaner.dedupe.buffer.size": "2097152",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "background.threads": "1",
}


class Broker(ChildServer):
    def __init__(
        self,
        directory: Path,
        *,
        heap_mb: int = 256,
        settings: Mapping[str, str] | None = None,
        advertised_port: int | None = None,
        login: tuple[str, str] | None = None,
    ) -> None:
        """`settings` go into server.properties over the defaults above.

        With a `login`, a name and a password, there is another address, `login_port`: by TLS, whose
        certificate is `certificate`, and only for who knows the password (SCRAM-SHA-512).

        `advertised_port` is where a proxy stands: clients that come to `behind_proxy_port` are
        told to go on there. The broker's own address stays open beside it.
        """
        self.directory = directory
        self.log = directory / "broker.log"
        self.data = directory / "data"
        self.port = free_port()
        self.behind_proxy_port = free_port()
        self.advertised_port = advertised_port or free_port()
        self.login_port = free_port()
        self.certificate = directory / "certificate.pem"
        self._login = login
        self._heap_mb = heap_mb
        self._settings = self._listening(free_port()) | _QUICK_AND_SMALL | dict(settings or {})

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    def start(self) -> None:
        java = ["java", f"-Xmx{self._heap_mb}m", *_JVM, "-cp", classpath(_POM)]
        properties = self.directory / "server.properties"
        self.directory.mkdir(parents=True, exist_ok=True)
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        if not (self.data / "meta.properties").exists():
            if self._login is not None:
                self._make_certificate()
            self._format(java, properties)
        self._process = start_child([*java, "kafka.Kafka", str(properties)], log=self.log)
        self._wait_until(self._answers)

    def _listening(self, controller_port: int) -> dict[str, str]:
        host = "127.0.0.1"
        listeners = f"DIRECT://{host}:{self.port},PROXIED://{host}:"
        login = f",LOGIN://{host}:{self.login_port}" if self._login is not None else ""
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{host}:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "DIRECT",
            "listener.security.protocol.map": "DIRECT:PLAINTEXT,PROXIED:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT,LOGIN:SASL_SSL",
            "listeners": f"{listeners}{self.behind_proxy_port},"
            f"CONTROLLER://{host}:{controller_port}{login}",
            "advertised.listeners": f"{listeners}{self.advertised_port}{login}",
            "log.dirs": str(self.data),
        } | (self._guarding() if self._login is not None else {})

    def _guarding(self) -> dict[str, str]:
        of_login = "listener.name.login"
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            "sasl.enabled.mechanisms": _MECHANISM,
            f"{of_login}.{_MECHANISM.lower()}.sasl.jaas.config": f"{module} required;",
            f"{of_login}.ssl.keystore.location": str(self._keystore),
            f"{of_login}.ssl.keystore.password": _KEYSTORE_PASSWORD,
        }

    @property
    def _keystore(self) -> Path:
        return self.directory / "keystore.p12"

    def _make_certificate(self) -> None:
        """With the tool that comes with Java."""
        store = ["-alias", "broker", "-keystore", str(self._keystore)]
        store += ["-storepass", _KEYSTORE_PASSWORD]
        make = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=broker", "-ext", "san=ip:127.0.0.1"]
        export = ["-exportcert", "-rfc", "-file", str(self.certificate)]
        with self.log.open("ab") as log:
            for what in (make, export):
                command = ["keytool", *what, *store]
                subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=True)

    def _format(self, java: list[str], properties: Path) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster}"]
        if self._login is not None:
            name, password = self._login
            tool.append(f"--add-scram={_MECHANISM}=[name={name},password={password}]")
        with self.log.open("ab") as log:
            subprocess.run(
                [*java, *tool, "--config", str(properties)],
                stdout=log,
                stderr=subprocess.STDOUT,
                check=True,
            )

    def _answers(self) -> bool:
        """A broker that is listed has its partitions and takes requests."""
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        try:  # a refused connection first, since the client forgets to close that socket
            socket.create_connection(("127.0.0.1", self.port)).close()
        except ConnectionRefusedError:
            return False
        try:
            admin = KafkaAdminClient(bootstrap_servers=self.address, bootstrap_timeout_ms=1000)
        except KafkaError:
            return False
        try:
            return bool(admin.describe_cluster()["brokers"])
        except KafkaError:
            return False
        finally:
            admin.close()


@contextmanager
def running_broker(directory: Path) -> Iterator[Broker]:
    broker = Broker(directory)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
