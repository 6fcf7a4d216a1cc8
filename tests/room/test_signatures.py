"""The lake's signing key, and what is signed with it."""

import json
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from penstock.core.errors import InvalidInput
from penstock.core.lake_keys import (
    PublicKey,
    PublicKeyUnfit,
    SigningKey,
    SigningKeyUnfit,
    signed_document,
)
from penstock.core.settings import Settings

DOCUMENT = {"b": [1, True, None, "Grüße"], "a": {"z": "\n\x7f", "y": {}}}


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return SigningKey.of(Settings(data=tmp_path / "data"))


def test_the_key_is_made_once_for_its_owner_alone(key: SigningKey) -> None:
    public = key.public
    assert stat.S_IMODE(key.file.stat().st_mode) == 0o600
    assert SigningKey(key.file).public == public
    assert [path.name for path in key.file.parent.iterdir()] == ["signing.key"]


def test_what_was_signed_is_known_by_the_public_key_alone(key: SigningKey) -> None:
    signed = key.sign(DOCUMENT)
    public = PublicKey.of_pem(key.public.pem.encode(), "lake.pem")
    assert public.has_signed(json.loads(json.dumps(signed, indent=3)))
    assert key.sign(signed) == signed


def test_a_change_is_found(key: SigningKey) -> None:
    signed = key.sign(DOCUMENT)
    nothing = {"algorithm": "ed25519", "key": "", "value": ""}
    changes: list[dict[str, object]] = [{"b": [1, True, None, "Grüsse"]}, {"c": 1}]
    changes += [{"signature": None}, {"signature": nothing}]
    changes += [
        {"signature": signed["signature"] | change}
        for change in (
            *({"algorithm": "none"}, {"key": "0" * 16}, {"more": "x"}),
            *({"value": value} for value in ("AAAA", "no base64", 7)),
        )
    ]
    for change in changes:
        assert not key.public.has_signed(signed | change), change


def test_a_key_that_the_operator_names_is_not_made(tmp_path: Path) -> None:
    named = SigningKey.of(Settings(data=tmp_path, signing_key_file=str(tmp_path / "hsm.key")))
    with pytest.raises(SigningKeyUnfit, match="there is no such file"):
        _ = named.public
    (tmp_path / "hsm.key").write_text("no key")
    with pytest.raises(SigningKeyUnfit, match="does not hold a key"):
        _ = named.public


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_keys_of_openssl_are_taken_and_others_refused(tmp_path: Path) -> None:
    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=tmp_path)

    openssl("genpkey", "-algorithm", "ed25519", "-out", "named.key")
    assert SigningKey(tmp_path / "named.key").public.has_signed(
        SigningKey(tmp_path / "named.key").sign(DOCUMENT)
    )
    openssl("genpkey", "-algorithm", "x25519", "-out", "other.key")
    with pytest.raises(SigningKeyUnfit, match="no key of Ed25519"):
        _ = SigningKey(tmp_path / "other.key").public
    openssl("pkey", "-in", "other.key", "-pubout", "-out", "other.pem")
    with pytest.raises(PublicKeyUnfit, match="another kind"):
        PublicKey.of_pem((tmp_path / "other.pem").read_bytes(), "other.pem")


@pytest.mark.parametrize("text", ["{", '{"a":1,"a":2}', "[1]", "[" * 100_000])
def test_what_cannot_be_a_signed_document_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        signed_document(text.encode(), "proof.json")
