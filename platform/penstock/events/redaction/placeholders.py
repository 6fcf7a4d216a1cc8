"""Placeholders: what stands where a secret or somebody's data stood.

The digest is keyed, so that equal secrets stay equal, and nobody who guesses one can check the
guess by hashing it."""

import hashlib
import re
from typing import Literal

import msgspec

Kind = Literal["secret", "personal"]

_DIGEST_BYTES = 8
#: How each placeholder begins, in bytes.
MARKS = (b"[SECRET:", b"[PERSONAL:")
PLACEHOLDER = re.compile(r"\[(?:SECRET|PERSONAL):[a-z0-9_]{1,40}:[0-9a-f]{16}\]")


def placeholder(kind: Kind, type_: str, value: str, key: bytes) -> str:
    content = value.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, digest_size=_DIGEST_BYTES, key=key).hexdigest()
    return f"[{kind.upper()}:{type_}:{digest}]"


#: What a model call's `tokens` say where ids were taken out.
REDACTED_KEY = "redacted"
#: They are positions of tokens, or decode to text.
_DROPPED = frozenset(
    {"prompt_ids", "completion_ids", "logprobs", "policy_version_runs", "routed_experts"}
)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encoder = msgspec.json.Encoder()


class _Session(msgspec.Struct):
    session_id: str


_session = msgspec.json.Decoder(_Session)


def has_token_ids(line: bytes) -> bool:
    return b'"prompt_ids"' in line or b'"completion_ids"' in line


def session_of(line: bytes) -> str | None:
    try:
        return _session.decode(line).session_id
    except (ValueError, RecursionError):
        return None


def without_token_ids(line: bytes) -> bytes:
    """A model call that keeps its tokenizer and template, and says that the rest was dropped.
    Another event is not changed. Raises ValueError."""
    event = _fields.decode(line)
    sent = bytes(event.get("payload", b"{}"))
    kept = payload_without_token_ids(sent)
    if kept == sent:
        return line
    event["payload"] = msgspec.Raw(kept)
    return _encoder.encode(event)


def payload_without_token_ids(payload: bytes) -> bytes:
    """The same of a payload. Raises ValueError."""
    fields = _fields.decode(payload)
    tokens = fields.get("tokens")
    if tokens is None or not bytes(tokens).startswith(b"{"):
        return payload
    kept = {name: raw for name, raw in _fields.decode(tokens).items() if name not in _DROPPED}
    kept[REDACTED_KEY] = msgspec.Raw(b"true")
    fields["tokens"] = msgspec.Raw(_encoder.encode(kept))
    return _encoder.encode(fields)
