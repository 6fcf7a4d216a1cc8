"""A real S3 server on loopback: it checks signatures, takes multipart uploads, lists in pages."""

import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.servers.child import start_child
from tests.support.servers.jars import classpath

POM = Path(__file__).parent / "pom" / "s3.xml"
KEY = "penstock-tests"
SECRET = "only for tests"
BUCKET = "lake"
_LOGGING = """\
<configuration>
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%level %logger %msg%n</pattern></encoder>
  </appender>
  <root level="info"><appender-ref ref="OUT"/></root>
</configuration>
"""
#: What it says when it listens.
_LISTENS = re.compile(r"Started .*ServerConnector.*\{127\.0\.0\.1:(\d+)\}")
_START_SECONDS_MAX = 300.0
_LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class S3Server:
    """`root` holds a folder for each bucket, and in it the objects as files."""

    url: str
    root: Path

    def new_prefix(self) -> str:
        return uuid.uuid4().hex[:12]

    def environment(self) -> dict[str, str]:
        """What a process needs to be let in, and to look for keys nowhere else."""
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
        }

    def store_url(self, prefix: str, endpoint: str | None = None) -> str:
        return f"s3://{BUCKET}/{prefix}?endpoint={endpoint or self.url}&region=us-east-1"


@contextmanager
def s3_server(directory: Path) -> Iterator[S3Server]:
    """A server with one bucket, its files in this directory, which ends with the block. Skips
    the test where there is no such server."""
    jars = classpath(POM)
    (directory / "objects" / BUCKET).mkdir(parents=True, exist_ok=True)
    (directory / "objects" / BUCKET).chmod(0o700)  # otherwise it may be read without a key
    settings = directory / "server.properties"
    settings.write_text(
        f"""\
s3proxy.authorization=aws-v2-or-v4
s3proxy.endpoint=http://127.0.0.1:0
s3proxy.identity={KEY}
s3proxy.credential={SECRET}
s3proxy.ignore-unknown-headers=true
jclouds.provider=filesystem-nio2
jclouds.identity=none
jclouds.credential=none
jclouds.filesystem.basedir={directory / "objects"}
"""
    )
    (directory / "logging.xml").write_text(_LOGGING)
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command += [f"-Dlogback.configurationFile={directory / 'logging.xml'}"]
    command += ["-cp", jars, "org.gaul.s3proxy.Main", "--properties", str(settings)]
    output = directory / "server.log"
    process = start_child(command, log=output)
    try:
        yield S3Server(f"http://127.0.0.1:{_port(process, output)}", directory / "objects")
    finally:
        process.kill()  # there is nothing to keep
        process.wait()


def _port(process: subprocess.Popen[bytes], output: Path) -> int:
    """The port that it took, as it says when it is ready."""
    deadline = time.monotonic() + _START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        if found := _LISTENS.search(output.read_text()):
            return int(found[1])
        time.sleep(_LOOK_SECONDS)
    raise RuntimeError(f"the S3 server did not come up: {output.read_text()[-2000:]}")
