"""What a dialect reads out of a span or a record, before it is events."""

from typing import Any

from msgspec import Struct, field

from penstock.otlp.messages import Message


class ModelCallReading(Struct):
    """A call of a model. `messages` is what it was sent: of the history at least the model's last
    answer, and so many messages of it were left out."""

    messages: list[Message] = field(default_factory=list)
    left_out: int = 0
    #: One for each choice that the model gave.
    answers: list[Message] = field(default_factory=list)
    system: str | None = None
    tools: list[Any] | None = None
    #: Fields of the payload of `model_call`, as they are.
    facts: dict[str, Any] = field(default_factory=dict)
    #: What the exporter cut.
    cut: list[str] = field(default_factory=list)
    error: str | None = None
    #: Another record tells the answer: this one has what the model was sent.
    asks_only: bool = False


class ToolReading(Struct):
    """The run of a tool."""

    name: str | None = None
    call_id: str | None = None
    arguments: Any = None
    output: Any = None
    ok: bool | None = None
    error: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)


class StepReading(Struct):
    """Any other step of an agent: its run, a chain, a search. What it was given and gave is told by
    the calls below it."""

    kind: str
    facts: dict[str, Any] = field(default_factory=dict)
    error: str | None = None


class EventReading(Struct):
    """An event whose type and payload the record says itself."""

    type: str
    payload: dict[str, Any]
    #: Names the event in its session, where the record has an id for it.
    key: str | None = None


Reading = ModelCallReading | ToolReading | StepReading | EventReading
