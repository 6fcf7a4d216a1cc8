"""Vercel's AI SDK: a span for what was asked for (`ai.generateText`), and one below it for each
call of a model (`ai.generateText.doGenerate`) and of a tool (`ai.toolCall`)."""

from typing import Any

from penstock.otlp.attributes import count, milliseconds, objects, present, structured, text
from penstock.otlp.messages import call_of, message_of, messages_of, system_text
from penstock.otlp.readings import ModelCallReading, Reading, StepReading, ToolReading
from penstock.otlp.records import Attributes, Origin, Span


def read_span(span: Span, _origin: Origin) -> Reading | None:
    attributes = span.attributes
    operation = text(attributes, "ai.operationId")
    if operation is None:
        return None
    if operation == "ai.toolCall":
        return ToolReading(
            name=text(attributes, "ai.toolCall.name"),
            call_id=text(attributes, "ai.toolCall.id"),
            arguments=structured(attributes.get("ai.toolCall.args")),
            output=_result(attributes.get("ai.toolCall.result")),
        )
    if operation.endswith((".doGenerate", ".doStream")):
        return _call(attributes)
    agent = text(attributes, "ai.telemetry.functionId", "resource.name")
    return StepReading(operation.removeprefix("ai."), present({"agent": agent}))


def _result(value: Any) -> Any:
    parsed = structured(value)
    return parsed if isinstance(parsed, str) else value


def _call(attributes: Attributes) -> ModelCallReading:
    given = messages_of(attributes.get("ai.prompt.messages", attributes.get("ai.prompt")))
    calls = [call_of(each) for each in objects(structured(attributes.get("ai.response.toolCalls")))]
    said = text(attributes, "ai.response.text", "ai.response.object")
    answer = message_of({"role": "assistant", "content": None})
    answer.text, answer.calls = said, calls
    answer.thinking = text(attributes, "ai.response.reasoning")
    tools = structured(attributes.get("ai.prompt.tools"))
    sampling = {
        name: attributes[f"gen_ai.request.{name}"]
        for name in ("temperature", "top_p", "top_k", "max_tokens", "frequency_penalty",
                     "presence_penalty", "stop_sequences")
        if f"gen_ai.request.{name}" in attributes
    }  # fmt: skip
    usage = {
        "prompt": count(attributes, "ai.usage.inputTokens", "ai.usage.promptTokens",
                        "gen_ai.usage.input_tokens"),
        "completion": count(attributes, "ai.usage.outputTokens", "ai.usage.completionTokens",
                            "gen_ai.usage.output_tokens"),
        "thinking": count(attributes, "ai.usage.reasoningTokens",
                          "ai.usage.outputTokenDetails.reasoningTokens"),
        "cached": count(attributes, "ai.usage.cachedInputTokens",
                        "ai.usage.inputTokenDetails.cacheReadTokens"),
    }  # fmt: skip
    facts = {
        "call_id": text(attributes, "ai.response.id", "gen_ai.response.id"),
        "model": text(attributes, "ai.response.model", "gen_ai.response.model", "ai.model.id"),
        "provider": text(attributes, "ai.model.provider"),
        "usage": present(usage) or None,
        "ttft_ms": milliseconds(attributes, "ai.response.msToFirstChunk"),
        "finish_reason": text(attributes, "ai.response.finishReason"),
        "sampling": sampling or None,
    }
    return ModelCallReading(
        messages=given,
        answers=[] if answer.is_empty else [answer],
        system=system_text(given),
        tools=objects([structured(tool) for tool in tools]) if isinstance(tools, list) else None,
        facts=present(facts),
    )
