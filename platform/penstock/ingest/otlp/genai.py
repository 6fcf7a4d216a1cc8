"""The GenAI semantic conventions of OpenTelemetry. Messages are in attributes such as
`gen_ai.input.messages`. Earlier versions used events of the span or log records, such as
`gen_ai.user.message`, and at first numbered attributes, such as `gen_ai.prompt.0.role`."""

from typing import Any

from penstock.events.messages import Message, as_text, call_of, message_of, present, system_text
from penstock.ingest.otlp.events import (
    EventReading,
    ModelCallReading,
    Reading,
    RecordReading,
    StepReading,
    ToolReading,
)
from penstock.ingest.otlp.records import (
    Attributes,
    LogRecord,
    Origin,
    Span,
    count,
    has_any,
    is_cut,
    messages_in,
    milliseconds,
    number,
    objects,
    structured,
    text,
    tree,
    usage,
    with_parts,
)

MODEL_OPERATIONS = ("chat", "text_completion", "generate_content", "completion", "responses",
                    "message", "messages", "generate")  # fmt: skip
DETAILS = "gen_ai.client.inference.operation.details"
CHOICE = "gen_ai.choice"
EVALUATION = "gen_ai.evaluation.result"
_ROLES = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    CHOICE: "assistant",
}
_ANSWERING = ("assistant", "model", "ai")
_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "frequency_penalty",
             "presence_penalty", "seed", "stop_sequences")  # fmt: skip
_ARGUMENTS = ("gen_ai.tool.call.arguments", "tool_arguments", "gen_ai.tool.arguments",
              "gen_ai.tool.input")  # fmt: skip
_RESULTS = ("gen_ai.tool.call.result", "tool_response", "gen_ai.tool.output",
            "gen_ai.tool.result")  # fmt: skip
#: Instrumentations that send messages as log records, or leave them to another instrumentation.
#: Their spans without messages are not the call.
LOGGED_APART = (
    "opentelemetry.instrumentation.openai_v2",
    "opentelemetry.instrumentation.google_genai",
    "opentelemetry.instrumentation.vertexai",
    "opentelemetry.instrumentation.botocore",
    "opentelemetry.util.genai",
    "com.anthropic.sdk",
)


def read_span(span: Span, origin: Origin) -> Reading | None:
    attributes = span.attributes
    operation = text(attributes, "gen_ai.operation.name")
    if operation is None:
        if not has_any(attributes, ("gen_ai.prompt", "gen_ai.completion", "gen_ai.input.messages")):
            return None
        operation = "chat"
    if operation in MODEL_OPERATIONS:
        call = read_call(attributes)
        read_span_events(span, call)
        if not call.messages and not call.answers and origin.scope.startswith(LOGGED_APART):
            return StepReading("llm", call.facts)
        return call
    if operation == "execute_tool":
        return _tool(span)
    return StepReading(operation, step_facts(attributes))


def read_call(attributes: Attributes) -> ModelCallReading:
    call = ModelCallReading(facts=call_facts(attributes))
    sent, gave = attributes.get("gen_ai.input.messages"), attributes.get("gen_ai.output.messages")
    given = structured(sent)  # decode once: a history is long
    call.cut = ["input"] * (given is sent and is_cut(sent)) + ["output"] * is_cut(gave)
    if "input" not in call.cut:
        call.messages, call.left_out = _newest_of(given)
    call.answers = messages_in(gave, "assistant")
    if not call.messages:
        call.messages = _numbered(attributes, "gen_ai.prompt")
    if not call.answers:
        call.answers = _numbered(attributes, "gen_ai.completion", "assistant")
    system = attributes.get("gen_ai.system_instructions")
    prompts = messages_in(system, "system") if system is not None else []
    call.system = system_text(prompts) or system_text(call.messages)
    call.tools = tools_of(attributes)
    return call


def _newest_of(items: Any) -> tuple[list[Message], int]:
    """The messages from the model's last answer on, with system prompts; and how many were omitted.
    Every call of a session repeats the history."""
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        return messages_in(items), 0
    answers = [at for at, item in enumerate(items) if item.get("role") in _ANSWERING]
    last = answers[-1] if answers else 0
    prompts = [item for item in items[:last] if item.get("role") in ("system", "developer")]
    return messages_in(prompts + items[last:]), last - len(prompts)


def call_facts(attributes: Attributes) -> dict[str, Any]:
    reasons = structured(attributes.get("gen_ai.response.finish_reasons"))
    first = reasons[0] if isinstance(reasons, list) and reasons else reasons
    return present(
        {
            "call_id": text(attributes, "gen_ai.response.id"),
            "model": text(attributes, "gen_ai.response.model", "gen_ai.request.model"),
            "provider": text(attributes, "gen_ai.provider.name", "gen_ai.system"),
            "agent": text(attributes, "gen_ai.agent.name"),
            "usage": usage_of(attributes),
            "ttft_ms": _first_token_ms(attributes),
            "finish_reason": first if isinstance(first, str) and first else None,
            "sampling": sampling_of(attributes),
        }
    )


