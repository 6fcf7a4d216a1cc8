"""Exporters with names of their own, one small conversation each: what was said is told once, the
system prompt, tools, tokens and sampling are where events have them."""

import json
from typing import Any

import pytest

from tests.support.spans import Row, events_of, span, story, traces

TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}
CALL = {"id": "c-1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}
SENT: list[Row] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "what is here?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c-1", "content": "a.py"},
]
ANSWER = {"role": "assistant", "content": "one file"}


def openinference() -> list[Row]:
    common = {
        "openinference.span.kind": "LLM", "session.id": "s-1", "llm.model_name": "coder",
        "llm.invocation_parameters": '{"temperature": 0.5, "model": "coder"}',
        "llm.tools.0.tool.json_schema": json.dumps(TOOL),
        "llm.token_count.prompt": 12, "llm.token_count.completion": 5,
        "llm.token_count.prompt_details.cache_read": 3,
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": "Be brief.",
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.contents.0.message_content.type": "text",
        "llm.input_messages.1.message.contents.0.message_content.text": "what is here?",
    }  # fmt: skip

    def calls(prefix: str) -> Row:
        one = f"{prefix}.message.tool_calls.0.tool_call"
        return {f"{prefix}.message.role": "assistant", f"{one}.id": "c-1",
                f"{one}.function.name": "ls",
                f"{one}.function.arguments": '{"path": "."}'}  # fmt: skip

    second = calls("llm.input_messages.2") | {
        "llm.input_messages.3.message.role": "tool",
        "llm.input_messages.3.message.tool_call_id": "c-1",
        "llm.input_messages.3.message.content": "a.py",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.contents.0.message_content.type": "reasoning",
        "llm.output_messages.0.message.contents.0.message_content.text": "hm",
        "llm.output_messages.1.message.role": "assistant",
        "llm.output_messages.1.message.content": "one file",
    }
    tool = {"openinference.span.kind": "TOOL", "session.id": "s-1", "tool.name": "ls",
            "input.value": '{"path": "."}',
            "output.value": json.dumps({"type": "tool", "data": {
                "content": "a.py", "tool_call_id": "c-1"}})}  # fmt: skip
    return [span(1, common | calls("llm.output_messages.0")), span(2, tool, at_ms=200),
            span(3, common | second, at_ms=400)]  # fmt: skip


def vercel() -> list[Row]:
    def call(number: int, at_ms: int, messages: list[Row], **more: Any) -> Row:
        values = {
            "operation.name": "ai.streamText.doStream", "ai.operationId": "ai.streamText.doStream",
            "ai.telemetry.metadata.sessionId": "s-1", "ai.model.id": "coder",
            "ai.prompt.messages": json.dumps(messages), "ai.prompt.tools": [json.dumps(TOOL)],
            "gen_ai.request.temperature": 0.5, "gen_ai.system": "openai",
            "ai.usage.inputTokens": 12, "ai.usage.outputTokens": 5,
            "ai.usage.cachedInputTokens": 3,
        }  # fmt: skip
        named = {key.replace("__", "."): value for key, value in more.items()}
        return span(number, values | named, at_ms=at_ms)

    called = {"toolCallId": "c-1", "toolName": "ls", "input": {"path": "."}}
    first: list[Row] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "what is here?"}]},
    ]
    told: list[Row] = [
        {"role": "assistant", "content": [{"type": "tool-call", **called}]},
        {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c-1", "toolName": "ls",
                                      "output": {"type": "text", "value": "a.py"}}]},
    ]  # fmt: skip
    tool = {"ai.operationId": "ai.toolCall", "ai.telemetry.metadata.sessionId": "s-1",
            "ai.toolCall.name": "ls", "ai.toolCall.id": "c-1",
            "ai.toolCall.args": '{"path":"."}', "ai.toolCall.result": '"a.py"'}  # fmt: skip
    return [
        call(1, 0, first, ai__response__toolCalls=json.dumps([called])),
        span(2, tool, at_ms=200),
        call(3, 400, first + told, ai__response__text="one file", ai__response__reasoning="hm"),
    ]


