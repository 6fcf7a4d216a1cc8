"""What samples of sessions hold, counted from their files by nothing that importers use.

Each counter takes a source: a file, or a folder where sessions are spread over files. It counts
`user_message`, `model_call`, `tool_call`, `tool_result`, `edit`, `prompt` and `completion`."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

Count = Counter[str]
Json = Any


def _rows(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def whole_rows(path: Path) -> Iterator[Json]:
    """Without those that are cut off, or broken on purpose."""
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _document(path: Path) -> Json:
    return json.loads(path.read_text())


def _documents(folder: Path, pattern: str) -> Iterator[Json]:
    return map(_document, sorted(folder.rglob(pattern)))


def _tokens(usage: Json, prompt: str, completion: str) -> Count:
    told = usage or {}
    return Counter(prompt=told.get(prompt) or 0, completion=told.get(completion) or 0)


def of_atif(path: Path) -> Count:
    """Tokens are those of steps. The totals of a document may also hold calls that made a summary,
    which are no step of any document; they are kept as they are told, and counted nowhere."""
    count: Count = Counter()
    for step in _document(path)["steps"]:
        count["user_message"] += step["source"] == "user"
        count["model_call"] += step["source"] == "agent"
        calls = step.get("tool_calls") or []
        count["tool_call"] += len(calls)
        results = (step.get("observation") or {}).get("results", [])
        count["tool_result"] += len(results)
        count["edit"] += sum("File created successfully" in str(each) for each in results)
        count += _tokens(step.get("metrics"), "prompt_tokens", "completion_tokens")
    return count


def of_swe_agent(path: Path) -> Count:
    """Edits are those that the editor did not refuse; each of these runs edits by it alone. What
    stands in the history before the first answer was asked; demonstrations among it too."""
    count: Count = Counter()
    document = _document(path)
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
    return count + _tokens(stats, "tokens_sent", "tokens_received")


def of_mini_swe_agent(path: Path) -> Count:
    messages = _document(path)
    roles = [message["role"] for message in messages]
    count: Count = Counter(user_message=1, model_call=roles.count("assistant"))
    count["tool_result"] += roles.count("user") - 1
    # What the run wrote is one file, by a command and in the final patch.
    count["edit"] += any("cat > tests/" in message["content"] for message in messages)
    return count


def of_nemo_gym(path: Path) -> Count:
    """A call of the model is a run of what it sampled: a result ends it, or the rollout's end."""
    count: Count = Counter()
    rows = [{"response": _document(path)["input"]}] if path.suffix == ".json" else _rows(path)
    for row in rows:
        given = row.get("responses_create_params", {}).get("input", [])
        users = [given] if isinstance(given, str) else given
        count["user_message"] += sum(
            isinstance(each, str) or each["role"] == "user" for each in users
        )
        response = row["response"]
        kinds = [item["type"] for item in response["output"]]
        count["tool_call"] += kinds.count("function_call")
        count["tool_result"] += kinds.count("function_call_output")
        behind = [*kinds[1:], "function_call_output"]
        for item, following in zip(kinds, behind, strict=True):
            ends = following == "function_call_output"
            count["model_call"] += item != "function_call_output" and ends
        for item in response["output"]:
            count["completion_id"] += len(item.get("generation_token_ids") or ())
        count += _tokens(response.get("usage"), "input_tokens", "output_tokens")
        count["edit"] += _gym_edits(row)
    return count


def _gym_edits(row: Json) -> int:
    """Calls that wrote and did not fail; then the files of the last patch that none of them
    wrote."""
    items = row["response"]["output"]
    results = {i["call_id"]: i["output"] for i in items if i["type"] == "function_call_output"}
    edited, count = [], 0
    for item in items:
        if item.get("name") in ("Edit", "edit", "write", "patch", "write_file"):
            arguments, result = json.loads(item["arguments"]), results[item["call_id"]]
            if "<tool_use_error>" not in result and '"success": false' not in result:
                edited += [arguments[name] for name in arguments if "path" in name.lower()]
                count += len(arguments.get("edits", [0]))
    files = re.findall(r"^diff --git a/(\S+)", row.get("model_patch") or "", re.MULTILINE)
    return count + sum(not any(path.endswith(file) for path in edited) for file in files)


