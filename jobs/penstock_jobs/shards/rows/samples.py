"""Samples: rows of a shard from sessions, one for each branch, as columns.

The plan sets rewards, advantages and the split later.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.core.errors import InvalidInput, PenstockError
from penstock.shards.schema import ROUTE_ROWS, SHARD_ROWS
from penstock_jobs.shards.conversation.conversation import (
    ChatMessage,
    Conversation,
    openai_message,
    order_chain,
    sequence_end,
)
from penstock_jobs.shards.conversation.session_events import EventProblem
from penstock_jobs.shards.conversation.token_payload import (
    TOKENS_REDACTED,
    ExpectedTokens,
    Ids,
    is_digest,
)
from penstock_jobs.shards.hints.hint import Hint
from penstock_jobs.shards.recipe import Tokens
from penstock_jobs.shards.rows.engine_branches import Branch, Choice, engine_branches, find_choices
from penstock_jobs.shards.rows.hint_rows import HintedBranch, HintRefusal, HintRows
from penstock_jobs.shards.rows.preferences import Correction, PreferenceFinder
from penstock_jobs.shards.rows.rendered_branches import Renderer
from penstock_jobs.shards.rows.token_credit import RolloutRow, TokenRewards

RowRefusal = Literal[
    "no_engine_tokens",  # ids are required, but no call has any
    "redacted_tokens",  # ids are required, but redaction removed them
    "broken_tokens",  # all of its tokens are broken
    "nothing_written",  # the model wrote nothing new in it
    "template_refused",
    "too_long",
    "too_many_branches",
]
SampleRefusal = RowRefusal | HintRefusal
BRANCHES_MAX = 2**15 - 1
UNKNOWN = "unknown"
_BRANCH_FIELDS = ("prompt_len", "n_trainable", "temperature", "token_source")
_ROUTE_FIELDS = ("layers", "topk", "dtype", "start")


class TokenizerMismatch(PenstockError, exit_status=2):
    """The engine's tokens of {whose} do not fit the recipe's tokenizer: {why}. Nothing was built:
    a rendered session would lose the model's own tokens and log-probabilities. Set the engine's
    tokenizer.json in [tokens], or allow rendering by `other_tokenizer = "render"` there."""


class LeftOutBranches(NamedTuple):
    """A left-out session, or some of its branches."""

    session_id: str
    reason: SampleRefusal
    branches: int


class SampleRows:
    """Collects chains and makes their rows."""

    def __init__(
        self, tokens: Tokens, renderer: Renderer | None = None, hints: HintRows | None = None
    ) -> None:
        """Make rows of hints alone if there are `hints`.

        Raises InvalidInput without a renderer that `tokens` needs."""
        if renderer is None and tokens.source != "engine":
            why = f"source is {tokens.source!r}, and there is no tokenizer to render with"
            raise InvalidInput(what="The recipe's [tokens]", why=why)
        self.left_out: list[LeftOutBranches] = []
        self.problems: list[tuple[str, EventProblem]] = []
        #: Rendered sessions whose engine reported ids beyond the tokenizer's.
        self.strange: list[str] = []
        self._tokens = tokens
        self._renderer = renderer
        self._hints = hints
        self.expected = ExpectedTokens()
        if renderer is not None:
            self.expected = ExpectedTokens(renderer.tokenizer_sha256, renderer.vocabulary)
        #: What each row's branch chose, of those that are one choice of several.
        self.choices: list[Choice | None] = []
        self._rows: list[dict[str, Any]] = []
        self._branches: list[Branch] = []

    @property
    def hint_counts(self) -> Counter[str]:
        return Counter() if self._hints is None else self._hints.counts

    def add_chain(
        self,
        conversations: Iterable[Conversation],
        consents: Mapping[str, str],
        *,
        chosen: Collection[str] | None = None,
        rollout_id: str | None = None,
        credit: Callable[[Sequence[RolloutRow]], list[TokenRewards]] | None = None,
        corrections: Mapping[str, Sequence[Correction]] = MappingProxyType({}),
        origins: Mapping[str, Conversation] = MappingProxyType({}),
        hints: Mapping[str, Sequence[Hint]] = MappingProxyType({}),
    ) -> None:
        """Add all sessions of a chain. Only `chosen` ones get rows, by default all.

        `credit` computes token rewards. Raises TokenizerMismatch."""
        places = order_chain(conversations)
        if not places:
            return
        moments = [place.conversation.redacted_from_us for place in places]
        redacted_from_us = min((moment for moment in moments if moment is not None), default=None)
        starts = [place.conversation.start for place in places]
        rollout = rollout_id or places[0].conversation.session_id
        shared: dict[str, Any] = {
            "rollout_id": rollout,
            "group_id": next((start.group_id for start in starts if start.group_id), rollout),
            "task_id": next((start.task_id for start in starts if start.task_id), None),
        }
        before, last_sample = len(self._rows), dict[str, str]()
        written: list[Conversation] = []
        for conversation, chain_pos, parent in places:
            session = conversation.session_id
            if chosen is None or session in chosen:
                shared |= {"consent": consents.get(session, UNKNOWN), "chain_pos": chain_pos}
                # A continuing session has read what was redacted in earlier ones.
                conversation = replace(conversation, redacted_from_us=redacted_from_us)  # noqa: PLW2901
                sources = corrections.get(session, ()), origins.get(session)
                own = hints.get(session, ())
                self._add(conversation, shared, last_sample.get(parent or ""), sources, own)
                written += [conversation] * (len(self._rows) - before - len(written))
                last_sample |= {row["session_id"]: row["sample_id"] for row in self._rows[-1:]}
        rows = list(zip(self._rows[before:], written, self._branches[before:], strict=True))
        # A choice is a rollout by itself.
        if rows := [row for row in rows if not row[0]["is_last_step"]]:
            rows[-1][0]["is_last_step"] = True
            if credit is not None:
                for (row, *_), rewards in zip(rows, credit([r[1:] for r in rows]), strict=True):
                    row["token_rewards"] = rewards

    def table(self) -> pa.Table:
        """Make SHARD_ROWS in the order of addition."""
        columns: dict[str, Any] = {
            name: [getattr(branch, name) for branch in self._branches]
            for name in ("input_ids", "loss_mask", "rollout_logprobs")
        }
        records: dict[str, list[Any]] = {
            "policy_version_runs": [branch.version_runs for branch in self._branches],
            "temperature_runs": [branch.temperature_runs for branch in self._branches],
            "turn_spans": [branch.spans for branch in self._branches],
            "reward_components": [()] * len(self._branches),
            "token_rewards": [row.get("token_rewards") for row in self._rows],
        }
        columns |= {name: record_lists(name, values) for name, values in records.items()}
        for name in {*SHARD_ROWS.names} - columns.keys():
            columns[name] = [row.get(name) for row in self._rows]
        return pa.table(columns, schema=SHARD_ROWS)

    def routes(self, plain: pa.ChunkedArray | None = None) -> pa.Table | None:
        """Make ROUTE_ROWS, one for each sample; None without any experts.

        Rows of `plain` samples, which have none, come first."""
        if all(branch.routes is None for branch in self._branches):
            return None
        rows = [{"sample_id": sample} for sample in ([] if plain is None else plain.to_pylist())]
        for row, branch in zip(self._rows, self._branches, strict=True):
            rows.append({"sample_id": row["sample_id"]})
            if routes := branch.routes:
                rows[-1] |= {name: getattr(routes, name) for name in _ROUTE_FIELDS}
                rows[-1]["routed_experts"] = routes.data
        return pa.Table.from_pylist(rows, ROUTE_ROWS)

    def _add(
        self,
        conversation: Conversation,
        shared: dict[str, Any],
        parent: str | None,
        sources: tuple[Sequence[Correction], Conversation | None],
        hints: Sequence[Hint],
    ) -> None:
        session = conversation.session_id
        branches = self._branches_of(conversation)
        if isinstance(branches, str):
            self.left_out.append(LeftOutBranches(session, branches, 0))
            return
        fitting = self._fitting(conversation, branches, hints)
        if len(fitting) > BRANCHES_MAX:
            self.left_out.append(LeftOutBranches(session, "too_many_branches", len(fitting)))
            return
        trained = [call for _, branch, _ in fitting for call in branch.calls]
        preferences = PreferenceFinder(conversation, trained, *sources)
        texts = _RowTexts(conversation, preferences)
        choices, unread = find_choices(conversation, branches)
        sample_ids: dict[int, str] = {}
        for index, (number, branch, hint) in enumerate(fitting):
            # The nearest ancestor branch that has a row.
            origin = branch.parent
            while origin is not None and origin not in sample_ids:
                origin = branches[origin].parent
            sample_ids[number] = sample_id(session, index, branch.input_ids, branch.loss_mask)
            self._rows.append(
                {
                    **shared,
                    **self._branch_columns(conversation, branch),
                    "sample_id": sample_ids[number],
                    "session_id": session,
                    "branch_index": index,
                    "n_branches": len(fitting),
                    "trajectory_id": f"{session}#{index}" if index else session,
                    "parent_sample_id": parent if origin is None else sample_ids[origin],
                    "link_kind": branch.link if number else conversation.start.link,
                    **texts.of_branch(branch, unread[number]),
                    **hint,
                }
            )
            own = {conversation.calls[call].payload.call_id for call in branch.calls}
            choice = choices[number]
            choice = choice if choice and choice.call_id in own else None
            self.choices.append(choice)
            if choice:
                rollout = f"{shared['rollout_id']}  {choice.call_id}"
                self._rows[-1] |= {"rollout_id": rollout, "is_last_step": True}
            self._branches.append(branch)
        self.problems += [(session, problem) for problem in preferences.problems]

    def _branches_of(self, conversation: Conversation) -> list[Branch] | SampleRefusal:
        session, source = conversation.session_id, self._tokens.source
        self.problems += [(session, problem) for problem in conversation.problems]
        if source != "render":
            from_engine = engine_branches(conversation, self.expected)
            self.problems += [(session, problem) for problem in from_engine.problems]
            if any(branch.calls for branch in from_engine.branches):
                return from_engine.branches
            if source == "engine":
                if from_engine.problems:
                    kinds = {problem.kind for problem in from_engine.problems}
                    return "redacted_tokens" if kinds == {TOKENS_REDACTED} else "broken_tokens"
                written = any(
                    not call.flags & {"copied", "synthetic"} for call in conversation.calls
                )
                return "no_engine_tokens" if written else "nothing_written"
            self._check_tokenizer(session, {problem.kind for problem in from_engine.problems})
        assert self._renderer is not None  # checked by the constructor
        rendered = self._renderer.render(conversation)
        self.problems += [(session, problem) for problem in rendered.problems]
        if any(branch.calls for branch in rendered.branches):
            return rendered.branches
        return "template_refused" if rendered.problems else "nothing_written"

    def _check_tokenizer(self, session: str, problems: Collection[str]) -> None:
        if "ids_out_of_range" in problems:
            self.strange.append(session)
        if "other_tokenizer" in problems and self._tokens.other_tokenizer == "refuse":
            why = f"its digest is not {self.expected.tokenizer}"
            raise TokenizerMismatch(whose=f"the session {session}", why=why)

    def _fitting(
        self, conversation: Conversation, branches: list[Branch], hints: Sequence[Hint]
    ) -> list[HintedBranch]:
        """Return short enough branches with trained calls, or what hints are about of them."""
        session = conversation.session_id
        if self._hints is not None:
            rows, why = self._hints.of(conversation, branches, hints)
            if not rows:
                self.left_out.append(LeftOutBranches(session, why, 0))
            return rows
        limit = self._tokens.max_length
        short = [each for each in enumerate(branches) if len(each[1].input_ids) <= limit]
        if len(short) < len(branches):
            too_long = len(branches) - len(short)
            self.left_out.append(LeftOutBranches(session, "too_long", too_long))
        return [HintedBranch(*each, {}) for each in short if each[1].calls]

    def _branch_columns(self, conversation: Conversation, branch: Branch) -> dict[str, Any]:
        call = conversation.calls[branch.calls[-1]]
        end = sequence_end(conversation, branch.calls[-1])
        # Why some answer is not trained.
        mask_reason = "broken_calls" if branch.problems else None
        if any("copied" in other.flags for other in conversation.calls):
            mask_reason = "copied"
        elif branch.token_source == "renderer" and any(
            message.regeneration for message in conversation.messages
        ):
            mask_reason = "regenerated"
        names = tokenizer_names(branch.tokenizer or "", self.expected, self._tokens)
        versions = [version for _, version in branch.version_runs or ()]
        license = conversation.start.license
        return {
            **{name: getattr(branch, name) for name in _BRANCH_FIELDS},
            **end._asdict(),
            "is_last_step": False,
            "n_tokens": len(branch.input_ids),
            "min_policy_version": min(versions, default=None),
            "max_policy_version": max(versions, default=None),
            "routed_rows": branch.routes.rows if branch.routes else None,
            "mask_reason": mask_reason,
            "error_kind": next(iter(branch.problems), None),
            "loss_weight": 1.0,
            "tokenizer_sha256": names[0],
            "tokenizer_id": names[1],
            "template_sha256": branch.template,
            "model_name": call.payload.model,
            "checkpoint_id": call.event.checkpoint,
            "source_system": call.event.source,
            "license": license if isinstance(license, str) else None,
            "split": "train",
            "created_at": call.event.ts_us,
        }


def sample_id(session: str, branch: int, ids: Ids, mask: NDArray[np.uint8]) -> str:
    digest = hashlib.sha256(f"{session}\0{branch}\0".encode())
    digest.update(ids.astype("<i4", copy=False).data)
    digest.update(mask.data)
    return digest.hexdigest()


def tokenizer_names(named: str, expected: ExpectedTokens, tokens: Tokens) -> tuple[str, str | None]:
    """Return digest and name of a row's tokenizer; the recipe's, if an engine has no digest."""
    if is_digest(named):
        return named, tokens.tokenizer
    return expected.tokenizer or named or UNKNOWN, named or tokens.tokenizer


class _RowTexts:
    """Encodes messages of a session's rows. Shared messages are encoded once."""

    def __init__(self, conversation: Conversation, preferences: PreferenceFinder) -> None:
        self._conversation = conversation
        self._preferences = preferences
        self._encoded: dict[tuple[int, int, bool], bytes] = {}

    def of_branch(self, branch: Branch, unread: Collection[int]) -> dict[str, str | None]:
        """Encode columns: messages from the first call's context to the last trained one.

        A replaced try is only in rows that train it, and an `unread` choice in none."""
        contexts = [self._conversation.calls[number].context for number in branch.calls]
        trained, pieces = frozenset(branch.calls), []
        shown: list[ChatMessage] = []
        for context in range(min(contexts), max(contexts) + 1):
            messages = self._conversation.contexts[context]
            answered = [
                at
                for at, message in enumerate(messages, 1)
                if message.call is not None and message.call <= branch.calls[-1]
            ]
            is_unread = False
            for at, message in enumerate(messages[: max(answered, default=0)]):
                if message.role != "tool":
                    is_unread = message.call in unread
                again = message.regeneration
                if is_unread or (again and again.rejected not in trained):
                    continue
                key = (context, at, message.call in trained)
                if key not in self._encoded:
                    form = openai_message(message, trained=key[2])
                    self._encoded[key] = msgspec.json.encode(form)
                pieces.append(self._encoded[key])
                shown.append(message)
        return {
            "messages": (b"[" + b",".join(pieces) + b"]").decode(),
            "tools": self._conversation.tools,
            "preferences": self._preferences.of_row(shown, trained),
        }


def record_lists(name: str, values: Sequence[Sequence[tuple[Any, ...]] | None]) -> pa.ListArray:
    kind = SHARD_ROWS.field(name).type
    fields = list(kind.value_type)
    flat = [record for value in values if value is not None for record in value]
    columns = zip(*flat, strict=True) if flat else ((),) * len(fields)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    records = pa.StructArray.from_arrays(arrays, fields=fields)
    lengths = [0 if value is None else len(value) for value in values]
    offsets = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
    nulls = pa.array([value is None for value in values]) if None in values else None
    return pa.ListArray.from_arrays(offsets, records, type=kind, mask=nulls)
