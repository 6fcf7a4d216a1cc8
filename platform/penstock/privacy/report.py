"""The report of an erasure, signed with the lake's key, so that nobody can change it unseen."""

import hashlib
import hmac
import json
from typing import Any

from penstock.sealed_texts import SecretSeal
from penstock.settings import Settings
from penstock.signatures import SIGNATURE, SigningKey, without_signature

#: Reports of before documents had a public key were signed with the key of secrets.
_OLD_ALGORITHM = "hmac-sha256"
_OLD_PURPOSE = "erasure reports"


def is_genuine(settings: Settings, report: dict[str, Any]) -> bool:
    """Whether a report is as this lake wrote it. Raises SigningKeyUnfit, SecretKeyUnfit."""
    signature = report.get(SIGNATURE)
    if isinstance(signature, dict) and signature.get("algorithm") == _OLD_ALGORITHM:
        expected = _old_signature(SecretSeal.of(settings), without_signature(report))
        return hmac.compare_digest(str(signature.get("value")).encode(), expected.encode())
    return SigningKey.of(settings).public.has_signed(report)


def _old_signature(seal: SecretSeal, facts: dict[str, Any]) -> str:
    content = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hmac.digest(seal.key_for(_OLD_PURPOSE), content.encode(), hashlib.sha256).hex()
