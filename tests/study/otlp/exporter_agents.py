"""One small agent for each library that exports spans: it asks a model, runs a tool, asks again,
and is thanked. Run by the Python of .venv-exporters, with a name of AGENTS:

    exporter_agents.py NAME MODEL_URL

Where to send spans is in the usual variables of OpenTelemetry."""

import os
import sys
from collections.abc import Callable
from typing import Any

os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "true"
Row = dict[str, Any]

SYSTEM, ASKED, THANKED, GAVE = "You are careful.", "what is here?", "thanks", "a.py"
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
TOOL = {"name": "ls", "description": "lists files", "parameters": SCHEMA}


def openinference_openai(url: str) -> None:
    from openinference.instrumentation import using_attributes
    from openinference.instrumentation.openai import OpenAIInstrumentor

    OpenAIInstrumentor().instrument()
    with using_attributes(session_id=_session(), user_id="u-1"):
        _chat(url)


def openinference_responses(url: str) -> None:
    from openinference.instrumentation import using_attributes
    from openinference.instrumentation.openai import OpenAIInstrumentor

    OpenAIInstrumentor().instrument()
    with using_attributes(session_id=_session()):
        _responses(url)


def openinference_anthropic(url: str) -> None:
    from openinference.instrumentation import using_attributes
    from openinference.instrumentation.anthropic import AnthropicInstrumentor

    AnthropicInstrumentor().instrument()
    with using_attributes(session_id=_session()):
        _anthropic(url)


def openinference_langchain(url: str) -> None:
    from openinference.instrumentation.langchain import LangChainInstrumentor

    LangChainInstrumentor().instrument()
    with _turn():
        _langchain(url, {})


def openinference_agents(url: str) -> None:
    import agents
    import openai
    from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

    OpenAIAgentsInstrumentor().instrument()
    client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="x")
    agents.set_default_openai_client(client, use_for_tracing=False)

    @agents.function_tool
    def ls(path: str) -> str:
        """lists files"""
        return GAVE

    agent = agents.Agent(name="lister", instructions=SYSTEM, model="coder", tools=[ls])
    with _turn():
        first = agents.Runner.run_sync(agent, ASKED)
        thanks: Row = {"role": "user", "content": THANKED}
        agents.Runner.run_sync(agent, [*first.to_input_list(), thanks])


def openllmetry_openai(url: str) -> None:
    from opentelemetry.instrumentation.openai import OpenAIInstrumentor

    OpenAIInstrumentor().instrument()
    with _turn():
        _chat(url)


def openllmetry_anthropic(url: str) -> None:
    from opentelemetry.instrumentation.anthropic import AnthropicInstrumentor

    AnthropicInstrumentor().instrument()
    with _turn():
        _anthropic(url)


def opentelemetry_openai(url: str) -> None:
    """Messages in log records, one each."""
    from opentelemetry.instrumentation.openai_v2 import OpenAIInstrumentor

    OpenAIInstrumentor().instrument()
    with _turn():
        _chat(url)


def opentelemetry_openai_latest(url: str) -> None:
    """Messages in attributes, and again in a log record."""
    os.environ["OTEL_SEMCONV_STABILITY_OPT_IN"] = "gen_ai_latest_experimental"
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_AND_EVENT"
    opentelemetry_openai(url)


def pydantic_ai(url: str) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("coder", provider=OpenAIProvider(base_url=f"{url}/v1", api_key="x"))
    agent = Agent(model, instructions=SYSTEM, name="lister")

    @agent.tool_plain
    def ls(path: str = ".") -> str:
        """lists files"""
        return GAVE

    Agent.instrument_all()
    with _turn():
        first = agent.run_sync(ASKED)
        agent.run_sync(THANKED, message_history=first.all_messages())


def strands(url: str) -> None:
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel

    @tool
    def ls(path: str) -> str:
        """lists files"""
        return GAVE

    model = OpenAIModel(client_args={"base_url": f"{url}/v1", "api_key": "x"}, model_id="coder")
    agent = Agent(model=model, tools=[ls], system_prompt=SYSTEM, callback_handler=None,
                  trace_attributes={"session.id": _session()})  # fmt: skip
    agent(ASKED)
    agent(THANKED)