def of_openhands_v0(path: Path) -> Count:
    """Actions of one response are one model call, whose tokens count once."""
    count: Count = Counter()
    responses = {}
    for event in _document(path):
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


def of_event_log(path: Path) -> Count:
    """OpenHands 1. No call of this one tells its tokens: they are the totals."""
    count: Count = Counter()
    totals: dict[str, Json] = {}
    for event in _rows(path):
        count["model_call"] += event["kind"] == "ActionEvent"
        count["tool_call"] += event["kind"] == "ActionEvent"
        count["tool_result"] += event["kind"] == "ObservationEvent"
        if event.get("key") == "stats":
            totals = event["value"]["usage_to_metrics"]
    for metrics in totals.values():
        count += _tokens(metrics["accumulated_token_usage"], "prompt_tokens", "completion_tokens")
    return count


def of_call_logs(source: Path) -> Count:
    """A request and its response a file. Those of a folder are one conversation, whose messages
    are those of its longest request: the others hold copies."""
    count: Count = Counter()
    last: Json = {"messages": []}
    files = sorted(source.glob("*.json")) if source.is_dir() else [source]
    for document in map(_document, files):
        calls = document["response"]["choices"][0]["message"].get("tool_calls") or []
        count.update(model_call=1, tool_call=len(calls))
        count += _tokens(document["response"]["usage"], "prompt_tokens", "completion_tokens")
        last = document if len(document["messages"]) >= len(last["messages"]) else last
    told = last.get("raw_messages") or last["messages"]
    count["user_message"] += sum(message["role"] == "user" for message in told)
    results = [str(message["content"]) for message in told if message["role"] == "tool"]
    count["tool_result"] += len(results)
    count["edit"] += sum("File created successfully" in result for result in results)
    return count


def _opencode_tokens(message: Json) -> Count:
    """What was read from a cache, or written to it, stands beside the input."""
    usage = message.get("tokens") or {}
    count = _tokens(usage, "input", "output")
    count["prompt"] += sum((usage.get("cache") or {}).get(name) or 0 for name in ("read", "write"))
    return count


def of_opencode(path: Path) -> Count:
    count: Count = Counter()
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        for (text,) in database.execute("SELECT data FROM message"):
            message = json.loads(text)
            count["user_message"] += message["role"] == "user"
            count["model_call"] += message["role"] == "assistant"
            count += _opencode_tokens(message)
        for (text,) in database.execute("SELECT data FROM part"):
            part = json.loads(text)
            count["tool_call"] += part["type"] == "tool"
            count["tool_result"] += part["type"] == "tool"
            count["edit"] += part.get("tool") == "write"
    return count


def of_opencode_store(folder: Path) -> Count:
    """A text that the client wrote in the user's place is a message of its own."""
    count: Count = Counter()
    store = folder / "storage"
    for path in sorted((store / "message").rglob("*.json")):
        try:
            message = _document(path)
        except ValueError:
            continue  # cut off in the middle
        kind = message.get("role") or message["type"]
        count["user_message"] += kind == "user"
        count["model_call"] += kind == "assistant"
        tools = [part for part in message.get("content") or () if part["type"] == "tool"]
        count.update(tool_call=len(tools), tool_result=len(tools))
        count += _opencode_tokens(message)
    for part in _documents(store / "part", "*.json"):
        count["user_message"] += part.get("synthetic", False)
        count["tool_call"] += part["type"] == "tool"
        count["tool_result"] += part["type"] == "tool"
    return count