def sampling_of(attributes: Attributes) -> dict[str, Any] | None:
    sampling = {name: attributes.get(f"gen_ai.request.{name}") for name in _SAMPLING}
    return present(sampling) or None


def usage_of(attributes: Attributes) -> dict[str, Any] | None:
    told = usage(
        attributes,
        prompt=["gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens",
                "llm.usage.prompt_tokens"],
        completion=["gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens",
                    "llm.usage.completion_tokens"],
        thinking=["gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens",
                  "gen_ai.usage.output_tokens.reasoning", "gen_ai.usage.details.reasoning_tokens"],
        cached=["gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
                "gen_ai.usage.cached_tokens", "gen_ai.usage.details.cache_read_tokens",
                "gen_ai.usage.input_tokens.cached"],
    )  # fmt: skip
    if told and told.get("cached", 0) > told.get("prompt", 1 << 62):
        told["prompt"] += told["cached"]  # it was counted apart from the input
    return told


def step_facts(attributes: Attributes) -> dict[str, Any]:
    return present(
        {
            "agent": text(attributes, "gen_ai.agent.name", "agent_name"),
            "agent_id": text(attributes, "gen_ai.agent.id"),
            "model": text(attributes, "gen_ai.response.model", "gen_ai.request.model"),
            "usage": usage_of(attributes),
        }
    )


def tools_of(attributes: Attributes) -> list[Any] | None:
    tools = structured(attributes.get("gen_ai.tool.definitions"))
    if not isinstance(tools, list):
        tools = tree(attributes, "llm.request.functions.")
    if not isinstance(tools, list):
        return None
    tools = [structured(tool) for tool in tools]
    for tool in objects(tools):
        if "parameters" in tool:
            tool["parameters"] = structured(tool["parameters"])
    return objects(tools) or None


def read_span_events(span: Span, call: ModelCallReading) -> None:
    messages: list[Message] = []
    answers: list[Message] = []
    for event in span.events:
        if event.name == DETAILS:
            details = read_call(event.attributes)
            if not call.messages:
                call.messages, call.left_out = details.messages, details.left_out
            call.answers = call.answers or details.answers
            call.system = call.system or details.system
            call.tools = call.tools or details.tools
            call.cut += details.cut
        elif event.name == "gen_ai.content.prompt":
            messages += messages_in(event.attributes.get("gen_ai.prompt"))
        elif event.name == "gen_ai.content.completion":
            answers += messages_in(event.attributes.get("gen_ai.completion"), "assistant")
        elif event.name in _ROLES:
            message = event_message(event.name, event.attributes)
            (answers if event.name == CHOICE else messages).append(message)
    if messages and not call.messages:
        call.messages = messages
        call.system = call.system or system_text(messages)
    if answers and not call.answers:
        call.answers = answers


def event_message(name: str, held: Attributes) -> Message:
    """The message of an event such as `gen_ai.user.message`: of a span, a log record, or a list in
    an attribute."""
    role = _ROLES[name]
    content = structured(held.get("gen_ai.event.content"))
    value = dict(content) if isinstance(content, dict) else dict(held)
    inner = structured(value.get("message"))
    if isinstance(inner, dict):
        value = {"finish_reason": value.get("finish_reason"), **inner}
    elif inner is not None:
        value["content"] = inner
    value["role"] = role
    value["content"] = structured(value["content"]) if role != "user" and "content" in value else (
        value.get("content"))  # fmt: skip
    return message_of(with_parts(present(value)), role)


def _numbered(attributes: Attributes, prefix: str, role: str = "user") -> list[Message]:
    items = tree(attributes, f"{prefix}.")
    if not isinstance(items, list):
        return messages_in(attributes.get(prefix), role)
    messages = []
    for item in objects(items):
        [message] = messages_in([{"role": role, **item}])
        if message.role == "assistant":
            message.calls = [call_of(each) for each in objects(item.get("tool_calls"))]
        messages.append(message)
    return messages


