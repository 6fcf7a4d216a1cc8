"""The rows of a shard that sessions become: a row for each branch, as columns.

Rewards, advantages and the split are not filled in here: the plan sets them.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.errors import InvalidInput
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS
from penstock_jobs.shards.chat_templates import encode_message, join_messages
from penstock_jobs.shards.conversation import (
    ChatMessage,
    Conversation,
    SequenceEnd,
    how_it_ended,
    order_chain,
)
from penstock_jobs.shards.engine_branches import Branch, cut, engine_branches
from penstock_jobs.shards.recipe import Source
from penstock_jobs.shards.rendered_branches import Renderer
from penstock_jobs.shards.session_events import EventProblem
from penstock_jobs.shards.token_payload import ExpectedTokens, is_digest

Record = Sequence[tuple[Any, ...]]
#: Columns that are made of the branches; the others are a value a row.
_OF_BRANCHES = (
    "input_ids", "loss_mask", "rollout_logprobs", "policy_version_runs", "turn_spans",
    "reward_components",
)  # fmt: skip


def sample_table(rows: Sequence[dict[str, Any]], branches: Sequence[Branch]) -> pa.Table:
    """A branch for each row. Fields that a row does not have are null."""
    made = {
        "input_ids": _numbers("input_ids", [one.input_ids for one in branches]),
        "loss_mask": _numbers("loss_mask", [one.loss_mask for one in branches]),
        "rollout_logprobs": _numbers(
            "rollout_logprobs", [one.rollout_logprobs for one in branches]
        ),
        "policy_version_runs": _records(
            "policy_version_runs", [one.version_runs for one in branches]
        ),
        "turn_spans": _records("turn_spans", [one.spans for one in branches]),
        "reward_components": _records("reward_components", [()] * len(branches)),
    }
    arrays = [
        made[field.name]
        if field.name in _OF_BRANCHES
        else pa.array([row.get(field.name) for row in rows], field.type)
        for field in SHARD_ROWS
    ]
    return pa.Table.from_arrays(arrays, schema=SHARD_ROWS)


def route_table(ids: Sequence[str], branches: Sequence[Branch]) -> pa.Table:
    """A row for each sample, whether it has experts or not."""
    routes = [one.routes for one in branches]
    columns = {
        "sample_id": list(ids),
        "routed_experts": [one and one.data for one in routes],
        "layers": [one and one.layers for one in routes],
        "topk": [one and one.topk for one in routes],
        "dtype": [one and one.dtype for one in routes],
        "start": [None if one is None else one.start for one in routes],
    }
    arrays = [pa.array(columns[field.name], field.type) for field in ROUTE_ROWS]
    return pa.Table.from_arrays(arrays, schema=ROUTE_ROWS)


def _numbers(name: str, values: Sequence[NDArray[Any] | None]) -> pa.LargeListArray:
    kind = SHARD_ROWS.field(name).type
    present = [value for value in values if value is not None]
    flat = np.concatenate(present) if present else np.empty(0, kind.value_type.to_pandas_dtype())
    return pa.LargeListArray.from_arrays(
        _offsets(values, np.int64), pa.array(flat, kind.value_type), type=kind, mask=_nulls(values)
    )


def _records(name: str, values: Sequence[Record | None]) -> pa.ListArray:
    kind = SHARD_ROWS.field(name).type
    fields = list(kind.value_type)
    flat = [record for value in values if value is not None for record in value]
    columns = zip(*flat, strict=True) if flat else ((),) * len(fields)
    arrays = [pa.array(column, one.type) for column, one in zip(columns, fields, strict=True)]
    records = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.ListArray.from_arrays(
        _offsets(values, np.int32), records, type=kind, mask=_nulls(values)
    )


def _offsets(values: Sequence[Any], kind: type[np.signedinteger[Any]]) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    return pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(kind))


def _nulls(values: Sequence[Any]) -> pa.Array | None:
    found = [value is None for value in values]
    return pa.array(found) if any(found) else None


TooLong = Literal["drop", "cut"]
SampleRefusal = Literal[
    "no_engine_tokens",  # ids are demanded, and no call has any
    "broken_tokens",  # all that it has are broken
    "nothing_written",  # nothing in it was written by the model here for the first time
    "template_refused",
    "too_long",
    "too_many_branches",
]
BRANCHES_MAX = 2**15 - 1
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """`prefer-engine` renders what has no ids that are whole; a session of which some calls have
    them is of those."""

    source: Source
    #: In tokens. Longer branches are dropped, or cut behind the last call that fits: at the left
    #: nothing can be cut, since the model wrote what follows having read it.
    max_length: int | None = None
    too_long: TooLong = "drop"
    #: The digest that the tokens of an engine must not contradict; that of the renderer, else.
    tokenizer: str | None = None
    #: Without them the column holds empty lists.
    messages: bool = True


class LeftOutBranches(NamedTuple):
    """A session, or some branches of it."""

    session_id: str
    reason: SampleRefusal
    branches: int


class SampleRows:
    """Takes in chains, and gives the rows that they become."""

    def __init__(self, options: SampleOptions, renderer: Renderer | None = None) -> None:
        """Raises InvalidInput."""
        if renderer is None and options.source != "engine":
            why = f"source is {options.source!r}, and there is no tokenizer to render with"
            raise InvalidInput(what="The recipe's [tokens]", why=why)
        self.left_out: list[LeftOutBranches] = []
        #: By session: what was wrong with events, though the session may have rows.
        self.problems: list[tuple[str, EventProblem]] = []
        #: `per_turn`, sessions whose branches the template made fork; `border_tokens`.
        self.retok_drift: Counter[str] = Counter()
        self._options = options
        self._renderer = renderer
        digest = options.tokenizer or (renderer.tokenizer_sha256 if renderer else None)
        self._expected = ExpectedTokens(digest, renderer.vocabulary if renderer else None)
        self._rows: list[dict[str, Any]] = []
        self._branches: list[Branch] = []

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def tokens(self) -> int:
        return sum(len(one.input_ids) for one in self._branches)

    def add_chain(
        self,
        conversations: Iterable[Conversation],
        consents: Mapping[str, str],
        *,
        chosen: Collection[str] | None = None,
        rollout_id: str | None = None,
    ) -> None:
        """All sessions of a chain, or one that is in none. Rows come of those that are `chosen`,
        else of all. The rollout is named by the session that the chain began with, where nothing
        else is said; so is the group, where no session of the chain names one."""
        places = order_chain(conversations)
        if not places:
            return
        sessions = [place.conversation for place in places]
        rollout = rollout_id or sessions[0].session_id
        shared: dict[str, Any] = {
            "rollout_id": rollout,
            "group_id": next((one.group_id for one in sessions if one.group_id), rollout),
            "task_id": next((one.task_id for one in sessions if one.task_id), None),
        }
        before, last_of = len(self._rows), dict[str, str]()
        for conversation, chain_pos, parent in places:
            session = conversation.session_id
            if chosen is not None and session not in chosen:
                continue
            shared["consent"] = consents.get(session, _UNKNOWN)
            shared["chain_pos"] = chain_pos
            self._add(conversation, shared, last_of.get(parent or ""))
            if len(self._rows) > before and self._rows[-1]["session_id"] == session:
                last_of[session] = self._rows[-1]["sample_id"]
        if len(self._rows) > before:
            self._rows[-1]["is_last_step"] = True

    def table(self) -> pa.Table:
        """In the columns of SHARD_ROWS, in the order in which they came."""
        return sample_table(self._rows, self._branches)

    def routes(self) -> pa.Table | None:
        """In the columns of ROUTE_ROWS, a row for each sample; None if no row has experts."""
        if all(one.routes is None for one in self._branches):
            return None
        return route_table([row["sample_id"] for row in self._rows], self._branches)

    # Sessions

    def _add(self, conversation: Conversation, shared: dict[str, Any], parent: str | None) -> None:
        session = conversation.session_id
        found = self._branches_of(conversation)
        if isinstance(found, str):
            self.left_out.append(LeftOutBranches(session, found, 0))
            return
        branches = self._fitting(session, found)
        if len(branches) > BRANCHES_MAX:
            self.left_out.append(LeftOutBranches(session, "too_many_branches", len(branches)))
            return
        texts = _EncodedMessages(conversation)
        ids: dict[int, str] = {}
        for index, (number, branch) in enumerate(branches):
            own = _nearest(found, number, ids)
            row = {
                **shared,
                **self._row(conversation, branch),
                "session_id": session,
                "branch_index": index,
                "n_branches": len(branches),
                "trajectory_id": f"{session}#{index}" if index else session,
                "parent_sample_id": ids[own] if own is not None else parent,
                "link_kind": branch.link if number else conversation.link,
                "messages": texts.of(branch) if self._options.messages else "[]",
                "tools": conversation.tools if self._options.messages else None,
            }
            row["sample_id"] = ids[number] = _sample_id(session, index, branch)
            self._rows.append(row)
            self._branches.append(branch)

    def _branches_of(self, conversation: Conversation) -> list[Branch] | SampleRefusal:
        session, source = conversation.session_id, self._options.source
        self.problems += [(session, one) for one in conversation.problems]
        if source != "render":
            branched = engine_branches(conversation, self._expected)
            self.problems += [(session, one) for one in branched.problems]
            trained = [one for one in branched.branches if one.calls]
            if trained:
                return branched.branches
            if source == "engine":
                return _why_none(conversation, broken=bool(branched.problems))
        return self._rendered(conversation)

    def _rendered(self, conversation: Conversation) -> list[Branch] | SampleRefusal:
        assert self._renderer is not None  # the constructor saw to it
        rendered = self._renderer.render(conversation)
        self.problems += [(conversation.session_id, one) for one in rendered.problems]
        self.retok_drift["per_turn"] += rendered.retok_drift.per_turn
        self.retok_drift["border_tokens"] += rendered.retok_drift.border_tokens
        if any(one.calls for one in rendered.branches):
            return rendered.branches
        return "template_refused" if rendered.problems else "nothing_written"

    def _fitting(self, session: str, branches: list[Branch]) -> list[tuple[int, Branch]]:
        """Those that something is trained of, with their numbers among all."""
        found: list[tuple[int, Branch]] = []
        too_long = 0
        limit = self._options.max_length
        for number, branch in enumerate(branches):
            kept: Branch | None = branch
            if limit is not None and len(branch.input_ids) > limit:
                kept = cut(branch, limit) if self._options.too_long == "cut" else None
                too_long += kept is None
            if kept is not None and kept.calls:
                found.append((number, kept))
        if too_long:
            self.left_out.append(LeftOutBranches(session, "too_long", too_long))
        return found

    def _row(self, conversation: Conversation, branch: Branch) -> dict[str, Any]:
        call = conversation.calls[branch.calls[-1]]
        ended = how_it_ended(conversation, branch.calls[-1])
        if branch.was_cut:
            ended = SequenceEnd("truncated", "max_length")
        versions = [version for _, version in branch.version_runs or ()]
        return {
            "is_last_step": False,
            "prompt_len": branch.prompt_len,
            "n_tokens": len(branch.input_ids),
            "n_trainable": branch.n_trainable,
            "min_policy_version": min(versions, default=None),
            "max_policy_version": max(versions, default=None),
            "temperature": branch.temperature,
            "routed_rows": branch.routes.rows if branch.routes else None,
            "status": ended.status,
            "stop_reason": ended.stop_reason,
            "mask_reason": _why_masked(conversation, branch),
            "error_kind": next(iter(branch.problems), None),
            "loss_weight": 1.0,
            "token_source": branch.token_source,
            "tokenizer_sha256": self._tokenizer_of(branch),
            "template_sha256": branch.template,
            "model_name": call.model,
            "checkpoint_id": call.checkpoint,
            "source_system": call.source,
            "split": "train",
            "created_at": call.ts_us,
        }

    def _tokenizer_of(self, branch: Branch) -> str:
        """An engine that names none, or names it otherwise, is taken at the recipe's word."""
        named = branch.tokenizer
        if named is not None and is_digest(named):
            return named
        return self._expected.tokenizer or named or _UNKNOWN