def langsmith(url: str) -> None:
    os.environ.update(
        LANGSMITH_OTEL_ENABLED="true", LANGSMITH_TRACING="true", LANGSMITH_OTEL_ONLY="true",
        LANGSMITH_API_KEY="x", LANGSMITH_ENDPOINT=f"{url}/none",
    )  # fmt: skip
    _langchain(url, {"metadata": {"session_id": _session()}})
    from langchain_core.tracers.langchain import wait_for_all_tracers

    wait_for_all_tracers()


AGENTS: dict[str, Callable[[str], None]] = {
    agent.__name__: agent
    for agent in (
        openinference_openai, openinference_responses, openinference_anthropic,
        openinference_langchain, openinference_agents, openllmetry_openai, openllmetry_anthropic,
        opentelemetry_openai, opentelemetry_openai_latest, pydantic_ai, strands, langsmith,
    )
}  # fmt: skip


def _session() -> str:
    return sys.argv[1]


def _turn() -> Any:
    from opentelemetry import trace

    return trace.get_tracer("agent").start_as_current_span("turn")


def _chat(url: str) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="x")
    tools: Any = [{"type": "function", "function": TOOL}]
    messages: list[Any] = [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": ASKED},
    ]

    def ask(**more: Any) -> Any:
        reply = client.chat.completions.create(
            model="coder", messages=messages, tools=tools, **more
        )
        messages.append(reply.choices[0].message.model_dump(exclude_none=True))
        return reply.choices[0].message

    call = ask(temperature=0.5).tool_calls[0]
    messages.append({"role": "tool", "tool_call_id": call.id, "content": GAVE})
    ask()
    messages.append({"role": "user", "content": THANKED})
    ask()


def _responses(url: str) -> None:
    import openai

    client = openai.OpenAI(base_url=f"{url}/v1", api_key="x")
    items: list[Any] = [{"role": "user", "content": ASKED}]

    def ask() -> list[Any]:
        tools: Any = [{"type": "function", **TOOL}]
        reply = client.responses.create(
            model="coder", instructions=SYSTEM, input=items, tools=tools
        )
        items.extend(item.model_dump(exclude_none=True) for item in reply.output)
        return list(reply.output)

    call = ask()[-1]
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": GAVE})
    ask()
    items.append({"role": "user", "content": THANKED})
    ask()


def _anthropic(url: str) -> None:
    import anthropic

    client = anthropic.Anthropic(base_url=url, api_key="x")
    messages: list[Any] = [{"role": "user", "content": ASKED}]

    def ask() -> list[Any]:
        tools: Any = [{"name": "ls", "description": "lists files", "input_schema": SCHEMA}]
        reply = client.messages.create(
            model="coder", max_tokens=100, system=SYSTEM, messages=messages, tools=tools
        )
        content = [block.model_dump(exclude_none=True) for block in reply.content]
        messages.append({"role": "assistant", "content": content})
        return list(reply.content)

    call = ask()[-1]
    told = {"type": "tool_result", "tool_use_id": call.id, "content": GAVE}
    messages.append({"role": "user", "content": [told]})
    ask()
    messages.append({"role": "user", "content": THANKED})
    ask()


def _langchain(url: str, config: Any) -> None:
    from langchain_core.messages import HumanMessage, SystemMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def ls(path: str) -> str:
        """lists files"""
        return GAVE

    model = ChatOpenAI(model="coder", base_url=f"{url}/v1", api_key="x").bind_tools([ls])
    messages: list[Any] = [SystemMessage(SYSTEM), HumanMessage(ASKED)]
    messages.append(model.invoke(messages, config))
    messages.append(ls.invoke(messages[-1].tool_calls[0], config))
    messages.append(model.invoke(messages, config))
    messages.append(HumanMessage(THANKED))
    model.invoke(messages, config)


def main() -> None:
    from opentelemetry import _logs, trace
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    spans, records = TracerProvider(), LoggerProvider()
    spans.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    records.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    trace.set_tracer_provider(spans)
    _logs.set_logger_provider(records)
    name, url = sys.argv[1:]
    AGENTS[name](url)
    spans.shutdown()
    records.shutdown()


if __name__ == "__main__":
    main()
