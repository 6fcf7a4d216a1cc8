"""Placeholders, which replace secrets and personal data.

The digest is keyed: equal secrets stay equal, and nobody can check a guess by hashing it."""

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


#: The key in `tokens` of a model call whose ids were removed.
REDACTED_KEY = "redacted"
#: Fields that are positions of tokens, or decode to text.
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
    """Remove the token ids of a model call. Its tokenizer and template stay; other events do not
    change. Raises ValueError."""
    event = _fields.decode(line)
    sent = bytes(event.get("payload", b"{}"))
    kept = payload_without_token_ids(sent)
    if kept == sent:
        return line
    event["payload"] = msgspec.Raw(kept)
    return _encoder.encode(event)


def payload_without_token_ids(payload: bytes) -> bytes:
    """Remove the token ids from the payload of a model call. Raises ValueError."""
    fields = _fields.decode(payload)
    tokens = fields.get("tokens")
    if tokens is None or not bytes(tokens).startswith(b"{"):
        return payload
    kept = {name: raw for name, raw in _fields.decode(tokens).items() if name not in _DROPPED}
    kept[REDACTED_KEY] = msgspec.Raw(b"true")
    fields["tokens"] = msgspec.Raw(_encoder.encode(kept))
    return _encoder.encode(fields)
