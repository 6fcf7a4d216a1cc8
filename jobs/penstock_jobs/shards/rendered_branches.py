"""Rendering: messages as the tokens that a chat template and a tokenizer make of them.

These are not the tokens that the model wrote. They serve sessions for which no engine gave tokens,
and are marked. The template's `generation` blocks say what the model wrote; without them, the text
is rendered up to each of its messages and behind it. A template that writes earlier messages in
another way later, such as one that drops thoughts, begins a new branch wherever it did so.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from penstock.errors import ExtraMissing, InvalidInput
from penstock.shards.schema import ROLES
from penstock_jobs.shards.chat_templates import (
    TEMPLATE_FAILURES,
    ChatTemplate,
    Extents,
    template_message,
)
from penstock_jobs.shards.conversation import ChatContext, ChatMessage, Conversation
from penstock_jobs.shards.engine_branches import Branch, TokenSpan
from penstock_jobs.shards.session_events import EventProblem
from penstock_jobs.shards.token_payload import Ids

if TYPE_CHECKING:
    from tokenizers import AddedToken, Tokenizer

DEFAULT_TEMPLATE = "chatml.jinja"
#: What is kept of what a template says when it fails.
_SAID_CHARS_MAX = 200
_PIECE_CHARS = 65_536
_NO_IDS = np.empty(0, dtype=np.int32)
_NO_EXTENTS = np.empty((0, 2), dtype=np.int32)


@dataclass(frozen=True, slots=True)
class RenderingDrift:
    """Where what is rendered cannot be what the model saw and wrote."""

    #: The template writes earlier messages in another way later, so that branches had to fork.
    per_turn: bool = False
    #: Tokens over a border, of what the model wrote and what it did not: they are not trained.
    border_tokens: int = 0


class RenderedBranches(NamedTuple):
    branches: list[Branch]
    problems: list[EventProblem]
    retok_drift: RenderingDrift


def open_renderer(
    tokenizer: Path,
    template: Path | None = None,
    *,
    special_tokens: Mapping[str, str] | None = None,
    day: date | None = None,
) -> "Renderer":
    """From a tokenizer.json, and a file with the template; without one by Penstock's own. Raises
    InvalidInput, which names the file, and ExtraMissing."""
    content = _read(tokenizer, "The tokenizer")
    if template is None:
        where = f"{DEFAULT_TEMPLATE} of Penstock"
        text = files("penstock_jobs.shards").joinpath(DEFAULT_TEMPLATE).read_text("utf-8")
    else:
        where = str(template)
        try:
            text = _read(template, "The chat template").decode()
        except UnicodeDecodeError as error:
            raise InvalidInput(what=f"The chat template {where}", why=str(error)) from error
    chat = ChatTemplate(text, where, special_tokens=special_tokens, day=day)
    return Renderer(chat, content, str(tokenizer))


class Renderer:
    """Made once a process: opening a tokenizer takes longer than rendering a session."""

    def __init__(self, template: ChatTemplate, tokenizer: bytes, where: str) -> None:
        """`tokenizer` is the content of a tokenizer.json. Raises InvalidInput, ExtraMissing."""
        self._template = template
        self._tokenizer = _open_tokenizer(tokenizer, where)
        self.template_sha256 = template.sha256
        self.tokenizer_sha256 = hashlib.sha256(tokenizer).hexdigest()
        #: Ids from this one on do not exist.
        self.vocabulary: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        added = list(self._tokenizer.get_added_tokens_decoder().values())
        self._special = tuple(token.content for token in added if token.special)
        self._borders = _borders(added)

    def render(self, conversation: Conversation) -> RenderedBranches:
        """Of the messages that the model wrote here for the first time. A context that the template
        refuses is a problem of its last message; the others are rendered."""
        tools = _tools(conversation)
        drafts: list[_BranchDraft] = []
        problems: list[EventProblem] = []
        for number, context in enumerate(conversation.contexts):
            try:
                drafts += self._drafts(number, context, tools)
            except TEMPLATE_FAILURES as error:
                last = context.messages[-1]
                said = " ".join(str(error).split())[:_SAID_CHARS_MAX]
                problems.append(
                    EventProblem("template_refused", last.seq, last.event_id, detail=said)
                )
        branches = [self._branch(drafts, index) for index in range(len(drafts))]
        per_turn = any(one.context == other.context for one, other in pairwise(drafts))
        border_tokens = sum(border for _, border in branches)
        return RenderedBranches(
            [one for one, _ in branches], problems, RenderingDrift(per_turn, border_tokens)
        )

    def encode(self, text: str) -> tuple[Ids, Ids, Ids]:
        """The ids, and where each begins and ends in the text."""
        ids, extents = [_NO_IDS], [_NO_EXTENTS]
        for start, end in self._pieces(text):
            encoding = self._tokenizer.encode(text[start:end], add_special_tokens=False)
            ids.append(np.array(encoding.ids, dtype=np.int32))
            found = np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2)
            extents.append(found + np.int32(start))
        all_extents = np.concatenate(extents)
        return np.concatenate(ids), all_extents[:, 0], all_extents[:, 1]

    def _pieces(self, text: str) -> Iterator[tuple[int, int]]:
        """Cut before special tokens, over which no other token reaches: what the library makes of
        a token takes hundreds of bytes, and has not to be there for all of a long text at once."""
        start = 0
        while len(text) - start > _PIECE_CHARS and self._borders is not None:
            border = self._borders.search(text, start + _PIECE_CHARS)
            if border is None:
                break
            yield start, border.start()
            start = border.start()
        yield start, len(text)

    def decode(self, ids: Ids) -> str:
        return self._tokenizer.decode(ids.tolist(), skip_special_tokens=False)

    def retok_drift(self, ids: Ids) -> int:
        """Tokens between the first and the last that are others when the text of these is
        tokenized again: what tokens of an engine would have lost, had they not been kept."""
        again, _, _ = self.encode(self.decode(ids))
        if np.array_equal(ids, again):
            return 0
        shorter = min(len(ids), len(again))
        head = _equal(ids[:shorter], again[:shorter])
        tail = _equal(ids[::-1][: shorter - head], again[::-1][: shorter - head])
        return max(len(ids), len(again)) - head - tail

    # Text

    def _drafts(self, number: int, context: ChatContext, tools: Any) -> "list[_BranchDraft]":
        written = [at for at, one in enumerate(context.messages) if one.written]
        if not written:
            return []
        forms = [template_message(one) for one in context.messages[: written[-1] + 1]]
        if self._template.marks_generation:
            text, extents = self._template.render_marked(forms, tools)
            if _tells_all(context.messages[: len(forms)], text, extents):
                return [_marked(number, context, text, extents)]
        return self._by_prefixes(number, context, forms, tools)

    def _by_prefixes(
        self, number: int, context: ChatContext, forms: list[dict[str, Any]], tools: Any
    ) -> "list[_BranchDraft]":
        drafts: list[_BranchDraft] = []
        for at, message in enumerate(context.messages[: len(forms)]):
            if not message.written:
                continue
            text, start = self._up_to(forms, at, tools)
            end = start + self._written(text[start:])
            if end == start:
                continue  # nothing that this template shows
            if not drafts or not text[:start].startswith(drafts[-1].text):
                drafts.append(_BranchDraft(number))
            drafts[-1].add(context.messages, at, text[:end], start)
        return drafts

    def _up_to(self, forms: list[dict[str, Any]], at: int, tools: Any) -> tuple[str, int]:
        """The text up to this message, itself included, and where the model began to write."""
        text = self._template.render(forms[: at + 1], tools)
        prompt = self._template.render(forms[:at], tools, prompt=True)
        if text.startswith(prompt):
            return text, len(prompt)
        # What it asks the model with is not what it shows of the answer, as where it opens a
        # thought that is dropped later: what both have was not written by the model.
        before = self._template.render(forms[:at], tools)
        if not text.startswith(before):
            raise ValueError("what stands before a message depends on the message")
        return text, _common(text, prompt)

    def _written(self, piece: str) -> int:
        """The model writes the token that ends its turn, and no white space behind it."""
        stripped = piece.rstrip()
        return len(stripped) if stripped.endswith(self._special) else len(piece)

    # Tokens

    def _branch(self, drafts: "Sequence[_BranchDraft]", index: int) -> tuple[Branch, int]:
        draft = drafts[index]
        ids, starts, ends = self.encode(draft.text)
        spans: list[TokenSpan] = []
        calls: list[int] = []
        border, known = 0, 0
        for piece in draft.pieces:
            first = max(int(np.searchsorted(starts, piece.start, "left")), known)
            last = max(int(np.searchsorted(ends, piece.end, "right")), first)
            border += int(first > known and ends[first - 1] > piece.start)
            border += int(last < len(ids) and starts[last] < piece.end)
            if first > known:
                spans.append(_read_span(known, first, piece))
            if last > first and piece.message.call is not None:
                turn, seq = piece.message.turn, piece.message.seq
                spans.append(TokenSpan(first, last, turn, _ASSISTANT, True, seq))
                calls.append(piece.message.call)
            known = last
        parent = index - 1 if index else None
        same = index and drafts[index - 1].context == draft.context
        branch = Branch(
            input_ids=ids[:known],
            spans=tuple(spans),
            calls=tuple(calls),
            parent=parent,
            link=None if parent is None else "fork" if same else "compaction",
            token_source="renderer",
            tokenizer=self.tokenizer_sha256,
            template=self.template_sha256,
        )
        return branch, border


_ASSISTANT = ROLES.index("assistant")


class _WrittenPiece(NamedTuple):
    """What the model wrote in one message, in characters."""

    start: int
    end: int
    message: ChatMessage
    #: The last message that it read.
    before: ChatMessage | None


@dataclass(slots=True)
class _BranchDraft:
    """A branch, as text."""

    context: int
    text: str = ""
    pieces: list[_WrittenPiece] = field(default_factory=list)

    def add(self, messages: Sequence[ChatMessage], at: int, text: str, start: int) -> None:
        self.text = text
        before = messages[at - 1] if at else None
        self.pieces.append(_WrittenPiece(start, len(text), messages[at], before))


def _tells_all(messages: Sequence[ChatMessage], text: str, extents: Extents) -> bool:
    """A block for each message of the model, with all that it thought: templates that drop that
    show it in the last messages alone."""
    said = [one for one in messages if one.role == "assistant"]
    if len(said) != len(extents):
        return False
    return all(
        (one.reasoning or "").strip() in text[start:end]
        for one, (start, end) in zip(said, extents, strict=True)
    )


def _marked(number: int, context: ChatContext, text: str, extents: Extents) -> _BranchDraft:
    draft = _BranchDraft(number)
    left = iter(extents)
    for at, message in enumerate(context.messages):
        if message.role != "assistant" or (extent := next(left, None)) is None:
            continue
        if message.written:
            draft.add(context.messages, at, text[: extent[1]], extent[0])
    return draft


def _read_span(start: int, end: int, piece: _WrittenPiece) -> TokenSpan:
    role = ROLES.index(piece.before.role if piece.before else "user")
    seq = piece.before.seq if piece.before else None
    return TokenSpan(start, end, piece.message.turn, role, False, seq)


def _tools(conversation: Conversation) -> Any:
    return None if conversation.tools is None else msgspec.json.decode(conversation.tools)


def _common(one: str, other: str) -> int:
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[:middle] == other[:middle] else (low, middle - 1)
    return low


def _equal(one: Ids, other: Ids) -> int:
    """How many are equal from the beginning."""
    unequal = np.flatnonzero(one != other)
    return int(unequal[0]) if len(unequal) else len(one)


def _borders(added: "Iterable[AddedToken]") -> re.Pattern[str] | None:
    """Special tokens that begin where their text does, longer ones before their beginnings."""
    texts = [
        token.content
        for token in added
        if token.special and not (token.lstrip or token.normalized or token.single_word)
    ]
    longest_first = sorted(texts, key=lambda text: (-len(text), text))
    return re.compile("|".join(map(re.escape, longest_first))) if texts else None


# Files


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidInput(what=f"{what} {path}", why=str(error)) from error


def _open_tokenizer(content: bytes, where: str) -> "Tokenizer":
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ExtraMissing(what="Rendering messages as tokens", extra="tokenizers") from error
    try:
        tokenizer = Tokenizer.from_buffer(content)
    except Exception as error:  # the library raises nothing narrower
        raise InvalidInput(what=f"The tokenizer {where}", why=str(error)) from error
    # Files come with what suits other uses: nothing is cut or filled up here, and the template
    # alone says which tokens stand at the ends.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.post_processor = None
    return tokenizer
