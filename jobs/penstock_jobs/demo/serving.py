"""What serves, as an engine learns of it: from the service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit
from urllib.request import url2pathname

from penstock.channels.channel import assign
from penstock.http.errors import AnswerUnusable
from penstock_jobs.demo.server import Server
from penstock_jobs.simulator.policy import read_policy
from penstock_jobs.simulator.production import Checkpoint

CHANNEL = "production"


@dataclass(frozen=True)
class Split:
    """A channel at one moment, which may try a canary on some users."""

    document: Mapping[str, str]
    checkpoints: Sequence[Checkpoint]

    def serve(self, user: str) -> Checkpoint:
        name = assign(self.document, user).checkpoint
        return next(one for one in self.checkpoints if one.name == name)


@dataclass(frozen=True)
class Serving:
    server: Server

    def present(self) -> Split:
        """The current checkpoint first. Raises AnswerUnusable."""
        document = self._get(f"channels/{CHANNEL}")
        names = [document["checkpoint"], document["canary"]]
        return Split(document, [self._load(name) for name in names if name is not None])

    def _load(self, name: str) -> Checkpoint:
        uri = self._get(f"checkpoints/{quote(name)}")["uri"]
        return Checkpoint(name, read_policy(str(Path(url2pathname(urlsplit(uri).path)))))

    def _get(self, path: str) -> Mapping[str, str]:
        with self.server.client() as client:
            reply = client.get(f"/v1/{path}")
        if reply.status != 200:
            raise AnswerUnusable(url=self.server.url, status=reply.status, why=reply.body[:200])
        document: Mapping[str, str] = reply.json()
        return document
