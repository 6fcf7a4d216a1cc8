"""Tracers that keep a call's input and output: OpenInference, in numbered attributes such as
`llm.input_messages.0.message.role`; Vercel's AI SDK; and tracers of any function (OpenLLMetry's own
spans, Langfuse, MLflow, LangSmith), as JSON."""

from collections.abc import Mapping
from typing import Any

from penstock.events.messages import Message, call_of, joined, message_of, present, system_text
from penstock.ingest.otlp import genai
from penstock.ingest.otlp.events import ModelCallReading, Reading, StepReading, ToolReading
from penstock.ingest.otlp.records import (
    Attributes,
    Origin,
    Span,
    messages_in,
    milliseconds,
    objects,
    structured,
    text,
    tree,
    usage,
)

_MODEL_KINDS = {"llm", "chat_model", "generation", "chat"}
_SAMPLING = {"temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens",
             "max_output_tokens", "frequency_penalty", "presence_penalty", "seed", "stop",
             "stop_sequences", "reasoning_effort"}  # fmt: skip


def read_openinference(span: Span, _origin: Origin) -> Reading | None:
    attributes = span.attributes
    kind = (text(attributes, "openinference.span.kind") or "").lower()
    if kind == "llm":
        return _openinference_call(attributes)
    if kind == "tool":
        output = structured(attributes.get("output.value"))
        tool = _tool(text(attributes, "tool.name") or span.name, None, output)
        given = attributes.get("input.value", attributes.get("tool.parameters"))
        tool.arguments = structured(given)
        call_id = text(attributes, "tool.id", "tool_call.id", "tool.call.id")
        tool.call_id = call_id or tool.call_id
        return tool
    agent = text(attributes, "agent.name", "graph.node.id")
    return StepReading(kind, present({"agent": agent})) if kind else None


def _openinference_call(attributes: Attributes) -> ModelCallReading:
    given, gave = (_messages(attributes, f"llm.{name}_messages.") for name in ("input", "output"))
    given = given or messages_in(attributes.get("input.value"))
    gave = gave or messages_in(attributes.get("output.value"), "assistant")
    parameters = structured(attributes.get("llm.invocation_parameters"))
    tools = [structured(each["tool"].get("json_schema"))
             for each in objects(tree(attributes, "llm.tools."))
             if isinstance(each.get("tool"), dict)]  # fmt: skip
    if not tools and isinstance(parameters, dict):
        tools = objects(parameters.get("tools"))
    facts = {
        "model": text(attributes, "llm.response.model_name", "llm.model_name",
                      "llm.request.model_name"),
        "provider": text(attributes, "llm.provider", "llm.system"),
        "usage": usage(
            attributes,
            prompt=["llm.token_count.prompt"],
            completion=["llm.token_count.completion"],
            cached=["llm.token_count.prompt_details.cache_read"],
            thinking=["llm.token_count.completion_details.reasoning"],
        ),
        "finish_reason": text(attributes, "llm.finish_reason"),
        "sampling": _sampling(parameters),
    }  # fmt: skip
    answers = [joined(gave)] if gave else []
    tools = objects(tools)
    return ModelCallReading(given, 0, answers, system_text(given), tools or None, present(facts))


def _messages(attributes: Attributes, prefix: str) -> list[Message]:
    held = (each.get("message") for each in objects(tree(attributes, prefix)))
    return [openinference_message(each) for each in held if isinstance(each, dict)]


def openinference_message(held: dict[str, Any]) -> Message:
    calls = [each["tool_call"] for each in objects(held.get("tool_calls"))
             if isinstance(each.get("tool_call"), dict)]  # fmt: skip
    parts = []
    for each in objects(held.get("contents")):
        part = each.get("message_content")
        if isinstance(each.get("tool_call"), dict):
            parts += [{"type": "tool_call", **each["tool_call"]}] * (not calls)
        elif isinstance(part, dict):
            parts.append(part)
    value = {name: held.get(name) for name in ("role", "tool_call_id", "name", "finish_reason")}
    if "function_call_name" in held:
        arguments = held.get("function_call_arguments_json")
        calls = [{"name": held["function_call_name"], "arguments": arguments}]
    has_text = any(part.get("type") != "reasoning" and "text" in part for part in parts)
    content = held.get("content")
    if content is not None and not has_text:
        parts.append({"type": "text", "text": content})
    if value.get("role") in ("tool", "function"):
        return message_of(present(value | {"content": content or parts}))
    return message_of(present(value | {"content": parts or None, "tool_calls": calls or None}))


