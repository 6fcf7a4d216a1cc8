"""Endpoints of shards: the list, one shard, and samples of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from penstock.core.endpoint import (
    Caller,
    Endpoint,
    ListRequest,
    Page,
    Request,
    decode_number,
    page_of,
)
from penstock.core.room import Endpoints
from penstock.lake.lake import Lake
from penstock.registry.checkpoints.checkpoint import Learner
from penstock.shards.endpoints import ShardName
from penstock.shards.shard import RegisteredShard

_SAMPLES_MAX = 20
_HINT = "Only samples with a hint from this source, such as follow_up; from any is `any`."
#: Messages shown of a sample, from both ends, and characters of each text.
_MESSAGES_MAX, _TEXT_CHARS_MAX = 12, 4_000
#: Tokens shown of a sample, and those before the first trained one.
_TOKENS_MAX, _TOKENS_BEFORE = 400, 24


class SamplesRequest(Request):
    shard: ShardName
    cursor: str | None = None
    limit: Annotated[int, Meta(ge=1, le=_SAMPLES_MAX)] = 3
    hint: Annotated[str, Meta(description=_HINT)] | None = None


class MessageAnswer(msgspec.Struct):
    """A message. `trained` is null unless the model wrote it. Texts end after 4,000 characters."""

    role: str
    text: str
    reasoning: str | None = None
    calls: list[str] = []
    trained: bool | None = None


class TokensAnswer(msgspec.Struct):
    """Tokens from `start` on. `logprobs` is null if no engine reported any."""

    start: int
    ids: list[int]
    trained: list[bool]
    logprobs: list[float | None] | None


class SampleAnswer(msgspec.Struct):
    """A sample. `left_out` is how many messages in the middle are not shown."""

    sample_id: str
    session_id: str
    rollout_id: str
    group_id: str
    branch_index: int
    n_branches: int
    prompt_len: int
    n_tokens: int
    n_trainable: int
    min_policy_version: int | None
    max_policy_version: int | None
    advantage: float | None
    reward: float | None
    status: str
    mask_reason: str | None
    loss_weight: float
    token_source: str
    checkpoint_id: str | None
    split: str
    consent: str
    messages: list[MessageAnswer]
    left_out: int
    tokens: TokensAnswer
    #: What a teacher is told, from which source and session, and whether it holds no solution.
    hint: str | None
    hint_kind: str | None
    hint_session_id: str | None
    hint_answer_free: bool | None


_FACTS = [name for name in SampleAnswer.__struct_fields__ if name not in ("left_out", "tokens")]
_COLUMNS = [*_FACTS, "input_ids", "loss_mask", "rollout_logprobs"]


class SamplesAnswer(Page):
    shard: str
    samples: list[SampleAnswer]


def _show_samples(lake: Lake, caller: Caller, request: SamplesRequest) -> SamplesAnswer:
    from penstock.shards.registered_shards import readable_shard

    stored = readable_shard(lake, caller.tenant, request.shard)
    start = 0 if request.cursor is None else decode_number(request.cursor)
    rows = list(_rows(stored, start, request.limit + 1, request.hint))
    end = start + request.limit if len(rows) > request.limit else None
    samples = [_sample(row) for row in rows[: request.limit]]
    return SamplesAnswer(stored.id, samples, next=None if end is None else str(end))


def _rows(shard: Any, start: int, limit: int, hint: str | None) -> Iterator[dict[str, Any]]:
    """Read rows from the row groups that hold them. Raises ShardDamaged."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from penstock.shards.manifest import open_part

    for part in shard.manifest.files:
        if start >= part.rows and hint is None:
            start -= part.rows
            continue
        with open_part(shard.store, shard.path(part), part) as file:
            for number, count in enumerate(part.row_groups):
                chosen = pa.array(range(count))
                if hint is not None:
                    kinds = file.read_row_group(number, columns=["hint_kind"])["hint_kind"]
                    wanted = pc.is_valid(kinds) if hint == "any" else pc.equal(kinds, hint)
                    chosen = pc.indices_nonzero(wanted)
                if start >= (rows := len(chosen)):
                    start -= rows
                    continue
                group = file.read_row_group(number, columns=_COLUMNS)
                table = group.take(chosen.slice(start, limit))
                yield from table.to_pylist()
                start, limit = 0, limit - table.num_rows
                if not limit:
                    return


def _sample(row: dict[str, Any]) -> SampleAnswer:
    messages = msgspec.json.decode(row["messages"])
    half = _MESSAGES_MAX // 2
    left_out = max(len(messages) - _MESSAGES_MAX, 0)
    shown = [*messages[:half], *messages[-half:]] if left_out else messages
    trained = row["loss_mask"]
    first = next((place for place, flag in enumerate(trained) if flag), 0)
    start = max(first - _TOKENS_BEFORE, 0)
    span = slice(start, start + _TOKENS_MAX)
    logprobs = row["rollout_logprobs"]
    tokens = TokensAnswer(
        start,
        row["input_ids"][span],
        [bool(flag) for flag in trained[span]],
        None if logprobs is None else logprobs[span],
    )
    facts = {name: row[name] for name in _FACTS}
    facts |= {"messages": [_message(message) for message in shown]}
    return SampleAnswer(**facts, left_out=left_out, tokens=tokens)