def langfuse() -> list[Row]:
    def call(number: int, at_ms: int, messages: list[Row], answer: Row) -> Row:
        request = {"messages": messages, "tools": [TOOL]}
        return span(number, {
            "langfuse.observation.type": "generation", "session.id": "s-1",
            "langfuse.observation.model.name": "coder",
            "langfuse.observation.input": json.dumps(request),
            "langfuse.observation.output": json.dumps(answer),
            "langfuse.observation.usage_details": '{"input": 12, "output": 5,'
                                                  ' "input_cached_tokens": 3}',
            "langfuse.observation.model.parameters": '{"temperature": 0.5}',
        }, at_ms=at_ms)  # fmt: skip

    called: Row = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    return [call(1, 0, SENT[:2], called),
            call(3, 400, SENT, ANSWER | {"reasoning_content": "hm"})]  # fmt: skip


def mlflow() -> list[Row]:
    def call(number: int, at_ms: int, messages: list[Row], answer: Row) -> Row:
        request = {"messages": messages, "tools": [TOOL], "model": "coder", "temperature": 0.5}
        return span(number, {
            "mlflow.spanType": '"CHAT_MODEL"', "mlflow.trace.session": '"s-1"',
            "mlflow.spanInputs": json.dumps(request),
            "mlflow.spanOutputs": json.dumps({"choices": [{"message": answer}]}),
            "mlflow.chat.tokenUsage": '{"input_tokens": 12, "output_tokens": 5,'
                                      ' "cache_read_input_tokens": 3}',
        }, at_ms=at_ms)  # fmt: skip

    called: Row = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    return [call(1, 0, SENT[:2], called),
            call(3, 400, SENT, ANSWER | {"reasoning_content": "hm"})]  # fmt: skip


def langsmith() -> list[Row]:
    def made(kind: str, **fields: Any) -> Row:
        return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", kind],
                "kwargs": fields}  # fmt: skip

    def call(number: int, at_ms: int, messages: list[Row], answer: Row) -> Row:
        details = {"input_token_details": {"cache_read": 3}}
        return span(number, {
            "langsmith.span.kind": "llm", "gen_ai.operation.name": "chat",
            "langsmith.metadata.session_id": "s-1", "gen_ai.request.model": "coder",
            "gen_ai.request.temperature": 0.5, "gen_ai.tool.definitions": json.dumps([TOOL]),
            "gen_ai.usage.input_tokens": 12, "gen_ai.usage.output_tokens": 5,
            "langsmith.metadata.usage_metadata": json.dumps(details),
            "gen_ai.prompt": json.dumps({"messages": [messages]}),
            "gen_ai.completion": json.dumps({"generations": [[{"text": "", "message": answer}]]}),
        }, at_ms=at_ms)  # fmt: skip

    first = [made("SystemMessage", content="Be brief.", type="system"),
             made("HumanMessage", content="what is here?", type="human")]  # fmt: skip
    called = made("AIMessage", content="", type="ai",
                  tool_calls=[{"name": "ls", "args": {"path": "."}, "id": "c-1"}])  # fmt: skip
    told = made("ToolMessage", content="a.py", type="tool", tool_call_id="c-1")
    answer = made("AIMessage", type="ai", content=[
        {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "one file"}])  # fmt: skip
    tool = {"langsmith.span.kind": "tool", "langsmith.metadata.session_id": "s-1",
            "gen_ai.tool.name": "ls", "gen_ai.tool.call.id": "c-1", "gen_ai.prompt": "{}",
            "gen_ai.completion": '{"output": {"content": "a.py", "type": "tool"}}'}  # fmt: skip
    return [call(1, 0, first, called), span(2, tool, at_ms=200),
            call(3, 400, [*first, called, told], answer)]  # fmt: skip