# Vercel's AI SDK: a span for the whole request, and below it one per call


def read_vercel(span: Span, _origin: Origin) -> Reading | None:
    attributes = span.attributes
    operation = text(attributes, "ai.operationId")
    if operation is None:
        return None
    if operation == "ai.toolCall":
        gave = attributes.get("ai.toolCall.result")
        parsed = structured(gave)
        return ToolReading(
            text(attributes, "ai.toolCall.name"),
            text(attributes, "ai.toolCall.id"),
            structured(attributes.get("ai.toolCall.args")),
            parsed if isinstance(parsed, str) else gave,
        )
    if operation.endswith((".doGenerate", ".doStream")):
        return _vercel_call(attributes)
    agent = text(attributes, "ai.telemetry.functionId", "resource.name")
    return StepReading(operation.removeprefix("ai."), present({"agent": agent}))


def _vercel_call(attributes: Attributes) -> ModelCallReading:
    given = messages_in(attributes.get("ai.prompt.messages", attributes.get("ai.prompt")))
    answer = Message(
        "assistant",
        text(attributes, "ai.response.text", "ai.response.object"),
        text(attributes, "ai.response.reasoning"),
        [call_of(each) for each in objects(structured(attributes.get("ai.response.toolCalls")))],
    )
    tools = structured(attributes.get("ai.prompt.tools"))
    facts = {
        "call_id": text(attributes, "ai.response.id", "gen_ai.response.id"),
        "model": text(attributes, "ai.response.model", "gen_ai.response.model", "ai.model.id"),
        "provider": text(attributes, "ai.model.provider"),
        "usage": usage(
            attributes,
            prompt=["ai.usage.inputTokens", "ai.usage.promptTokens", "gen_ai.usage.input_tokens"],
            completion=["ai.usage.outputTokens", "ai.usage.completionTokens",
                        "gen_ai.usage.output_tokens"],
            thinking=["ai.usage.reasoningTokens", "ai.usage.outputTokenDetails.reasoningTokens"],
            cached=["ai.usage.cachedInputTokens", "ai.usage.inputTokenDetails.cacheReadTokens"],
        ),
        "ttft_ms": milliseconds(attributes, "ai.response.msToFirstChunk"),
        "finish_reason": text(attributes, "ai.response.finishReason"),
        "sampling": genai.sampling_of(attributes),
    }  # fmt: skip
    return ModelCallReading(
        messages=given,
        answers=[] if answer.is_empty else [answer],
        system=system_text(given),
        tools=objects([structured(tool) for tool in tools]) if isinstance(tools, list) else None,
        facts=present(facts),
    )


def read_traceloop(span: Span, _origin: Origin) -> Reading | None:
    attributes = span.attributes
    kind = text(attributes, "traceloop.span.kind")
    if kind is None:
        return None
    name = text(attributes, "traceloop.entity.name") or span.name
    if kind != "tool":
        return StepReading(kind, {"agent": name})
    held = structured(attributes.get("traceloop.entity.input"))
    given = held.get("inputs", held.get("kwargs", held)) if isinstance(held, dict) else held
    return _tool(name, given, _output(attributes.get("traceloop.entity.output")))


def read_langfuse(span: Span, _origin: Origin) -> Reading | None:
    attributes = span.attributes
    kind = text(attributes, "langfuse.observation.type")
    if kind is None:
        return None
    given, gave = (attributes.get(f"langfuse.observation.{name}") for name in ("input", "output"))
    if kind == "tool":
        return _tool(span.name, structured(given), structured(gave))
    if kind not in _MODEL_KINDS:
        return StepReading(kind, {"agent": span.name})
    counts = structured(attributes.get("langfuse.observation.usage_details"))
    held = counts if isinstance(counts, dict) else {}
    details = [held.get(f"{name}_tokens_details") for name in ("prompt", "completion")]
    for each in filter(lambda each: isinstance(each, dict), details):
        held = each | held  # type: ignore[operator]
    facts = {
        "model": text(attributes, "langfuse.observation.model.name"),
        "usage": usage(
            held,
            prompt=["input", "prompt_tokens", "input_tokens"],
            completion=["output", "completion_tokens", "output_tokens"],
            cached=["input_cached_tokens", "cache_read_input_tokens", "cached_tokens"],
            thinking=["output_reasoning_tokens", "reasoning_tokens"],
        ),
        "sampling": _sampling(structured(attributes.get("langfuse.observation.model.parameters"))),
    }
    return _call(given, gave, facts)


