"""Rendering: messages as tokens, by a chat template and a tokenizer.

Rendered rows are marked; they serve sessions without an engine's tokens. A template that renders
earlier messages differently later, such as one that drops thoughts, begins a new branch there.
"""

import atexit
import hashlib
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from penstock.core.errors import ExtraMissing, InvalidInput, PenstockError
from penstock.core.toml_document import read_bounded
from penstock.shards.schema import ROLES
from penstock_jobs.shards.conversation.conversation import ChatMessage, Conversation, openai_message
from penstock_jobs.shards.conversation.session_events import EventProblem
from penstock_jobs.shards.conversation.token_payload import Ids
from penstock_jobs.shards.rows.engine_branches import ASSISTANT, Branch, SessionBranches, TokenSpan
from penstock_jobs.shards.rows.template_process import (
    DraftRequest,
    Drafts,
    LimitReached,
    Refused,
    TemplateProcess,
    TextDraft,
)

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TEMPLATE_CHARS_MAX = 1 << 18
_process = TemplateProcess()
atexit.register(_process.close)


class TemplateLimitReached(PenstockError, exit_status=2):
    """The chat template {template} was stopped while {work}: {why}. Nothing was built. Fix the
    template, or exclude the session in the recipe's query."""


class ChatTemplate:
    def __init__(self, text: str, where: str, *, process: TemplateProcess = _process) -> None:
        """Compile a template. Raises InvalidInput, TemplateLimitReached."""
        if len(text) > TEMPLATE_CHARS_MAX:
            why = f"it has {len(text)} characters, over the limit of {TEMPLATE_CHARS_MAX}"
            raise InvalidInput(what=f"The chat template {where}", why=why)
        self.where = where
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
        """Render a context up to the last message that the model wrote.

        `special` are texts of special tokens. Raises TemplateLimitReached."""
        written = [at for at, message in enumerate(messages) if message.written]
        if not written:
            return []
        shown = messages[: written[-1] + 1]
        forms = [msgspec.to_builtins(openai_message(message)) for message in shown]
        request = DraftRequest(
            self._text, messages=forms, written=written, tools=tools, special=special
        )
        answer = self._ask(request, f"it rendered the session {session}")
        return answer.drafts if isinstance(answer, Drafts) else answer

    def prompt(self, messages: Sequence[ChatMessage]) -> tuple[str, str]:
        """Render messages, and what opens the next answer.

        Raises InvalidInput, TemplateLimitReached."""
        forms = [msgspec.to_builtins(openai_message(message)) for message in messages]
        answer = self._ask(DraftRequest(self._text, messages=forms), "it rendered a prompt")
        if isinstance(answer, Refused):
            raise InvalidInput(what=f"The chat template {self.where}", why=answer.why)
        [draft] = answer.drafts
        [(_, start, _)] = draft.pieces
        return draft.text[:start], draft.text[start:]

    def _ask(self, request: DraftRequest, work: str) -> Drafts | Refused:
        try:
            return self._process.ask(request)
        except LimitReached as error:
            facts = {"template": self.where, "work": work, "why": str(error)}
            raise TemplateLimitReached(**facts) from None


DEFAULT_TEMPLATE = "chatml.jinja"
_PIECE_CHARS = 65_536
TOKENIZER_BYTES_MAX = 256 * 1024 * 1024


def open_renderer(tokenizer: Path, template: Path | None = None) -> "Renderer":
    """Open a tokenizer.json and a template, by default the shipped one.

    Raises InvalidInput with the file's name, and ExtraMissing."""
    where = str(template or f"{DEFAULT_TEMPLATE} of Penstock")
    content = read_bounded(tokenizer, TOKENIZER_BYTES_MAX, f"The tokenizer {tokenizer}")
    what, own = f"The chat template {where}", files("penstock_jobs.shards") / DEFAULT_TEMPLATE
    try:
        read = read_bounded(template, TOKENIZER_BYTES_MAX, what) if template else own.read_bytes()
        text = read.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(what=what, why=str(error)) from error
    return Renderer(ChatTemplate(text, where), content, str(tokenizer))


