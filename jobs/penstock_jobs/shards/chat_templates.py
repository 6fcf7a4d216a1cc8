"""Messages in OpenAI's form, and chat templates: text that jinja2 makes of them.

Templates are other people's programs and run in a sandbox, in a process of their own. The same
messages give the same text on any day: `strftime_now` exists only where a day is named, and
templates that need it otherwise fail.
"""

import atexit
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.errors import InvalidInput
from penstock_jobs.shards.compiled_template import TextDraft
from penstock_jobs.shards.conversation import ChatMessage
from penstock_jobs.shards.errors import TemplateLimitReached
from penstock_jobs.shards.template_process import (
    DraftRequest,
    Drafts,
    LimitReached,
    Refused,
    TemplateProcess,
)

#: Templates have some kilobytes.
TEMPLATE_CHARS_MAX = 1 << 18
_encoder = msgspec.json.Encoder()
_process = TemplateProcess()
atexit.register(_process.close)


def openai_message(message: ChatMessage) -> dict[str, Any]:
    """The keys always in this order. What the model thought is `reasoning_content`, as inference
    servers call it. Arguments are the text that was sent."""
    form: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        form["reasoning_content"] = message.reasoning
    if message.tool_calls:
        form["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    for name in ("tool_call_id", "name") if message.role == "tool" else ():
        if (value := getattr(message, name)) is not None:
            form[name] = value
    return form


def encode_message(message: ChatMessage, *, trained: bool) -> bytes:
    """What the model said and is not trained has the weight 0, as fine-tuning files have it."""
    form = openai_message(message)
    if message.role == "assistant" and not trained:
        form["weight"] = 0
    return _encoder.encode(form)


class ChatTemplate:
    def __init__(self, text: str, where: str, *, process: TemplateProcess = _process) -> None:
        """Raises InvalidInput, TemplateLimitReached."""
        if len(text) > TEMPLATE_CHARS_MAX:
            why = f"it has {len(text)} characters, over the limit of {TEMPLATE_CHARS_MAX}"
            raise InvalidInput(what=f"The chat template {where}", why=why)
        self._where = where
        self._process = process
        self._text = text
        self.sha256 = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()
        compiled = self._ask(DraftRequest(text), "it was compiled")
        if isinstance(compiled, Refused):
            raise InvalidInput(what=f"The chat template {where}", why=compiled.why)

    def drafts(
        self,
        messages: Sequence[ChatMessage],
        tools: Any,
        *,
        special: tuple[str, ...] = (),
        session: str = "",
    ) -> list[TextDraft] | Refused:
        """The texts of a context in which the model wrote something, up to the last such message.
        `special` are texts of special tokens. Raises TemplateLimitReached."""
        written = [at for at, message in enumerate(messages) if message.written]
        if not written:
            return []
        forms = [openai_message(message) for message in messages[: written[-1] + 1]]
        request = DraftRequest(
            self._text, messages=forms, written=written, tools=tools, special=special
        )
        answer = self._ask(request, f"it rendered the session {session}")
        return answer.drafts if isinstance(answer, Drafts) else answer

    def _ask(self, request: DraftRequest, work: str) -> Drafts | Refused:
        try:
            return self._process.ask(request)
        except LimitReached as error:
            facts = {"template": self._where, "work": work, "why": str(error)}
            raise TemplateLimitReached(**facts) from None