class _EncodedMessages:
    """The messages of a conversation as JSON, each written once."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._known: dict[tuple[int, int, bool], bytes] = {}

    def of(self, branch: Branch) -> str:
        """Up to the last that is trained, from where the context of the first began."""
        calls = self._conversation.calls
        contexts = [calls[number].context for number in branch.calls]
        trained = frozenset(branch.calls)
        encoded: list[bytes] = []
        for context in range(min(contexts), max(contexts) + 1):
            messages = self._conversation.contexts[context].messages
            said = [at for at, one in enumerate(messages) if _is_by(one, branch.calls[-1])]
            for at in range(said[-1] + 1 if said else 0):
                is_trained = messages[at].call in trained
                encoded.append(self._encoded(context, at, messages[at], is_trained))
        return join_messages(encoded)

    def _encoded(self, context: int, at: int, message: ChatMessage, trained: bool) -> bytes:
        key = (context, at, trained)
        if key not in self._known:
            self._known[key] = encode_message(message, trained=trained)
        return self._known[key]


def _is_by(message: ChatMessage, last_call: int) -> bool:
    return message.call is not None and message.call <= last_call


def _nearest(branches: list[Branch], number: int, ids: Mapping[int, str]) -> int | None:
    """The branch that it forked from, or the next before that of which there is a row."""
    parent = branches[number].parent
    while parent is not None and parent not in ids:
        parent = branches[parent].parent
    return parent


def _why_none(conversation: Conversation, *, broken: bool) -> SampleRefusal:
    if broken:
        return "broken_tokens"
    written = any(not call.flags & {"copied", "synthetic"} for call in conversation.calls)
    return "no_engine_tokens" if written else "nothing_written"


def _why_masked(conversation: Conversation, branch: Branch) -> str | None:
    """Why something that a model said is not trained here or anywhere."""
    if branch.was_cut:
        return "max_length"
    if any("copied" in call.flags for call in conversation.calls):
        return "copied"
    return "broken_calls" if branch.problems else None


def _sample_id(session: str, index: int, branch: Branch) -> str:
    digest = hashlib.sha256(f"{session}\0{index}\0".encode())
    digest.update(branch.input_ids.astype("<i4", copy=False).tobytes())
    digest.update(branch.loss_mask.tobytes())
    return digest.hexdigest()