def of_qwen(path: Path) -> Count:
    count: Count = Counter()
    for row in _rows(path):
        parts = (row.get("message") or {}).get("parts") or ()
        count["user_message"] += row["type"] == "user"
        count["model_call"] += row["type"] == "assistant"
        count["tool_call"] += sum("functionCall" in part for part in parts)
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        count["tool_result"] += len(answers)
        written = (row.get("toolCallResult") or {}).get("status") == "success"
        count["edit"] += written and answers[0]["name"] == "write_file"
        if row["type"] == "assistant":
            count += _tokens(row.get("usageMetadata"), "promptTokenCount", "candidatesTokenCount")
    return count


def of_copilot_cli(path: Path) -> Count:
    """Tokens are those that the client tells when it ends. None of these runs wrote a file."""
    count: Count = Counter()
    for row in _rows(path):
        count["user_message"] += row["type"] == "user.message"
        count["model_call"] += row["type"] == "assistant.message"
        count["tool_call"] += len(row["data"].get("toolRequests") or ())
        count["tool_result"] += row["type"] == "tool.execution_complete"
        for metrics in (row["data"].get("modelMetrics") or {}).values():
            count += _tokens(metrics["usage"], "inputTokens", "outputTokens")
    return count


def of_aider(path: Path) -> Count:
    """Lines of the user that follow each other are one prompt; what is behind them is an answer."""
    marks = [line.startswith("#### ") for line in path.read_text().splitlines() if line.strip()]
    asked = sum(mark and not before for before, mark in zip([False, *marks], marks, strict=False))
    return Counter(user_message=asked, model_call=asked)


def of_cline(folder: Path) -> Count:
    """Cline's and Roo's: messages, and the tokens of a task where no request tells its own."""
    count: Count = Counter()
    for document in _documents(folder, "*history.json"):
        if "role" in document[0]:
            count += _roles(document)
    for document in _documents(folder, "*.messages.json"):
        count += _roles(document["messages"])
    for document in _documents(folder, "taskHistory.json"):
        for task in document:
            count += _tokens(task, "tokensIn", "tokensOut")
    for document in _documents(folder, "history_item.json"):
        count += _tokens(document, "tokensIn", "tokensOut")
    return count


def _roles(messages: Json) -> Count:
    roles = [message.get("role") or message.get("type") for message in messages]
    answers = roles.count("assistant") + roles.count("gemini")
    return Counter(user_message=roles.count("user"), model_call=answers)


def of_messages(path: Path) -> Count:
    """Cursor's transcripts, and Gemini's chats with messages set at once."""
    rows = _rows(path)
    return _roles(rows) + _roles(
        [each for row in rows for each in row.get("$set", {}).get("messages", ())]
    )


_EDITING = {"Edit", "MultiEdit", "Write", "NotebookEdit"}
_LOCAL_COMMANDS = ("/clear", "/compact", "/init-local")
_BY_CLIENT = ("<system-reminder>", "<local-command", "<task-notification>", "Caveat: The messages")


def _content_of(row: Json) -> list[Json]:
    message = row.get("message")
    content = message.get("content") if isinstance(message, dict) else message
    return content if isinstance(content, list) else [] if content is None else [content]


def _is_prompt(row: Json) -> bool:
    texts = [
        block if isinstance(block, str) else block.get("text", "")
        for block in _content_of(row)
        if isinstance(block, str) or block.get("type") == "text"
    ]
    said = [text for text in texts if text and not text.startswith(_BY_CLIENT)]
    if not said or row.get("isMeta") or row.get("isCompactSummary"):
        return False
    if said[0].startswith("[Request interrupted"):
        return False
    return not any(f"<command-name>{name}</command-name>" in said[0] for name in _LOCAL_COMMANDS)


