"""The engine of the demonstration, asked by HTTP."""

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.demo_model import demo_engine, demo_module

gpt: Any = demo_module("gpt")
ASKED = {"messages": [{"role": "user", "content": "7 + 8 = ?"}], "seed": 5}


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("engine") / "calls.jsonl"


@pytest.fixture(scope="module")
def engine(log: Path) -> Iterator[str]:
    with demo_engine("--name", "ckpt", "--version", "3:ckpt", "--log", str(log)) as url:
        yield url


def ask(url: str, path: str, document: object = None) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    try:
        body = None if document is None else json.dumps(document)
        connection.request("GET" if body is None else "POST", path, body)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def complete(url: str, **more: object) -> dict[str, Any]:
    status, document = ask(url, "/v1/chat/completions", ASKED | more)
    assert status == 200, document
    return document


def test_it_says_what_it_serves(engine: str) -> None:
    assert ask(engine, "/health")[0] == 200
    assert ask(engine, "/v1/models")[1]["data"][0]["id"] == "ckpt"
    assert ask(engine, "/weight_info")[1] == {"weight_version": "3:ckpt"}
    assert ask(engine, "/v2/models")[0] == 404


def test_an_answer_has_its_tokens_and_the_log_has_the_same(engine: str, log: Path) -> None:
    found = complete(engine, return_token_ids=True, logprobs=True)
    [choice] = found["choices"]
    logprobs = [each["logprob"] for each in choice["logprobs"]["content"]]
    assert choice["message"]["content"] == gpt.decode(choice["token_ids"])
    assert found["usage"]["completion_tokens"] == len(choice["token_ids"]) == len(logprobs)
    assert found["prompt_token_ids"] == gpt.prompt_of(ASKED["messages"], 100)
    noted = [json.loads(line) for line in log.read_text().splitlines()]
    assert {
        "id": found["id"],
        "prompt": found["prompt_token_ids"],
        "tokens": choice["token_ids"],
        "logprobs": logprobs,
    } in noted
    assert complete(engine)["choices"][0]["token_ids"] is None


def test_a_seed_gives_the_same_answer_beside_others(engine: str) -> None:
    alone = complete(engine, n=3, return_token_ids=True)
    with ThreadPoolExecutor(8) as pool:
        many = list(pool.map(lambda seed: complete(engine, n=3, return_token_ids=True, seed=seed),
                             [5, *range(100, 130)]))  # fmt: skip
    ids = [choice["token_ids"] for choice in alone["choices"]]
    assert ids == [choice["token_ids"] for choice in many[0]["choices"]]
    assert len({json.dumps(one["choices"]) for one in many}) > 5


@pytest.mark.parametrize(
    "wrong",
    [{"temperature": 0.5}, {"messages": [{"role": "user", "content": "1" * 400}]}, {"messages": 1}],
)
def test_what_it_cannot_do_is_refused(engine: str, wrong: dict[str, object]) -> None:
    status, document = ask(engine, "/v1/chat/completions", ASKED | wrong)
    assert (status, list(document)) == (400, ["error"])
