"""The report of an erasure, signed with a key of the lake, so that nobody can change it unseen."""

import hashlib
import hmac
import json
from typing import Any

from penstock.sealed_texts import SecretSeal

_PURPOSE = "erasure reports"
ALGORITHM = "hmac-sha256"


def signed_report(seal: SecretSeal, facts: dict[str, Any]) -> dict[str, Any]:
    """Raises SecretKeyUnfit."""
    signature = {"algorithm": ALGORITHM, "value": _sign(seal, facts)}
    return facts | {"signature": signature}


def is_genuine(seal: SecretSeal, report: dict[str, Any]) -> bool:
    """Whether a report is as this lake wrote it. Raises SecretKeyUnfit."""
    facts = dict(report)
    signature = facts.pop("signature", None)
    if not isinstance(signature, dict) or signature.get("algorithm") != ALGORITHM:
        return False
    return hmac.compare_digest(str(signature.get("value")), _sign(seal, facts))


def _sign(seal: SecretSeal, facts: dict[str, Any]) -> str:
    content = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hmac.digest(seal.key_for(_PURPOSE), content.encode(), hashlib.sha256).hex()
