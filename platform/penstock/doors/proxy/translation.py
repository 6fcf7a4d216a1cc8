"""Calls in a vendor's protocol, answered by an engine's chat completions.

An engine tells the tokens of its chat alone. Requests of Anthropic's Messages and of OpenAI's
Responses become a chat, and its answer goes back in the agent's protocol."""

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from penstock.core.errors import one_line
from penstock.doors.proxy.chat_completions import (
    AnswerNotKept,
    ChatDraft,
    Object,
    ProtocolAnswer,
    RequestRefused,
    RequestUnreadable,
    chat_answer,
)
from penstock.doors.proxy.dialogue import ModelApi
from penstock.doors.proxy.engine import EngineKind, chat_questions
from penstock.doors.proxy.messages_protocol import (
    MessagesAnswer,
    chat_of_messages,
    error_text,
    is_too_long,
    messages_error,
)
from penstock.doors.proxy.responses_protocol import (
    ResponsesAnswer,
    chat_of_responses,
    responses_error,
)

TRANSLATED = frozenset((ModelApi.MESSAGES, ModelApi.RESPONSES))
#: Bytes of the conversations that `previous_response_id` can continue.
_KEPT_BYTES_MAX = 64 * 1024 * 1024


class KeptResponses:
    """Conversations by the id of their last answer, as OpenAI's server keeps them.

    The oldest go where there is no room."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def before(self, answer_id: str | None) -> list[Object]:
        if answer_id is None:
            return []
        try:
            messages: list[Object] = msgspec.json.decode(self._kept[answer_id])
        except KeyError:
            raise AnswerNotKept(id=answer_id) from None
        return messages

    def keep(self, answer_id: str, messages: list[Object]) -> None:
        written = msgspec.json.encode(messages)
        self._bytes += len(written) - len(self._kept.pop(answer_id, b""))
        self._kept[answer_id] = written
        while self._bytes > _KEPT_BYTES_MAX:
            self._bytes -= len(self._kept.popitem(last=False)[1])


class Translation:
    def __init__(self, api: ModelApi, body: bytes, kept: KeptResponses) -> None:
        """Translate a request. Raises RequestRefused."""
        self._api, self._kept = api, kept
        self._said: list[Object] = []
        self.draft = ChatDraft()
        try:
            self._request = msgspec.json.decode(body)
            self.chat, self._answer = self._translated()
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            why = f"it lacks {error}" if isinstance(error, KeyError) else one_line(error)
            raise RequestUnreadable(api=api, why=why) from error

    def _translated(self) -> tuple[Object, ProtocolAnswer]:
        request = self._request
        if self._api is ModelApi.MESSAGES:
            return chat_of_messages(request), MessagesAnswer(request)
        before = self._kept.before(request.get("previous_response_id"))
        chat, names, self._said = chat_of_responses(request, before)
        return chat, ResponsesAnswer(request, names)

    def body(self, kind: EngineKind, prompt_ids: msgspec.Raw | None) -> bytes:
        """Write the chat. vLLM takes the ids of a prompt in the place of its messages."""
        given = {"kv_transfer_params": {"prompt_token_ids": prompt_ids}} if prompt_ids else {}
        return msgspec.json.encode(self.chat | chat_questions(kind) | given)

    def event(self, text: bytes) -> bytes:
        """Translate an event of a stream."""
        return b"".join(map(_event, self._taken(text)))

    def end(self) -> bytes:
        self._keep()
        return b"".join(map(_event, self._answer.end()))

    def whole(self, text: bytes) -> bytes:
        for _ in (*self._taken(text), *self._answer.end()):
            pass
        self._keep()
        return msgspec.json.encode(self._answer.whole())

    def failure(self, status: int, body: bytes) -> tuple[int, bytes]:
        """Translate what an engine answers in the place of an answer."""
        try:
            found = msgspec.json.decode(body)
            found = found.get("error", found)
        except (ValueError, AttributeError):
            found = body.decode("utf-8", "replace")
        return _failure(self._api, status, error_text(found))

    def _taken(self, text: bytes) -> Iterable[Object]:
        try:
            answer = chat_answer(text)
        except ValueError:  # as a draft counts it, an event that nobody can read
            return ()
        self.draft.take(answer)
        return self._answer.take(answer)

    def _keep(self) -> None:
        """Keep a conversation for `previous_response_id`, unless its client will not have it."""
        if isinstance(self._answer, ResponsesAnswer) and self._request.get("store") is not False:
            self._kept.keep(self._answer.id, [*self._said, self.draft.message()])


def refusal(api: ModelApi, error: RequestRefused) -> tuple[int, bytes]:
    """Say in the protocol why a request is not put to the engine."""
    return _failure(api, error.http_status, one_line(error), error.code, error.param)


def _failure(
    api: ModelApi, status: int, message: str, code: str | None = None, param: str | None = None
) -> tuple[int, bytes]:
    if api is ModelApi.MESSAGES:
        status = 529 if status == 503 else status
        return status, msgspec.json.encode(messages_error(status, message))
    if status == 400 and is_too_long(message):
        code = "context_length_exceeded"
    return status, msgspec.json.encode(responses_error(status, message, code, param))


def _event(event: Object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event))
