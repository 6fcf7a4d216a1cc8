"""Tracers of any function: OpenLLMetry's own spans, Langfuse, MLflow, LangSmith. They keep what
went in and came out of a call as it was, as JSON."""

from typing import Any

from penstock.otlp.attributes import count, objects, present, structured, text
from penstock.otlp.dialects import genai
from penstock.otlp.dialects.openinference import sampling_of
from penstock.otlp.messages import joined, messages_of, system_text
from penstock.otlp.readings import ModelCallReading, Reading, StepReading, ToolReading
from penstock.otlp.records import Attributes, Origin, Span

_MODEL_KINDS = {"llm", "chat_model", "generation", "chat"}


def read_traceloop(span: Span, _origin: Origin) -> Reading | None:
    attributes = span.attributes
    kind = text(attributes, "traceloop.span.kind")
    if kind is None:
        return None
    name = text(attributes, "traceloop.entity.name") or span.name
    if kind == "tool":
        held = structured(attributes.get("traceloop.entity.input"))
        given = held.get("inputs", held.get("kwargs", held)) if isinstance(held, dict) else held
        gave = structured(attributes.get("traceloop.entity.output"))
        output = gave.get("output", gave) if isinstance(gave, dict) else gave
        return _tool(name, given, output)
    return StepReading(kind, {"agent": name})


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
    usage = {
        "prompt": _count(counts, "input", "prompt_tokens", "input_tokens"),
        "completion": _count(counts, "output", "completion_tokens", "output_tokens"),
        "cached": _count(counts, "input_cached_tokens", "cache_read_input_tokens"),
        "thinking": _count(counts, "output_reasoning_tokens", "reasoning_tokens"),
    }
    held = counts if isinstance(counts, dict) else {}
    usage["cached"] = usage["cached"] or _count(held.get("prompt_tokens_details"), "cached_tokens")
    details = held.get("completion_tokens_details")
    usage["thinking"] = usage["thinking"] or _count(details, "reasoning_tokens")
    parameters = structured(attributes.get("langfuse.observation.model.parameters"))
    facts = {
        "model": text(attributes, "langfuse.observation.model.name"),
        "usage": present(usage) or None,
        "sampling": sampling_of(parameters),
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
    counts = structured(attributes.get("mlflow.chat.tokenUsage"))
    usage = {
        "prompt": _count(counts, "input_tokens"),
        "completion": _count(counts, "output_tokens"),
        "cached": _count(counts, "cache_read_input_tokens"),
    }
    request = structured(given)
    model = structured(attributes.get("mlflow.llm.model"))
    if not isinstance(model, str) and isinstance(request, dict):
        model = request.get("model")
    facts = {
        "model": model if isinstance(model, str) else None,
        "usage": present(usage) or None,
        "sampling": sampling_of(request),
    }
    return _call(given, gave, facts)


def read_langsmith(span: Span, _origin: Origin) -> Reading | None:
    """They are of the GenAI conventions, but for what went in and out, which is LangChain's."""
    attributes = span.attributes
    kind = text(attributes, "langsmith.span.kind")
    if kind is None:
        return None
    given, gave = attributes.get("gen_ai.prompt"), attributes.get("gen_ai.completion")
    if kind == "tool":
        held = structured(gave)
        output = held.get("output", held) if isinstance(held, dict) else held
        tool = _tool(text(attributes, "gen_ai.tool.name") or span.name, structured(given), output)
        tool.call_id = text(attributes, "gen_ai.tool.call.id") or tool.call_id
        return tool
    if kind != "llm":
        return StepReading(kind, {"agent": span.name})
    call = _call(given, gave, genai.call_facts(attributes))
    if not call.messages and not call.answers:
        return genai.read_call(attributes)
    details = structured(attributes.get("langsmith.metadata.usage_metadata"))
    if isinstance(details, dict) and isinstance(usage := call.facts.get("usage"), dict):
        usage |= present({
            "cached": _count(details.get("input_token_details"), "cache_read"),
            "thinking": _count(details.get("output_token_details"), "reasoning"),
        })  # fmt: skip
    call.tools = genai.tools_of(attributes)
    return call


def _call(given: Any, gave: Any, facts: dict[str, Any]) -> ModelCallReading:
    messages = messages_of(given)
    answers = [each for each in messages_of(gave, "assistant") if each.role == "assistant"]
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
    """LangChain's tools give a message, which names its call."""
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


def _count(counts: Any, *names: str) -> int | None:
    held: Attributes = counts if isinstance(counts, dict) else {}
    return count(held, *names)
