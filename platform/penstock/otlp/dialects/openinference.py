"""OpenInference: spans have a kind (`openinference.span.kind`), and messages in numbered attributes
(`llm.input_messages.0.message.role`)."""

from typing import Any

from penstock.otlp.attributes import (
    count,
    objects,
    present,
    structured,
    text,
    tree,
)
from penstock.otlp.messages import Message, joined, message_of, messages_of, system_text
from penstock.otlp.readings import ModelCallReading, Reading, StepReading, ToolReading
from penstock.otlp.records import Attributes, Origin, Span

_SAMPLING = {"temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens",
             "max_output_tokens", "frequency_penalty", "presence_penalty", "seed", "stop",
             "stop_sequences", "reasoning_effort"}  # fmt: skip


def read_span(span: Span, _origin: Origin) -> Reading | None:
    attributes = span.attributes
    kind = text(attributes, "openinference.span.kind")
    if kind is None:
        return None
    if kind.upper() == "LLM":
        return _call(attributes)
    if kind.upper() == "TOOL":
        return _tool(span)
    agent = text(attributes, "agent.name", "graph.node.id")
    return StepReading(kind.lower(), present({"agent": agent}))


def _call(attributes: Attributes) -> ModelCallReading:
    given, gave = (_messages(attributes, name) for name in ("llm.input_messages.",
                                                            "llm.output_messages."))  # fmt: skip
    if not given:
        given = messages_of(attributes.get("input.value"))
    if not gave:
        gave = messages_of(attributes.get("output.value"), "assistant")
    parameters = structured(attributes.get("llm.invocation_parameters"))
    sampling = sampling_of(parameters)
    facts = {
        "model": text(attributes, "llm.response.model_name", "llm.model_name",
                      "llm.request.model_name"),
        "provider": text(attributes, "llm.provider", "llm.system"),
        "usage": _usage(attributes),
        "finish_reason": text(attributes, "llm.finish_reason"),
        "sampling": sampling,
    }  # fmt: skip
    return ModelCallReading(
        messages=given,
        answers=[joined(gave)] if gave else [],
        system=system_text(given),
        tools=_tools(attributes, parameters),
        facts=present(facts),
    )


def sampling_of(parameters: Any) -> dict[str, Any] | None:
    """Of the parameters of a call those that say how tokens are drawn."""
    if not isinstance(parameters, dict):
        return None
    kept = {name: parameters[name] for name in _SAMPLING & parameters.keys()}
    # Langfuse tells limits that are none as well.
    return {name: value for name, value in present(kept).items() if value != "Infinity"} or None


def _messages(attributes: Attributes, prefix: str) -> list[Message]:
    items = tree(attributes, prefix)
    return [
        _message(item["message"])
        for item in objects(items)
        if isinstance(item.get("message"), dict)
    ]


def _message(held: dict[str, Any]) -> Message:
    calls = [each["tool_call"] for each in objects(held.get("tool_calls"))
             if isinstance(each.get("tool_call"), dict)]  # fmt: skip
    parts = []
    for each in objects(held.get("contents")):
        part = each.get("message_content")
        if isinstance(each.get("tool_call"), dict):
            if not calls:
                parts.append({"type": "tool_call", **each["tool_call"]})
        elif isinstance(part, dict):
            parts.append(part)
    value = {name: held.get(name) for name in ("role", "tool_call_id", "name", "finish_reason")}
    if "function_call_name" in held:
        calls = [{"name": held["function_call_name"],
                  "arguments": held.get("function_call_arguments_json")}]  # fmt: skip
    has_text = any(part.get("type") != "reasoning" and "text" in part for part in parts)
    content = held.get("content")
    if content is not None and not has_text:
        parts.append({"type": "text", "text": content})
    if value.get("role") in ("tool", "function"):
        return message_of(present(value | {"content": content or parts}))
    return message_of(present(value | {"content": parts or None, "tool_calls": calls or None}))


def _usage(attributes: Attributes) -> dict[str, int] | None:
    usage = {
        "prompt": count(attributes, "llm.token_count.prompt"),
        "completion": count(attributes, "llm.token_count.completion"),
        "cached": count(attributes, "llm.token_count.prompt_details.cache_read"),
        "thinking": count(attributes, "llm.token_count.completion_details.reasoning"),
    }
    return present(usage) or None


def _tools(attributes: Attributes, parameters: Any) -> list[Any] | None:
    tools = [structured(each.get("tool", {}).get("json_schema"))
             for each in objects(tree(attributes, "llm.tools."))
             if isinstance(each.get("tool"), dict)]  # fmt: skip
    if not tools and isinstance(parameters, dict):
        tools = objects(parameters.get("tools"))
    return objects(tools) or None


def _tool(span: Span) -> Reading:
    attributes = span.attributes
    output = structured(attributes.get("output.value"))
    call_id = text(attributes, "tool.id", "tool_call.id", "tool.call.id")
    held = output
    if isinstance(held, dict) and isinstance(held.get("data"), dict):  # LangChain's messages
        held = held["data"]
    if isinstance(held, dict) and isinstance(held.get("tool_call_id"), str):
        call_id, output = call_id or held["tool_call_id"], held.get("content")
    given = attributes.get("input.value", attributes.get("tool.parameters"))
    return ToolReading(
        name=text(attributes, "tool.name") or span.name,
        call_id=call_id,
        arguments=structured(given),
        output=output,
    )