def claude_code_rows(rows: Iterable[Json]) -> Count:
    """Each answer once, by its message id; the usage of its last row."""
    counts: Count = Counter()
    usage: dict[str, Json] = {}
    names: dict[str, str] = {}
    seen: set[str] = set()
    for number, row in enumerate(rows):
        whole = json.dumps([row.get("uuid"), row.get("sessionId"), row.get("message")])
        if not row.get("sessionId") or whole in seen:
            continue
        seen.add(whole)
        blocks = [block for block in _content_of(row) if isinstance(block, dict)]
        if row["type"] == "assistant":
            message = row["message"]
            usage[message.get("id") or f"row {number}"] = message.get("usage") or {}
            for block in blocks:
                if block["type"] == "tool_use":
                    counts["tool_call"] += 1
                    names[block["id"]] = block["name"]
        elif row["type"] == "user":
            results = [block for block in blocks if block.get("type") == "tool_result"]
            counts["tool_result"] += len(results)
            counts["edit"] += sum(
                names.get(block["tool_use_id"]) in _EDITING and not block.get("is_error")
                for block in results
            )
            counts["user_message"] += _is_prompt(row)
    counts["model_call"] = len(usage)
    for each in usage.values():
        counts["completion"] += each.get("output_tokens", 0)
        parts = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        counts["prompt"] += sum(each.get(part) or 0 for part in parts)
    return +counts


def of_claude_code(path: Path) -> Count:
    """Rows that stand twice, as in a copied history, count once; a row without a session is
    none."""
    return claude_code_rows(whole_rows(path))


def of_claude_export(path: Path) -> Count:
    """The web's: no row of it has an id, and each is an answer of its own."""
    rows = _document(path)["loglines"]
    return claude_code_rows([row | {"sessionId": "web", "uuid": n} for n, row in enumerate(rows)])


_CODEX_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")


def of_codex(path: Path) -> Count:
    """The tokens are the last total, since it only grows in these files. An answer is a run of
    what the model said, until a result, a count of tokens or a turn."""
    counts: Count = Counter()
    goes_on = False
    for row in whole_rows(path):
        payload = row.get("payload") or {}
        kind, role = payload.get("type"), payload.get("role")
        answers = role == "assistant" or kind in ("reasoning", *_CODEX_CALLS)
        counts["model_call"] += answers and not goes_on
        goes_on = answers
        counts["tool_call"] += kind in _CODEX_CALLS
        counts["tool_result"] += kind in ("function_call_output", "custom_tool_call_output")
        if role == "user":
            text = payload["content"][0]["text"]
            counts["user_message"] += not text.startswith(("<", "# AGENTS.md"))
        elif kind == "token_count" and payload.get("info"):
            total = payload["info"]["total_token_usage"]
            counts["prompt"], counts["completion"] = total["input_tokens"], total["output_tokens"]
    return +counts


#: By folder: which sources there are, and who counts them.
COUNTERS: dict[str, dict[str, Callable[[Path], Count]]] = {
    "atif": {"*.json": of_atif},
    "claude_code": {"*.jsonl": of_claude_code, "*.json": of_claude_export},
    "codex": {"**/*.jsonl": of_codex},
    "copilot_cli": {"**/events.jsonl": of_copilot_cli},
    "mini_swe_agent": {"*.traj.json": of_mini_swe_agent},
    "nemo_gym": {"*.json*": of_nemo_gym},
    "opencode": {"opencode.db": of_opencode, "json_store": of_opencode_store},
    "openhands_v0": {"*.json": of_openhands_v0},
    "openhands_v1": {
        "conversation_events.jsonl": of_event_log,
        "gateway_responses/*.json": of_call_logs,
        "llm_logs/*": of_call_logs,
    },
    "qwen": {"*.jsonl": of_qwen},
    "registry": {
        "aider/.aider*": of_aider,
        "cline/*": of_cline,
        "copilot/*/events.jsonl": of_copilot_cli,
        "cursor/**/*.jsonl": of_messages,
        "gemini/*.jsonl": of_messages,
        "roo": of_cline,
    },
    "swe_agent": {"*.traj": of_swe_agent},
}


def sources_of(samples: Path, folder: str) -> list[tuple[Path, Callable[[Path], Count]]]:
    return [
        (path, counter)
        for pattern, counter in COUNTERS[folder].items()
        for path in sorted(samples.joinpath(folder).glob(pattern))
    ]