def read_mlflow(span: Span, _origin: Origin) -> Reading | None:
    attributes = span.attributes
    kind = structured(attributes.get("mlflow.spanType"))
    if not isinstance(kind, str):
        return None
    given, gave = attributes.get("mlflow.spanInputs"), attributes.get("mlflow.spanOutputs")
    if kind == "TOOL":
        return _tool(span.name, structured(given), structured(gave))
    if kind.lower() not in _MODEL_KINDS:
        return StepReading(kind.lower(), {"agent": span.name})
    request = structured(given)
    model = structured(attributes.get("mlflow.llm.model"))
    if not isinstance(model, str) and isinstance(request, dict):
        model = request.get("model")
    facts = {
        "model": model if isinstance(model, str) else None,
        "usage": usage(
            structured(attributes.get("mlflow.chat.tokenUsage")),
            prompt=["input_tokens"],
            completion=["output_tokens"],
            cached=["cache_read_input_tokens"],
        ),
        "sampling": _sampling(request),
    }
    return _call(given, gave, facts)


def read_langsmith(span: Span, _origin: Origin) -> Reading | None:
    """Read LangSmith's spans: GenAI conventions, except for input and output in LangChain's
    form."""
    attributes = span.attributes
    kind = text(attributes, "langsmith.span.kind")
    if kind is None:
        return None
    given, gave = attributes.get("gen_ai.prompt"), attributes.get("gen_ai.completion")
    if kind == "tool":
        name = text(attributes, "gen_ai.tool.name") or span.name
        tool = _tool(name, structured(given), _output(gave))
        tool.call_id = text(attributes, "gen_ai.tool.call.id") or tool.call_id
        return tool
    if kind != "llm":
        return StepReading(kind, {"agent": span.name})
    call = _call(given, gave, genai.call_facts(attributes))
    if not call.messages and not call.answers:
        return genai.read_call(attributes)
    details = structured(attributes.get("langsmith.metadata.usage_metadata"))
    if isinstance(details, dict) and isinstance(told := call.facts.get("usage"), dict):
        told |= usage(details.get("input_token_details"), cached=["cache_read"]) or {}
        told |= usage(details.get("output_token_details"), thinking=["reasoning"]) or {}
    call.tools = genai.tools_of(attributes)
    return call


def _call(given: Any, gave: Any, facts: Mapping[str, Any]) -> ModelCallReading:
    messages = messages_in(given)
    answers = [each for each in messages_in(gave, "assistant") if each.role == "assistant"]
    request = structured(given)
    tools = objects(request.get("tools")) if isinstance(request, dict) else []
    return ModelCallReading(
        messages=messages,
        answers=[joined(answers)] if answers else [],
        system=system_text(messages),
        tools=tools or None,
        facts=present(facts),
    )


def _tool(name: str, given: Any, output: Any) -> ToolReading:
    held = output
    for inner in ("kwargs", "data"):
        if isinstance(held, dict) and isinstance(held.get(inner), dict):
            held = held[inner]
    call_id = held.get("tool_call_id") if isinstance(held, dict) else None
    if isinstance(call_id, str):
        return ToolReading(name, call_id, given, held.get("content"))
    if isinstance(held, dict) and held.get("type") == "tool" and "content" in held:
        output = held["content"]
    return ToolReading(name, None, given, output)


def _output(value: Any) -> Any:
    held = structured(value)
    return held.get("output", held) if isinstance(held, dict) else held


def _sampling(parameters: Any) -> dict[str, Any] | None:
    if not isinstance(parameters, dict):
        return None
    kept = {name: parameters[name] for name in _SAMPLING & parameters.keys()}
    # Langfuse also reports limits that are not set.
    return {name: value for name, value in present(kept).items() if value != "Infinity"} or None
