"""A session of real tokens, in which much goes wrong: what hints are made of."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from penstock_jobs.shards.rows.rendered_branches import ChatTemplate, Renderer
from tests.support.lakes import Event, make_event
from tests.support.tokenizer_files import PLAIN, tokenizer_json

RECIPE = """
name = "hints"
query = "all.sql"
[tokens]
source = "engine"
tokenizer = "tokenizer.json"
template = "plain.jinja"
[exclude]
consent = "not_denied"
[hints]
"""


@cache
def renderer() -> Renderer:
    return Renderer(ChatTemplate(PLAIN, "here"), tokenizer_json(), "made")


def text_of(ids: Any) -> str:
    return str(renderer()._tokenizer.decode(list(map(int, ids)), skip_special_tokens=False))


class Chat:
    """A session whose calls have the ids that an engine with the template would report."""

    def __init__(self, session: str = "s", user: str = "u-1", start: int = 0) -> None:
        self.session, self.user, self.number = session, user, start
        self.events: list[Event] = []
        self._ids: list[int] = []
        self._new = ""
        self._before = self._ids, self._new

    def add(self, kind: str, /, **payload: Any) -> "Chat":
        self.number += 1
        own = make_event(self.session, self.number, kind, payload=payload)
        self.events.append(own | {"user": self.user, "checkpoint": "ckpt-1", "project": "p"})
        return self

    def hears(self, text: str) -> "Chat":
        self._new += f"<|im_start|>user\n{text}<|im_end|>\n"
        return self.add("user_message", text=text)

    def says(
        self, text: str, tool: str = "", *, call_id: str = "", again: bool = False, **arguments: Any
    ) -> "Chat":
        """Answer, and call a tool with arguments if it has a name; or answer the prompt again."""
        if again:
            self._ids, self._new = self._before
        self._before = self._ids, self._new
        call_id = call_id or f"c{self.number + 1}"
        calls = [{"id": f"t-{call_id}", "name": tool, "arguments": arguments}] if tool else []
        prompt = [*self._ids, *encoded(self._new + "<|im_start|>assistant\n")]
        completion = encoded(f"{text}{arguments or ''}<|im_end|>")
        ids: dict[str, Any] = {"prompt_ids": prompt, "completion_ids": completion}
        ids |= {"logprobs": [-0.5] * len(completion), "policy_version_runs": [[0, 4]]}
        tokens = ids | {"tokenizer": renderer().tokenizer_sha256}
        self._ids, self._new = [*prompt, *completion], "\n"
        return self.add("model_call", call_id=call_id, text=text, tool_calls=calls, tokens=tokens)

    def reads(self, output: str, **more: Any) -> "Chat":
        """Get the result of the last call's tool."""
        self._new += f"<|im_start|>tool\n{output}<|im_end|>\n"
        call_id = f"t-c{self.number}"
        return self.add("tool_result", **{"call_id": call_id, "ok": True, "output": output} | more)

    def edits(self, path: str, before: str, after: str) -> "Chat":
        """Edit a file by a call."""
        self.says("I change it.", "edit_file", path=path, old=before, new=after)
        call_id = f"t-c{self.number}"
        self.add("edit", edit_id=call_id, call_id=call_id, path=path, before=before, after=after)
        self._new += "<|im_start|>tool\ndone<|im_end|>\n"
        return self.add("tool_result", call_id=call_id, ok=True, output="done")


def encoded(text: str) -> list[int]:
    ids: list[int] = np.asarray(renderer().encode(text)[0]).tolist()
    return ids


def faulty(session: str = "s", user: str = "u-1") -> Chat:
    """A tool that refuses, an edit that breaks tests, and a user who objects."""
    chat = Chat(session, user).hears("Please call the orders endpoint in src/client.py")
    chat.says("I look.", "read_file", path="src/nowhere.py")
    chat.reads("no such file: src/nowhere.py", ok=False, error_class="invalid_arguments")
    chat.edits("src/client.py", "get('/')\n", "get('/users')\n")
    chat.add("test_result", ok=False, failed=2, output="FAILED test_client.py::test_orders - 404")
    chat.says("It calls the endpoint now.")
    chat.hears("No, that is the wrong endpoint. Thanks for the quick work!")
    chat.edits("src/client.py", "get('/users')\n", "get('/orders')\n")
    return chat.says("It calls the orders endpoint now.").hears("Great, thank you.")


def write_recipe(folder: Path, hints: str = "", *, template: str = PLAIN, tokens: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_bytes(tokenizer_json())
    (folder / "plain.jinja").write_text(template)
    (folder / "all.sql").write_text("select session_id from sessions order by session_id")
    text = RECIPE.replace("[exclude]", f"{tokens}\n[exclude]")
    (folder / "hints.toml").write_text(text + hints)
    return folder / "hints.toml"
