"""A call as the forwarding path hands it over to be recorded: raw, and a piece at a time."""

import os
from dataclasses import dataclass, field

from penstock.proxy.engine import EngineKind
from penstock.proxy.target import Endpoint, Labels
from penstock.proxy.versions import Weights


@dataclass(slots=True, eq=False)
class RecordedCall:
    endpoint: Endpoint
    labels: Labels
    #: As the client sent it.
    request: bytes
    engine: EngineKind
    began_us: int
    #: Where the upstream gives its answer no id.
    key: str = field(default_factory=lambda: os.urandom(8).hex())
    #: By which the process that records knows it.
    number: int = 0
    #: What came of the answer and was not handed over yet.
    pieces: list[bytes] = field(default_factory=list)
    bytes: int = 0
    #: Something of it found no room: its answer is not recorded.
    was_dropped: bool = False


@dataclass(slots=True)
class CallEnd:
    #: Of the upstream's answer; 0 for none.
    status: int
    is_stream: bool
    latency_ms: float
    ttft_ms: float | None = None
    #: The client went away before its answer was there.
    is_called_off: bool = False
    #: Why there is no whole answer.
    problem: str | None = None
    weights: Weights | None = None
    #: They are asked for still.
    awaits_weights: bool = False
