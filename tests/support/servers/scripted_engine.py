"""An engine that says what it is told to, in the forms of vLLM and SGLang, and remembers every
token that it was given and that it sampled.

    python -m tests.support.servers.scripted_engine vllm 0.002

serves on a free port, which it prints, for who measures.
"""

import asyncio
import contextlib
import gc
import json
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from tests.support.servers.scripted_answers import (
    END,
    ROLES,
    Document,
    Sampled,
    ScriptedAnswer,
    answers_before,
    block_events,
    chat_logprobs,
    compact_json,
    deltas_of,
    experts_of,
    npy_text,
    odd_tokens,
    pieces_of,
    said_in,
    texts_of,
    tokens_of,
    usage_of,
    version_spans,
)

Kind = Literal["vllm", "sglang", "plain"]


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def document(self) -> Document:
        # In native code, as engines read them: the ids of a long prompt are many.
        found: Document = msgspec.json.decode(self.body)
        return found


Script = Callable[[Document], ScriptedAnswer]


@dataclass
class ScriptedEngine:
    kind: Kind = "vllm"
    script: Script = lambda _request: ScriptedAnswer("ok")
    url: str = ""
    weights: str = "7:ckpt-0013"
    #: What it does where a request says nothing; None if it does not tell.
    defaults: Document | None = field(default_factory=lambda: {"temperature": 0.6, "top_k": 20})
    #: Of SGLang: whether it was started with one for tools or thoughts.
    has_parser: bool = True
    #: Whether its template writes answers anew, without thoughts and not as they were sampled.
    writes_anew: bool = False
    #: To all calls, in the place of answers.
    refusal: tuple[int, str] | None = None
    #: How ids of its chats begin.
    name: str = "chatcmpl"
    asked: list[Asked] = field(default_factory=list)
    sampled: list[Sampled] = field(default_factory=list)
    #: Answers that nobody waited for to the end.
    called_off: int = 0
    _known: dict[str, list[int]] = field(default_factory=dict)
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    # What it samples

    def sample(self, request: Document, prompt: list[int]) -> tuple[ScriptedAnswer, Sampled]:
        answer = self.script(request)
        ids = [*odd_tokens(answer.sampled), END]
        self._known[answer.sampled] = ids
        logprobs = [-((token * 7919 + at * 31) % 1000) / 997 for at, token in enumerate(ids)]
        sampled = Sampled(prompt, ids, logprobs)
        self.sampled.append(sampled)
        return answer, sampled

    def prompt_of(self, messages: list[Document]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            text = said_in(message | {"reasoning_content": ""} if self.writes_anew else message)
            known = None if self.writes_anew else self._known.get(text)
            ids += [ROLES[message["role"]], *(known or [*tokens_of(text), END])]
        return [*ids, ROLES["assistant"]]

    # The server

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while (asked := await _request_of(reader)) is not None:
                self.asked.append(asked)
                await self._answer(asked, writer)
        writer.close()

    def hang_up(self) -> None:
        """Whatever is not sent yet: a connection that outlives its loop is a leak."""
        for writer in self._writers:
            writer.transport.abort()

    async def _answer(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        path = asked.path.partition("?")[0]
        if asked.method == "POST" and path.startswith("/v1/") and self.refusal is not None:
            await _send(writer, self.refusal[1].encode(), self.refusal[0])
        elif path == "/v1/models":
            owner = {"vllm": "vllm", "sglang": "sglang"}.get(self.kind, "somebody")
            await _send_json(writer, {"object": "list", "data": [{"id": "m", "owned_by": owner}]})
        elif path in ("/weight_info", "/model_info") and self.kind != "plain":
            await _send_json(writer, {"weight_version": self.weights})
        elif path == "/v1/completions/render" and self.kind == "vllm" and self.defaults:
            await _send_json(writer, [{"token_ids": [0], "sampling_params": self.defaults}])
        elif path == "/tokenize" and self.kind == "vllm":
            prompt = self.prompt_of(asked.document["messages"])
            is_open = asked.document.get("add_generation_prompt", True)
            await _send_json(writer, {"tokens": prompt if is_open else prompt[:-1]})
        elif path == "/server_info" and self.kind == "sglang":
            await _send_json(writer, {"sampling_defaults": "openai"})
        elif path in _FORMS:
            request = asked.document
            answer = _FORMS[path](self, request)
            if request.get("stream"):
                await self._send_events(writer, answer)
            else:
                await _send_json(writer, (await anext(answer))[0])
                await answer.aclose()  # type: ignore[attr-defined]
        else:
            await _send(writer, b'{"path": "%s"}' % asked.path.encode())

    async def _send_events(
        self, writer: asyncio.StreamWriter, events: AsyncIterator[tuple[Document, str]]
    ) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n")
        try:
            async for document, name in events:
                if document.get("breaks"):
                    writer.transport.abort()
                    raise ConnectionResetError("as it was told to")
                text = f"event: {name}\n" if name else ""
                content = f"{text}data: {compact_json(document)}\n\n".encode()
                writer.write(b"%x\r\n%s\r\n" % (len(content), content))
                await writer.drain()
            end = b"" if name else b"e\r\ndata: [DONE]\n\n\r\n"
            writer.write(end + b"0\r\n\r\n")
            await writer.drain()
        except ConnectionError:
            self.called_off += 1
            raise

    # Chat completions

    async def chat(self, request: Document) -> AsyncIterator[tuple[Document, str]]:
        given = (request.get("kv_transfer_params") or {}).get("prompt_token_ids")
        answer, sampled = self.sample(request, given or self.prompt_of(request["messages"]))
        head = {"id": f"{self.name}-{len(self.sampled)}", "created": 1, "model": request["model"]}
        if not request.get("stream"):
            whole = self._chat_whole(request, head, answer, sampled)
            for index in range(1, request.get("n", 1)):
                another = self.sample(request, sampled.prompt_ids)
                [other] = self._chat_whole(request, head, *another)["choices"]
                whole["choices"].append(other | {"index": index})
            yield whole, ""
            return
        head |= {"object": "chat.completion.chunk"}
        with_ids = bool(request.get("return_token_ids")) and self.kind == "vllm"
        first = {"role": "assistant", "content": ""}
        choice: Document = {"index": 0, "delta": first, "logprobs": None, "finish_reason": None}
        begin: Document = head | {"choices": [choice]}
        if self.kind == "vllm":
            begin["prompt_token_ids"] = sampled.prompt_ids if with_ids else None
        yield begin, ""
        steps = self._vllm_steps if self.kind != "sglang" else self._sglang_steps
        for at, choice in steps(request, answer, sampled):
            if answer.new_weights and at == answer.new_weights[0]:
                self.weights = answer.new_weights[1]
            if answer.breaks_after is not None and at >= answer.breaks_after:
                yield {"breaks": True}, ""
            await asyncio.sleep(answer.pace_s)
            yield head | {"choices": [choice]}, ""
        if self.kind == "sglang" and request.get("return_output_ids_in_sglext"):
            ids = {"input_ids": sampled.prompt_ids, "output_ids": [sampled.ids]}
            yield head | {"choices": [], "sglext": ids}, ""
        if (request.get("stream_options") or {}).get("include_usage"):
            yield head | {"choices": [], "usage": usage_of(sampled)}, ""

    def _vllm_steps(
        self, request: Document, answer: ScriptedAnswer, sampled: Sampled
    ) -> Iterator[tuple[int, Document]]:
        with_ids = bool(request.get("return_token_ids")) and self.kind == "vllm"
        with_logprobs = bool(request.get("logprobs"))
        spans = version_spans(self.weights, answer, sampled)
        for at, delta in enumerate(deltas_of(request, answer, sampled)):
            is_last = at == len(sampled.ids) - 1
            if not delta and not is_last and not with_ids and not with_logprobs:
                continue
            finish = ("tool_calls" if answer.calls else "stop") if is_last else None
            told = chat_logprobs(sampled, at, at + 1) if with_logprobs else None
            choice = {"index": 0, "delta": delta, "logprobs": told, "finish_reason": finish}
            if self.kind == "vllm":
                choice["token_ids"] = [sampled.ids[at]] if with_ids else None
            if is_last and request.get("return_weight_versions"):
                choice["weight_versions"] = spans
            yield at, choice

    def _sglang_steps(
        self, request: Document, answer: ScriptedAnswer, sampled: Sampled
    ) -> Iterator[tuple[int, Document]]:
        for at, delta in enumerate(deltas_of(request, answer, sampled)):
            told = chat_logprobs(sampled, at, at + 1) if request.get("logprobs") else None
            if delta or (told and self.has_parser):
                said = {"reasoning_content": None} | delta
                yield at, {"index": 0, "delta": said, "logprobs": told, "finish_reason": None}
        finish = "tool_calls" if answer.calls else "stop"
        empty = {"reasoning_content": None}
        choice = {"index": 0, "delta": empty, "logprobs": None, "finish_reason": finish}
        yield len(sampled.ids), choice | {"matched_stop": END}

    def _chat_whole(
        self, request: Document, head: Document, answer: ScriptedAnswer, sampled: Sampled
    ) -> Document:
        message: Document = {"role": "assistant", "content": answer.text or None}
        if answer.thinking:
            message["reasoning_content"] = answer.thinking
        if answer.calls:
            message["tool_calls"] = [
                {"id": f"t-{answers_before(request)}-{at}", "type": "function",
                 "function": {"name": name, "arguments": arguments}}
                for at, (name, arguments) in enumerate(answer.calls)
            ]  # fmt: skip
        told = chat_logprobs(sampled, 0, len(sampled.ids)) if request.get("logprobs") else None
        finish = "tool_calls" if answer.calls else "stop"
        choice = {"index": 0, "message": message, "logprobs": told, "finish_reason": finish}
        whole = head | {
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage_of(sampled),
        }
        with_ids = bool(request.get("return_token_ids"))
        if self.kind == "vllm":
            choice["token_ids"] = sampled.ids if with_ids else None
            whole["prompt_token_ids"] = sampled.prompt_ids if with_ids else None
            choice["routed_experts"] = npy_text(experts_of(sampled)) if answer.experts else None
            if request.get("return_weight_versions"):
                choice["weight_versions"] = version_spans(self.weights, answer, sampled)
        if self.kind == "sglang":
            end = len(sampled.ids)
            span = {"version": self.weights, "start": 0, "end": end}
            whole["metadata"] = {"weight_version": self.weights, "weight_versions": [span]}
            if request.get("return_output_ids_in_sglext"):
                ids = {"input_ids": sampled.prompt_ids, "output_ids": [sampled.ids]}
                whole["sglext"] = ids
        return whole

    # Completions

    async def completions(self, request: Document) -> AsyncIterator[tuple[Document, str]]:
        prompt = request["prompt"]
        ids = prompt if isinstance(prompt, list) else tokens_of(prompt)
        answer, sampled = self.sample(request, ids)
        head = {"id": f"cmpl-{len(self.sampled)}", "object": "text_completion", "model": "m"}
        with_ids, logprobs = bool(request.get("return_token_ids")), request.get("logprobs")
        pieces = [(0, len(sampled.ids))]
        if request.get("stream"):
            pieces = [(at, at + 1) for at in range(len(sampled.ids))]
        texts = [answer.text] if len(pieces) == 1 else texts_of(sampled)
        for (start, end), text in zip(pieces, texts, strict=True):
            told = None
            if logprobs is not None:
                told = {"token_logprobs": sampled.logprobs[start:end], "tokens": ["?"]}
            finish = "stop" if end == len(sampled.ids) else None
            choice = {"index": 0, "text": text, "logprobs": told, "finish_reason": finish}
            if with_ids or self.kind == "vllm":
                choice["token_ids"] = sampled.ids[start:end] if with_ids else None
                first = with_ids and not start
                choice["prompt_token_ids"] = sampled.prompt_ids if first else None
            whole = {"usage": usage_of(sampled)} if len(pieces) == 1 else {}
            yield head | {"choices": [choice]} | whole, ""

    # Messages

    async def messages(self, request: Document) -> AsyncIterator[tuple[Document, str]]:
        answer, sampled = self.sample(request, tokens_of(compact_json(request["messages"])))
        number, calls = len(self.sampled), list(enumerate(answer.calls))
        head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "m"}
        usage = {"input_tokens": len(sampled.prompt_ids), "output_tokens": len(sampled.ids)}
        reason = "tool_use" if calls else "end_turn"
        blocks: list[Document] = []
        if answer.thinking:
            blocks.append({"type": "thinking", "thinking": answer.thinking, "signature": "s"})
        blocks += [{"type": "text", "text": answer.text}] if answer.text else []
        blocks += [
            {"type": "tool_use", "id": f"t-{number}-{at}", "name": name, "input": json.loads(given)}
            for at, (name, given) in calls
        ]
        if not request.get("stream"):
            yield head | {"content": blocks, "stop_reason": reason, "usage": usage}, ""
            return
        begun: Document = head | {
            "content": [],
            "stop_reason": None,
            "usage": usage | {"output_tokens": 1},
        }
        yield {"type": "message_start", "message": begun}, "message_start"
        for at, block in enumerate(blocks):
            empty, deltas = block_events(block)
            kind = "content_block_start"
            yield {"type": kind, "index": at, "content_block": empty}, kind
            for delta in deltas:
                await asyncio.sleep(answer.pace_s)
                kind = "content_block_delta"
                yield {"type": kind, "index": at, "delta": delta}, kind
            yield {"type": "content_block_stop", "index": at}, "content_block_stop"
        end = {"stop_reason": reason, "stop_sequence": None}
        counted = {"output_tokens": len(sampled.ids)}
        yield {"type": "message_delta", "delta": end, "usage": counted}, "message_delta"
        yield {"type": "message_stop"}, "message_stop"

    # Responses

    async def responses(self, request: Document) -> AsyncIterator[tuple[Document, str]]:
        answer, sampled = self.sample(request, tokens_of(compact_json(request["input"])))
        number = len(self.sampled)
        output: list[Document] = []
        if answer.thinking:
            thought = [{"type": "reasoning_text", "text": answer.thinking}]
            output.append({"type": "reasoning", "id": f"rs_{number}", "content": thought})
        if answer.text:
            part: Document = {
                "type": "output_text",
                "text": answer.text,
                "annotations": [],
                "logprobs": None,
            }
            output.append({"type": "message", "id": f"m_{number}", "role": "assistant",
                           "status": "completed", "content": [part]})  # fmt: skip
        output += [
            {"type": "function_call", "id": f"fc_{number}_{at}", "call_id": f"t-{number}-{at}",
             "name": name, "arguments": given, "status": "completed"}
            for at, (name, given) in enumerate(answer.calls)
        ]  # fmt: skip
        usage = {"input_tokens": len(sampled.prompt_ids), "output_tokens": len(sampled.ids),
                 "total_tokens": len(sampled.prompt_ids) + len(sampled.ids)}  # fmt: skip
        whole: Document = {
            "id": f"resp_{number}", "object": "response", "created_at": 1, "model": "m",
            "status": "completed", "output": output, "usage": usage, "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [],
        }  # fmt: skip
        if self.kind == "vllm":
            told = bool(request.get("enable_response_messages"))
            for name, ids in (("input", sampled.prompt_ids), ("output", sampled.ids)):
                raw = [{"type": "raw_message_tokens", "message": "", "tokens": ids}]
                whole[f"{name}_messages"] = raw if told else None
        if not request.get("stream"):
            yield whole, ""
            return
        begun = whole | {"output": [], "status": "in_progress"}
        kind = "response.created"
        yield {"type": kind, "sequence_number": 0, "response": begun}, kind
        for at, item in enumerate(output):
            for delta in pieces_of(answer.text) if item["type"] == "message" else ():
                await asyncio.sleep(answer.pace_s)
                kind = "response.output_text.delta"
                yield {"type": kind, "delta": delta, "item_id": item["id"], "output_index": at,
                       "content_index": 0, "logprobs": [], "sequence_number": 1}, kind  # fmt: skip
            kind = "response.output_item.done"
            yield {"type": kind, "output_index": at, "item": item, "sequence_number": 2}, kind
        kind = "response.completed"
        yield {"type": kind, "response": whole, "sequence_number": 3}, kind


_FORMS: dict[str, Callable[[ScriptedEngine, Document], AsyncIterator[tuple[Document, str]]]] = {
    "/v1/chat/completions": ScriptedEngine.chat,
    "/v1/completions": ScriptedEngine.completions,
    "/v1/messages": ScriptedEngine.messages,
    "/v1/responses": ScriptedEngine.responses,
}


# HTTP


async def _request_of(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")[:-2]
    method, path, _ = first.split(" ")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    elif length := int(headers.get("content-length", "0")):
        body = await reader.readexactly(length)
    return Asked(method, path, headers, body)


async def _send_json(writer: asyncio.StreamWriter, document: object) -> None:
    await _send(writer, compact_json(document).encode())


async def _send(writer: asyncio.StreamWriter, body: bytes, status: int = 200) -> None:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


@contextmanager
def scripted_engine(kind: Kind, script: Script) -> Iterator[ScriptedEngine]:
    engine = ScriptedEngine(kind, script)
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def serve() -> asyncio.Server:
        server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, limit=64 * 1024 * 1024)
        engine.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    starting = loop.create_task(serve())
    starting.add_done_callback(lambda _: ready.set())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    ready.wait()
    try:
        yield engine
    finally:
        asyncio.run_coroutine_threadsafe(_stop(loop, starting.result(), engine), loop)
        thread.join()
        loop.close()


async def _stop(
    loop: asyncio.AbstractEventLoop, server: asyncio.Server, engine: ScriptedEngine
) -> None:
    server.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    engine.hang_up()
    await asyncio.sleep(0)  # connections close in the next round of the loop
    loop.stop()


async def _main(kind: Kind, pace: str) -> None:
    def script(request: Document) -> ScriptedAnswer:
        pace_s = float(request.get("pace_s", pace))
        return ScriptedAnswer("x" * int(request.get("max_tokens", 100)), pace_s=pace_s)

    engine = ScriptedEngine(kind, script)
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, backlog=2048)
    gc.disable()  # its lists of ids are long: a collection would be measured as the proxy's time
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))  # type: ignore[arg-type]