class Renderer:
    """Renders sessions. Make one per process: opening a tokenizer is slow."""

    def __init__(self, template: ChatTemplate, tokenizer: bytes, where: str) -> None:
        """`tokenizer` is the content of a tokenizer.json. Raises InvalidInput, ExtraMissing."""
        self.template = template
        self._tokenizer = open_tokenizer(tokenizer, where)
        self.template_sha256 = template.sha256
        self.tokenizer_sha256 = hashlib.sha256(tokenizer).hexdigest()
        #: The number of ids.
        self.vocabulary: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        added = self._tokenizer.get_added_tokens_decoder().values()
        special = [token for token in added if token.special]
        #: The texts of special tokens.
        self.special = tuple(token.content for token in special)
        # Special tokens that begin where their text does, longest first.
        loose = ("lstrip", "normalized", "single_word")
        exact = (each for each in special if not any(getattr(each, name) for name in loose))
        texts = sorted((token.content for token in exact), key=lambda text: (-len(text), text))
        self._borders = re.compile("|".join(map(re.escape, texts))) if texts else None

    def render(self, conversation: Conversation) -> SessionBranches:
        """Make branches of new text of the model.

        A refused context is a problem of its last message. Raises TemplateLimitReached."""
        tools = None if conversation.tools is None else msgspec.json.decode(conversation.tools)
        drafts: list[_RenderedContext] = []
        problems: list[EventProblem] = []
        for number, context in enumerate(conversation.contexts):
            # The model did not see replaced tries.
            messages = [own for own in context if own.regeneration is None]
            texts = self.template.drafts(
                messages, tools, special=self.special, session=conversation.session_id
            )
            if isinstance(texts, Refused):
                place = messages[-1].seq, messages[-1].event_id
                problems.append(EventProblem("template_refused", *place, detail=texts.why))
            else:
                drafts += [_RenderedContext(number, messages, text) for text in texts]
        branches = [self._branch(drafts, number) for number in range(len(drafts))]
        return SessionBranches(branches, problems)

    def encode(self, text: str) -> tuple[Ids, Ids, Ids]:
        """Return ids, and their starts and ends in the text."""
        ids, extents = [np.empty(0, np.int32)], [np.empty((0, 2), np.int32)]
        for start, end in self._pieces(text):
            encoding = self._tokenizer.encode(text[start:end], add_special_tokens=False)
            ids.append(np.array(encoding.ids, dtype=np.int32))
            offsets = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
            extents.append(offsets + np.int32(start))
        all_extents = np.concatenate(extents)
        return np.concatenate(ids), all_extents[:, 0], all_extents[:, 1]

    def _pieces(self, text: str) -> Iterator[tuple[int, int]]:
        """Cut before special tokens, which no token spans: the library needs much memory."""
        start = 0
        while len(text) - start > _PIECE_CHARS and self._borders is not None:
            border = self._borders.search(text, start + _PIECE_CHARS)
            if border is None:
                break
            yield start, (start := border.start())
        yield start, len(text)

    def _branch(self, drafts: "Sequence[_RenderedContext]", number: int) -> Branch:
        draft = drafts[number]
        ids, starts, ends = self.encode(draft.text.text)
        spans: list[TokenSpan] = []
        calls: list[int] = []
        known = 0
        for at, start, end in draft.text.pieces:
            message, before = draft.messages[at], draft.messages[at - 1] if at else None
            first = max(int(np.searchsorted(starts, start, "left")), known)
            last = max(int(np.searchsorted(ends, end, "right")), first)
            if first > known:
                role, seq = (before.role, before.seq) if before else ("user", None)
                read = TokenSpan(known, first, message.turn, ROLES.index(role), False, seq)
                spans.append(read)
            if last > first and message.call is not None:
                spans.append(TokenSpan(first, last, message.turn, ASSISTANT, True, message.seq))
                calls.append(message.call)
            known = last
        is_fork = number and drafts[number - 1].context == draft.context
        return Branch(
            input_ids=ids[:known],
            spans=tuple(spans),
            calls=tuple(calls),
            parent=number - 1 if number else None,
            link=None if not number else "fork" if is_fork else "compaction",
            token_source="renderer",
            tokenizer=self.tokenizer_sha256,
            template=self.template_sha256,
        )


class _RenderedContext(NamedTuple):
    """A branch as text, with the number of its context."""

    context: int
    messages: Sequence[ChatMessage]
    text: TextDraft


def open_tokenizer(content: bytes, where: str) -> "Tokenizer":
    """Open a tokenizer. Raises InvalidInput, ExtraMissing."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ExtraMissing(what="Rendering messages as tokens", extra="tokenizers") from error
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing narrower
        raise InvalidInput(what=f"The tokenizer {where}", why=str(error)) from error
    # No truncation, padding or added tokens: the template alone decides.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.post_processor = None
    return tokenizer