@pytest.mark.parametrize("exporter", [openinference, vercel, langfuse, mlflow, langsmith])
def test_a_conversation_of_an_exporter(exporter: Any) -> None:
    document = traces(exporter())
    assert [(kind, said or None) for kind, said in story(document)] == [
        ("user_message", "what is here?"),
        ("model_call", None),
        ("tool_result", "a.py"),
        ("model_call", "one file"),
    ]
    events = events_of(document)
    assert {event["session_id"] for event in events} == {"s-1"}
    first, second = (e["payload"] for e in events if e["type"] == "model_call")
    assert first["tool_calls"] == [{"id": "c-1", "name": "ls", "arguments": {"path": "."}}]
    assert (first["system"], first["tools"]) == ("Be brief.", [TOOL])
    assert first["usage"] == {"prompt": 12, "completion": 5, "cached": 3}
    assert (first["model"], first["sampling"]) == ("coder", {"temperature": 0.5})
    assert second["thinking"] == "hm"


def test_strands_tells_messages_in_events_of_the_span() -> None:
    told = [
        ("gen_ai.user.message", {"content": '[{"text": "what is here?"}]'}),
        ("gen_ai.choice", {"finish_reason": "tool_use", "message": json.dumps(
            [{"toolUse": {"toolUseId": "c-1", "name": "ls", "input": {"path": "."}}}])}),
    ]  # fmt: skip
    ran = [
        ("gen_ai.tool.message", {"role": "tool", "content": '{"path": "."}', "id": "c-1"}),
        ("gen_ai.choice", {"message": '[{"text": "a.py"}]', "id": "c-1"}),
    ]
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ls",
            "gen_ai.tool.call.id": "c-1"}  # fmt: skip
    later = [
        ("gen_ai.user.message", {"content": '[{"text": "what is here?"}]'}),
        ("gen_ai.assistant.message", {"content": json.dumps(
            [{"toolUse": {"toolUseId": "c-1", "name": "ls", "input": {"path": "."}}}])}),
        ("gen_ai.tool.message", {"content": json.dumps(
            [{"toolResult": {"toolUseId": "c-1", "status": "success",
                             "content": [{"text": "a.py"}]}}])}),
        ("gen_ai.choice", {"finish_reason": "end_turn", "message": '[{"text": "one file"}]'}),
    ]  # fmt: skip
    chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "coder"}
    spans = [
        span(1, chat, events=told),
        span(2, tool, events=ran, at_ms=200),
        span(3, chat, events=later, at_ms=400),
    ]
    assert story(traces(spans)) == [
        ("user_message", "what is here?"),
        ("model_call", None),
        ("tool_result", "a.py"),
        ("model_call", "one file"),
    ]
    payload = events_of(traces(spans))[1]["payload"]
    assert payload["tool_calls"] == [{"id": "c-1", "name": "ls", "arguments": {"path": "."}}]


def test_what_a_function_was_given_is_a_step() -> None:
    """OpenLLMetry's own spans: a tool that names no call is none of its results."""
    workflow = {"traceloop.span.kind": "workflow", "traceloop.entity.name": "answer"}
    tool = {"traceloop.span.kind": "tool", "traceloop.entity.name": "ls",
            "traceloop.entity.input": '{"inputs": {"path": "."}}',
            "traceloop.entity.output": '{"output": "a.py"}',
            "traceloop.association.properties.session_id": "s-9"}  # fmt: skip
    document = traces([span(1, workflow), span(2, tool, at_ms=5)])
    assert story(document) == [("x_span", "workflow"), ("x_span", "tool")]
    ran = events_of(document)[1]
    assert ran["session_id"] == "s-9"
    assert (ran["payload"]["tool"], ran["payload"]["output"]) == ("ls", "a.py")


def test_a_span_of_a_client_library_beside_its_instrumentation_is_no_second_call() -> None:
    bare = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 15}
    document = traces([span(1, bare)], scope="com.anthropic.sdk.python")
    assert story(document) == [("x_span", "llm")]