def _tool(span: Span) -> ToolReading:
    attributes = span.attributes
    given, output = (
        next((attributes[name] for name in names if name in attributes), None)
        for names in (_ARGUMENTS, _RESULTS)
    )
    for event in span.events:
        if event.name == "gen_ai.tool.message":
            given = event.attributes.get("content") if given is None else given
        elif event.name == CHOICE:
            output = event.attributes.get("message") if output is None else output
        elif event.name == DETAILS:
            given, output = _of_details(event.attributes, given, output)
    return ToolReading(
        name=text(attributes, "gen_ai.tool.name") or span.name,
        call_id=text(attributes, "gen_ai.tool.call.id", "gen_ai.tool_call.id"),
        arguments=structured(given),
        output=output_text(output),
        cut=["arguments"] * is_cut(given) + ["output"] * is_cut(output),
        facts=present({"agent": text(attributes, "gen_ai.agent.name")}),
    )


def _of_details(attributes: Attributes, given: Any, output: Any) -> tuple[Any, Any]:
    for message in messages_in(attributes.get("gen_ai.input.messages")):
        for call in message.calls:
            given = call["arguments"] if given is None else given
    outputs = [
        each for message in messages_in(attributes.get("gen_ai.output.messages"), "tool")
        for each in message.outputs
    ]  # fmt: skip
    return given, outputs[0].output if outputs and output is None else output


def read_evaluation(held: Attributes, call_id: str | None) -> EventReading:
    """Read what an evaluator says of a call: a reported reward, by its score, else its label."""
    score = number(held, "gen_ai.evaluation.score.value")
    label = text(held, "gen_ai.evaluation.score.label")
    payload = {
        "name": text(held, "gen_ai.evaluation.name"),
        "value": label if score is None else score,
        "comment": text(held, "gen_ai.evaluation.explanation"),
        "error": text(held, "error.type"),
        "call_id": text(held, "gen_ai.response.id") or call_id,
    }
    return EventReading("x_reward", present(payload))


def output_text(value: Any) -> Any:
    parsed = structured(value)
    if isinstance(parsed, list) and parsed and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in parsed
    ):  # fmt: skip
        return "\n".join(part["text"] for part in parsed)
    if isinstance(parsed, str):
        return parsed
    return as_text(value) if value is not None else None


def _first_token_ms(attributes: Attributes) -> float | None:
    """The time to the first token: seconds by the conventions, whole milliseconds by Strands."""
    whole = attributes.get("gen_ai.server.time_to_first_token")
    if isinstance(whole, int):
        return milliseconds(attributes, "gen_ai.server.time_to_first_token")
    seconds = number(attributes, "gen_ai.response.time_to_first_chunk",
                     "gen_ai.server.time_to_first_token")  # fmt: skip
    if seconds is not None and 0 <= seconds < 1 << 32:
        return round(seconds * 1000, 3)
    return milliseconds(attributes, "gen_ai.response.time_to_first_token_ms")


# Log records: one for a whole call, or in earlier versions one per message. They carry the ids of
# the call's span.

_OF_ANSWERS = ("gen_ai.response.id", "gen_ai.response.finish_reasons",
               "gen_ai.usage.output_tokens")  # fmt: skip


def read_log(record: LogRecord, origin: Origin) -> RecordReading | None:
    body = structured(record.body)
    held = record.attributes | (body if isinstance(body, dict) else {})
    if record.name == EVALUATION:
        call = f"{record.trace_id}:{record.span_id}" if record.span_id else None
        return RecordReading(read_evaluation(held, call))
    reading = _read_record(record.name, held)
    return RecordReading(reading, _record_key(record, held, origin)) if reading else None


def _read_record(name: str, held: Attributes) -> Reading | None:
    if name == DETAILS:
        call = read_call(held)
        # Gemini's command line also reports the request before its answer.
        call.asks_only = not call.answers and not any(map(held.get, _OF_ANSWERS))
        return call
    if name not in _ROLES:
        return None
    message = event_message(name, held)
    if message.role == "system":
        return ModelCallReading(system=message.text, asks_only=True)
    if name == CHOICE:
        if message.finish_reason is None:
            reason = held.get("finish_reason")
            message.finish_reason = reason if isinstance(reason, str) else None
        facts = call_facts(held)
        facts.pop("finish_reason", None)
        return ModelCallReading(answers=[message], facts=facts)
    # A record of the history repeats the messages of another call.
    return ModelCallReading(
        messages=[message] if message.role != "assistant" else [], asks_only=True
    )


def _record_key(record: LogRecord, held: Attributes, origin: Origin) -> str | None:
    """The id of the call that a record belongs to: its span, if the record is known to be below it.
    Elsewhere several calls may share a span. Each of several choices is a call of its own."""
    if not record.trace_id or not record.span_id or record.name not in (DETAILS, CHOICE):
        return None
    call = f"{record.trace_id}:{record.span_id}"
    if not origin.scope.startswith(LOGGED_APART):
        name = text(held, "gen_ai.response.id")
        return f"{call}:{name}" if name else None
    index = count(held, "index") if record.name == CHOICE else None
    return f"{call}:{index}" if index else call