def _message(message: dict[str, Any]) -> MessageAnswer:
    reasoning = message.get("reasoning_content")
    functions = [call["function"] for call in message.get("tool_calls", ())]
    return MessageAnswer(
        role=message["role"],
        text=_cut(message["content"]),
        reasoning=None if reasoning is None else _cut(reasoning),
        calls=[f"{each['name']} {_cut(each['arguments'])}" for each in functions],
        trained=message.get("weight") != 0 if message["role"] == "assistant" else None,
    )


def _cut(text: Any) -> str:
    whole = text if isinstance(text, str) else msgspec.json.encode(text).decode()
    if len(whole) <= _TEXT_CHARS_MAX:
        return whole
    return f"{whole[:_TEXT_CHARS_MAX]} [… {len(whole) - _TEXT_CHARS_MAX} characters]"


SHOW_SAMPLES = Endpoint(
    "GET /v1/shards/{shard}/samples",
    _show_samples,
    ("read", "train"),
    "Samples of a shard in readable form",
    refused={
        403: "Consent for some of its sessions was withdrawn; the settings refuse such shards.",
        404: "There is no such shard.",
        410: "Its files are gone.",
    },
    reads_rows=True,
)


@dataclass(frozen=True, kw_only=True)
class ShardAnswer(RegisteredShard):
    marked_sessions: int


class ShardsAnswer(Page):
    """Shards in the requested order."""

    shards: list[ShardAnswer]


class MarkAnswer(msgspec.Struct):
    """A session, and why the shard should no longer hold it, or was built without it."""

    session_id: str
    reason: str


class ShardDetails(msgspec.Struct):
    """A shard. `left_out` holds example sessions for each exclusion reason."""

    shard: str
    built_at: str
    marks: list[MarkAnswer]
    left_out: list[MarkAnswer]
    trained: list[Learner]
    manifest: dict[str, Any]
    gone: str | None = None
    gone_at: str | None = None
    gone_why: str | None = None


class ShardsRequest(ListRequest):
    order: Annotated[Literal["oldest", "newest"], Meta(description="Which comes first.")] = "oldest"


class ShardRequest(Request):
    shard: ShardName


def _list(lake: Lake, caller: Caller, request: ShardsRequest) -> ShardsAnswer:
    from penstock.shards.registered_shards import list_shards, marks_of
    from penstock_jobs.shards.registration import mark_consent

    mark_consent(lake)
    known = list_shards(lake.database, caller.tenant)
    if request.order == "newest":
        known.reverse()
    page, after = page_of(known, request, lambda shard: shard.id)
    shards = []
    for shard in page:
        marked = len(marks_of(lake.database, caller.tenant, shard.id))
        shards.append(ShardAnswer(**vars(shard), marked_sessions=marked))
    return ShardsAnswer(shards, next=after)


def _show(lake: Lake, caller: Caller, request: ShardRequest) -> ShardDetails:
    from penstock.registry.checkpoints.lineage import learners
    from penstock.shards.manifest import read_manifest
    from penstock.shards.registered_shards import find_shard, left_out_of, marks_of
    from penstock_jobs.shards.registration import mark_consent

    mark_consent(lake)
    shard = find_shard(lake.database, caller.tenant, request.shard)
    mine = (lake.database, caller.tenant, shard.id)
    manifest = read_manifest(lake.store, shard.folder, shard.id, or_kept=True)
    return ShardDetails(
        shard=shard.id,
        built_at=shard.created_at,
        marks=[MarkAnswer(*mark) for mark in marks_of(*mine)],
        left_out=[MarkAnswer(*each) for each in left_out_of(*mine)],
        trained=learners(*mine),
        manifest=msgspec.to_builtins(manifest),
        gone=shard.gone,
        gone_at=shard.gone_at,
        gone_why=shard.gone_why,
    )


LIST_SHARDS = Endpoint("GET /v1/shards", _list, ("read", "train"), "All shards", reads_rows=True)
SHOW_SHARD = Endpoint(
    "GET /v1/shards/{shard}",
    _show,
    ("read", "train"),
    "A shard: its manifest, its marks, and checkpoints trained on it",
    refused={404: "There is no such shard.", 410: "Its files and its manifest are gone."},
    reads_rows=True,
)

ENDPOINTS: Endpoints = [LIST_SHARDS, SHOW_SHARD, SHOW_SAMPLES]
