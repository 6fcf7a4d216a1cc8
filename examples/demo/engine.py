"""Serves a checkpoint of the demonstration by the protocol of OpenAI, as vLLM extends it.

python3 engine.py WEIGHTS.npz --name CHECKPOINT --port PORT

Answers hold token ids and log-probabilities where a request asks for them (`return_token_ids`,
`logprobs`). Requests that wait are sampled together.
"""

import argparse
import json
import queue
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gpt
import numpy as np

BATCH_MAX = 32
#: Requests that come within this time are sampled together.
GATHER_SECONDS = 0.005
ANSWER_TOKENS_MAX = 16


@dataclass
class Job:
    """A prompt that waits for its samples."""

    prompt: list[int]
    dice: np.random.Generator
    most: int
    done: threading.Event = field(default_factory=threading.Event)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Sampler:
    """Samples for all requests that wait, by one thread."""

    def __init__(self, model: gpt.Gpt) -> None:
        self._model = model
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def sample(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._jobs.put(job)
        for job in jobs:
            job.done.wait()

    def _run(self) -> None:
        while True:
            jobs = [self._jobs.get()]
            time.sleep(GATHER_SECONDS)
            while len(jobs) < BATCH_MAX and not self._jobs.empty():
                jobs.append(self._jobs.get())
            most = max(job.most for job in jobs)
            answers = self._model.sample(
                [job.prompt for job in jobs], [job.dice for job in jobs], most
            )
            for job, (tokens, logprobs) in zip(jobs, answers, strict=True):
                job.tokens, job.logprobs = tokens[: job.most], logprobs[: job.most]
                job.done.set()


class Engine(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, port: int, model: gpt.Gpt, name: str, version: str, log: Path | None
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.sampler, self.name, self.version = Sampler(model), name, version
        self._log = log.open("a") if log is not None else None
        self._writing = threading.Lock()

    def note(self, answer_id: str, job: Job) -> None:
        """Write down what was sampled, for whoever compares it with what a shard holds."""
        if self._log is not None:
            line = {"id": answer_id, "prompt": job.prompt} | {
                "tokens": job.tokens,
                "logprobs": job.logprobs,
            }
            with self._writing:
                self._log.write(json.dumps(line) + "\n")
                self._log.flush()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing about requests."""

    def do_GET(self) -> None:
        model = {"id": self.server.name, "object": "model", "owned_by": "vllm"}
        known = {
            "/health": {},
            "/v1/models": {"object": "list", "data": [model]},
            "/weight_info": {"weight_version": self.server.version},
        }
        self._answer(
            known.get(self.path, {"error": "not found"}), 200 if self.path in known else 404
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path != "/v1/chat/completions":
            self._answer({"error": {"message": "not found"}}, 404)
            return
        try:
            self._answer(self._complete(json.loads(body)))
        except (ValueError, KeyError, TypeError) as error:
            self._answer({"error": {"message": repr(error)}}, 400)

    def _complete(self, asked: dict[str, Any]) -> dict[str, Any]:
        if asked.get("temperature", 1.0) != 1.0:
            raise ValueError("this engine samples at temperature 1")
        most = min(asked.get("max_tokens") or ANSWER_TOKENS_MAX, ANSWER_TOKENS_MAX)
        prompt = gpt.prompt_of(asked["messages"], gpt.CONTEXT - ANSWER_TOKENS_MAX)
        seeds = np.random.SeedSequence(asked.get("seed")).spawn(asked.get("n") or 1)
        jobs = [Job(prompt, np.random.default_rng(seed), most) for seed in seeds]
        self.server.sampler.sample(jobs)
        answer_id = f"chatcmpl-{uuid.uuid4().hex}"
        for job in jobs:
            self.server.note(answer_id, job)
        told = sum(len(job.tokens) for job in jobs)
        return {
            "id": answer_id,
            "object": "chat.completion",
            "created": int(time.time()),
            "model": self.server.name,
            "prompt_token_ids": prompt if asked.get("return_token_ids") else None,
            "choices": [choice(at, job, asked) for at, job in enumerate(jobs)],
            "usage": {
                "prompt_tokens": len(prompt),
                "completion_tokens": told,
                "total_tokens": len(prompt) + told,
            },
        }

    def _answer(self, document: dict[str, Any], status: int = 200) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def choice(index: int, job: Job, asked: dict[str, Any]) -> dict[str, Any]:
    logprobs = [
        {"token": gpt.TOKENS[token], "logprob": logprob, "bytes": None, "top_logprobs": []}
        for token, logprob in zip(job.tokens, job.logprobs, strict=True)
    ]
    return {
        "index": index,
        "message": {"role": "assistant", "content": gpt.decode(job.tokens)},
        "logprobs": {"content": logprobs} if asked.get("logprobs") else None,
        "finish_reason": "stop" if gpt.END in job.tokens else "length",
        "token_ids": job.tokens if asked.get("return_token_ids") else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("weights", type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--version", default="", help="of the channel, as VERSION:CHECKPOINT")
    parser.add_argument("--log", type=Path, help="write each sample there")
    said = parser.parse_args()
    engine = Engine(said.port, gpt.Gpt.load(said.weights), said.name, said.version, said.log)
    print(json.dumps({"url": f"http://127.0.0.1:{engine.server_port}"}), flush=True)
    engine.serve_forever()


if __name__ == "__main__":
    main()
