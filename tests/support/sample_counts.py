"""What samples of sessions hold, counted from their files by nothing that importers use."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

Count = Counter[str]
Json = Any


def _rows(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def _documents(folder: Path, pattern: str) -> Iterator[Json]:
    for path in sorted(folder.rglob(pattern)):
        yield json.loads(path.read_text())


def _tokens(usage: Json, prompt: str, completion: str) -> Count:
    told = usage or {}
    return Counter(prompt=told.get(prompt) or 0, completion=told.get(completion) or 0)


def of_atif(folder: Path) -> Count:
    count: Count = Counter()
    for document in _documents(folder, "*.json"):
        for step in document["steps"]:
            count["user_message"] += step["source"] == "user"
            count["model_call"] += step["source"] == "agent"
            calls = step.get("tool_calls") or []
            count["tool_call"] += len(calls)
            for call in calls:
                command = call["arguments"].get("command")
                count["edit"] += command in ("create", "str_replace", "insert")
            count["tool_result"] += len((step.get("observation") or {}).get("results", []))
            count += _tokens(step.get("metrics"), "prompt_tokens", "completion_tokens")
    return count


def of_swe_agent(folder: Path) -> Count:
    """Edits are those that the editor did not refuse; each of these runs edits by it alone."""
    count: Count = Counter()
    for document in _documents(folder, "*.traj"):
        steps = document.get("trajectory") or []
        history = document["history"]
        answers = [each for each in history if each["role"] == "assistant"]
        first = history.index(answers[0])
        count["user_message"] += sum(each["role"] == "user" for each in history[:first])
        count["model_call"] += len(steps) or len(answers)
        count["tool_result"] += len(steps) or sum(each["role"] == "tool" for each in history)
        count["tool_call"] += sum(len(each.get("tool_calls") or ()) for each in answers)
        for step in steps:
            edits = step["action"].startswith(("edit", "insert"))
            refused = "introduced new syntax error" in step["observation"]
            count["edit"] += edits and not refused and "[File:" in step["observation"]
        stats = (document.get("info") or {}).get("model_stats") or {}
        count += _tokens(stats, "tokens_sent", "tokens_received")
    return count


def of_mini_swe_agent(folder: Path) -> Count:
    count: Count = Counter()
    for messages in _documents(folder, "*.traj.json"):
        roles = [message["role"] for message in messages]
        count["user_message"] += 1
        count["model_call"] += roles.count("assistant")
        count["tool_result"] += roles.count("user") - 1
        # What the run wrote is one file, by a command and in the final patch.
        count["edit"] += any("cat > tests/" in message["content"] for message in messages)
    return count


def of_nemo_gym(folder: Path) -> Count:
    count: Count = Counter()
    responses = [json.loads((folder / "two_turns_with_token_ids.json").read_text())["input"]]
    for path in sorted(folder.glob("*.jsonl")):
        for row in _rows(path):
            responses.append(row["response"])
            given = row["responses_create_params"]["input"]
            users = [given] if isinstance(given, str) else given
            count["user_message"] += sum(
                isinstance(each, str) or each["role"] == "user" for each in users
            )
    for response in responses:
        output = response["output"]
        kinds = [item["type"] for item in output]
        count["tool_call"] += kinds.count("function_call")
        count["tool_result"] += kinds.count("function_call_output")
        # A call of the model ends before a result, and with the session.
        behind = [*kinds[1:], "function_call_output"]
        for item, following in zip(kinds, behind, strict=True):
            ends = following == "function_call_output"
            count["sampled_run"] += item != "function_call_output" and ends
        for item in output:
            count["completion_id"] += len(item.get("generation_token_ids") or ())
        count += _tokens(response.get("usage"), "input_tokens", "output_tokens")
    return count


def of_openhands_v0(folder: Path) -> Count:
    count: Count = Counter()
    for events in _documents(folder, "*.json"):
        responses = {}
        for event in events:
            action, observation = event.get("action"), event.get("observation")
            said = (event.get("tool_call_metadata") or {}).get("model_response")
            if event["source"] == "user" and action == "message":
                count["user_message"] += 1
            elif action and said:
                responses[said["id"]] = said
            elif action == "message":
                count["model_call"] += 1
            if observation not in (None, "null", "agent_state_changed"):
                count["tool_result"] += 1
                count["edit"] += observation == "edit" and event["content"][:5] != "ERROR"
        for said in responses.values():
            count["model_call"] += 1
            count["tool_call"] += len(said["choices"][0]["message"].get("tool_calls") or ())
            count += _tokens(said["usage"], "prompt_tokens", "completion_tokens")
    return count


def of_openhands_v1(folder: Path) -> Count:
    """The stream of events; the logs of calls, of which each has one answer."""
    count: Count = Counter()
    totals: dict[str, Json] = {}
    for event in _rows(folder / "conversation_events.jsonl"):
        count["model_call"] += event["kind"] == "ActionEvent"
        count["tool_call"] += event["kind"] == "ActionEvent"
        count["tool_result"] += event["kind"] == "ObservationEvent"
        if event.get("key") == "stats":
            totals = event["value"]["usage_to_metrics"]
    for metrics in totals.values():
        count += _tokens(metrics["accumulated_token_usage"], "prompt_tokens", "completion_tokens")
    for logs in (*sorted((folder / "llm_logs").iterdir()), folder / "gateway_responses"):
        last: Json = {"messages": []}
        for document in _documents(logs, "*.json"):
            message = document["response"]["choices"][0]["message"]
            count["model_call"] += 1
            calls = message.get("tool_calls") or []
            count["tool_call"] += len(calls)
            count["edit"] += sum('"command": "create"' in str(call) for call in calls)
            usage = document["response"]["usage"]
            count += _tokens(usage, "prompt_tokens", "completion_tokens")
            apart = logs.name == "gateway_responses"
            last = document if len(document["messages"]) >= len(last["messages"]) else last
            count["user_message"] += apart
        if logs.name != "gateway_responses":
            told = last.get("raw_messages") or last["messages"]
            count["user_message"] += sum(message["role"] == "user" for message in told)
            count["tool_result"] += sum(message["role"] == "tool" for message in told)
    return count


def of_opencode(folder: Path) -> Count:
    count: Count = Counter()
    address = f"file:{folder / 'opencode.db'}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True)) as database:
        for (text,) in database.execute("SELECT data FROM message"):
            message = json.loads(text)
            count["user_message"] += message["role"] == "user"
            count["model_call"] += message["role"] == "assistant"
            count += _tokens(message.get("tokens"), "input", "output")
        for (text,) in database.execute("SELECT data FROM part"):
            part = json.loads(text)
            count["tool_call"] += part["type"] == "tool"
            count["tool_result"] += part["type"] == "tool"
            count["edit"] += part.get("tool") == "write"
    store = folder / "json_store" / "storage"
    for path in sorted((store / "message").rglob("*.json")):
        try:
            message = json.loads(path.read_text())
        except ValueError:
            continue  # cut off in the middle
        kind = message.get("role") or message["type"]
        count["user_message"] += kind == "user"
        count["model_call"] += kind == "assistant"
        tools = [part for part in message.get("content") or () if part["type"] == "tool"]
        count.update(tool_call=len(tools), tool_result=len(tools))
        usage = message.get("tokens") or {}
        count += _tokens(usage, "input", "output")
        count["prompt"] += (usage.get("cache") or {}).get("read", 0)
    for part in _documents(store / "part", "*.json"):
        count["user_message"] += part.get("synthetic", False)
        count["tool_call"] += part["type"] == "tool"
        count["tool_result"] += part["type"] == "tool"
    return count


def of_qwen(folder: Path) -> Count:
    count: Count = Counter()
    for path in sorted(folder.glob("*.jsonl")):
        for row in _rows(path):
            parts = (row.get("message") or {}).get("parts") or ()
            count["user_message"] += row["type"] == "user"
            count["model_call"] += row["type"] == "assistant"
            count["tool_call"] += sum("functionCall" in part for part in parts)
            count["tool_result"] += sum("functionResponse" in part for part in parts)
            if row["type"] == "assistant":
                usage = row.get("usageMetadata")
                count += _tokens(usage, "promptTokenCount", "candidatesTokenCount")
    return count


def of_copilot_cli(folder: Path) -> Count:
    count: Count = Counter()
    for path in sorted(folder.rglob("events.jsonl")):
        for row in _rows(path):
            count["user_message"] += row["type"] == "user.message"
            count["model_call"] += row["type"] == "assistant.message"
            count["tool_call"] += len(row["data"].get("toolRequests") or ())
            count["tool_result"] += row["type"] == "tool.execution_complete"
            for metrics in (row["data"].get("modelMetrics") or {}).values():
                count += _tokens(metrics["usage"], "inputTokens", "outputTokens")
    return count


def of_registry(folder: Path) -> Count:
    """One prompt and one answer in each of its layouts; OpenCode's is text to make a database
    of."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    layouts = [
        path
        for path in files
        if path.suffix in (".jsonl", ".md") or re.search(r"history\.json|\.messages\.", path.name)
    ]
    return Counter(user_message=len(layouts), model_call=len(layouts))


COUNTERS: dict[str, Callable[[Path], Count]] = {
    "atif": of_atif,
    "swe_agent": of_swe_agent,
    "mini_swe_agent": of_mini_swe_agent,
    "nemo_gym": of_nemo_gym,
    "openhands_v0": of_openhands_v0,
    "openhands_v1": of_openhands_v1,
    "opencode": of_opencode,
    "qwen": of_qwen,
    "copilot_cli": of_copilot_cli,
    "registry": of_registry,
}
