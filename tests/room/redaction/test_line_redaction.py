"""Redaction of lines: what is masked in whatever encoding, what stays, and what is refused."""

import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.events.redaction import Mode, SourceRule, rules
from penstock.events.redaction.line_redaction import LineRedactor
from penstock.events.redaction.placeholders import PLACEHOLDER, REDACTED_KEY
from penstock.events.redaction.rules import (
    TOKEN_IDS,
    RedactionRulesInvalid,
    built_in_rules,
    rule_book,
    screen_of,
)
from tests.support import planted_secrets
from tests.support.planted_secrets import ENCODINGS, SHAPED

LIMIT = 1 << 20


@cache
def redactor(
    secrets: Mode = "mask", personal: Mode = "mask", own: Path | None = None, key: bytes = b"k"
) -> LineRedactor:
    return LineRedactor(rule_book(secrets, personal, own), lambda: key)


def event(payload: dict[str, Any], type_: str = "x_test", session: str = "s") -> bytes:
    fields = {"session_id": session, "ts": "2026-11-21T10:00:00Z", "type": type_}
    return json.dumps(fields | {"payload": payload}).encode()


def text_after(text: str, of: LineRedactor) -> str:
    redacted = of.redact([event({"text": text})], "default", LIMIT)
    assert redacted.refused == []
    after: str = json.loads(redacted.lines[0])["payload"]["text"]
    return after


def places(value: str) -> list[dict[str, Any]]:
    """A payload for each place of an event where a text may stand."""
    return [
        {"text": value},
        {"thinking": value},
        {"tool_calls": [{"id": "1", "name": "run", "arguments": {"command": value}}]},
        {"tool_calls": [{"id": "1", "name": "run", "arguments": json.dumps({"c": value})}]},
        {"output": {"lines": ["a", {"b": [value]}]}},
        {"path": f"src/{value}.py", "before": "", "after": value},
        {"of_nobody": {value: 1}},
    ]


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("made", SHAPED)
def test_a_secret_is_masked_in_every_encoding_and_place(
    made: Callable[[random.Random], str], encoding: str
) -> None:
    mask = redactor()
    for seed in range(5):
        dice = random.Random(seed)
        secret = made(dice)
        hidden = ENCODINGS[encoding](secret, dice)
        for payload in places(hidden):
            [line] = mask.redact([event(payload)], "default", LIMIT).lines
            after = json.dumps(json.loads(line), ensure_ascii=False)
            assert hidden not in after, payload
            assert secret not in after
            assert secret[-12:] not in after


def test_a_private_key_is_masked_as_a_whole_also_in_a_diff() -> None:
    secret = planted_secrets.private_key(random.Random(7))
    mask = redactor()
    for text in (secret, "+" + secret.replace("\n", "\n+"), secret.rpartition("\n")[0]):
        after = text_after(f"a\n{text}\nthat was it", mask)
        assert not any(line in after for line in secret.splitlines()[1:-1])
        assert "that was it" in after


@pytest.mark.parametrize("mark", ["", "+", "  "])
def test_the_rest_of_a_private_key_is_masked_too(mark: str) -> None:
    lines = planted_secrets.private_key(random.Random(8)).splitlines()
    for part in (lines[1:], lines[4:], lines[:-1], lines[:-2]):
        after = text_after(f"so\n{mark}" + f"\n{mark}".join(part) + "\nthat was it", redactor())
        assert not any(line[1:] in after for line in part if "-----" not in line)
        assert after.startswith("so\n")
        assert after.endswith("\nthat was it")


def test_a_key_without_its_end_costs_what_any_text_does() -> None:
    """Each way to share the characters between lines and marks would be tried."""
    content = planted_secrets.letters(random.Random(8), 40_000)
    for between in ("\n+", "\n\n", " \n", '",\n', "+\n"):
        lines = between.join(content[at : at + 64] for at in range(0, len(content), 64))
        text = f"-----END PRIVATE KEY-----\n{lines}"
        assert text_after(text, redactor()) == text


@pytest.mark.parametrize(
    "text",
    ["GITHUB_PAT={token}", "export AZURE_DEVOPS_EXT_PAT='{token}'", "githubPat: \"{token}\"",
     "password: {words}", "DB_PASSWORD={words}", '{{"password": "{words}"}}',
     "a\n  pwd: {words} # it\nb", "postgres://app:{words}@db/x",
     "pool('host=db password={word}')", "[pool]\nuser = app\npassword = {word}\n",
     "<password>{word}</password>", "CREATE USER app PASSWORD '{word}'", "'password' => '{word}'",
     "login:\n  passphrase: >-\n    {word}\n", "Enter password: {joined}\n",
     'let api_key: &str = "{token}";', "ENV['API_TOKEN'] ||= '{token}'",
     "otpauth://totp/app?secret={upper}&issuer=app", "x --passphrase '{word} and {joined}' y",
     "ldapsearch -x -w {word} -b dc=app", "new UserCredentials('bob', '{word}')",
     "пароль от базы: {joined}", "das Passwort der Datenbank lautet {word}7 bis Freitag",
     "密码是{word}7", "| user | Password |\n|---|---|\n| a | secret |\n| b | {joined} |\n",
     "Server=db;Password={word};Pooling=no"],
)  # fmt: skip
def test_personal_tokens_and_passwords_of_words_are_masked(text: str) -> None:
    token = planted_secrets.letters(random.Random(9), 40)
    upper = planted_secrets.letters(random.Random(9), 32, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")
    words = {"words": "correcthorsebattery", "word": "snowflake", "joined": "orchid-7pin"}
    filled = text.format(token=token, upper=upper, **words)
    after = text_after(filled, redactor())
    assert PLACEHOLDER.search(after)
    parts = (token, upper, "correcthorse", "snowf", "orchid", "7pin")
    assert not [part for part in parts if part in after]


@pytest.mark.parametrize(
    "text",
    ["password: string", "password = password", "password: required", "def f(password: str)",
     "password: authentication", "password: Optional", "Password: choose one", "COMPAT=yes",
     "password=temporaryphrase, user=name", '"password": "Enter your password"',
     "let password: String;", "password: userpasswordfield", "DB_PASSWORD=${DB_PASSWORD}",
     "GITHUB_PAT=your_token_here_please",
     "pattern: correcthorsebattery", "password = correcthorsebattery", "password = snowflake",
     "login(password=snowflake)", '"password": "Passwort"', "bypass=always",
     "password_hash: bcrypt",
     "docker://alpine:stable1@sha256:0", "the password for it is stored", "password: new_password",
     '("password", "remember")', "password=lambda: 1", "private_key: Key | None",
     "| Name | Password |\n|---|---|\n| snowflake | secret |"],
)  # fmt: skip
def test_what_is_said_about_passwords_stays(text: str) -> None:
    assert text_after(text, redactor(personal="off")) == text


def test_a_line_without_a_match_goes_on_byte_for_byte() -> None:
    line = b'{ "session_id":"s", "x":1.50, "n":123456789012345678901234567890, "t":"\\u00e9" }'
    redacted = redactor().redact([line, b"", b"  "], "default", LIMIT)
    assert redacted.lines == [line, b"", b"  "]
    assert not redacted.matches


def test_only_the_text_with_the_match_changes() -> None:
    secret = planted_secrets.aws_key(random.Random(1))
    line = b'{ "n":1.50, "a":"\\u00e9", "t":"x %s y", "big":12345678901234567890123 }'
    [after] = redactor().redact([line % secret.encode()], "default", LIMIT).lines
    before, between, behind = line.partition(b"%s")
    assert between
    assert after.startswith(before)
    assert after.endswith(behind)
    assert PLACEHOLDER.fullmatch(after[len(before) : -len(behind)].decode())


def test_what_was_redacted_is_not_redacted_again() -> None:
    once = text_after(
        f'password = "h7#kQ92xWm" {planted_secrets.jwt(random.Random(3))}', redactor()
    )
    assert len(PLACEHOLDER.findall(once)) == 2
    assert text_after(once, redactor()) == once


def test_the_name_of_a_value_tells_that_it_is_a_secret() -> None:
    payload = {"env": {"DB_PASSWORD": "h7#kQ92xWm", "HOME": "h7#kQ92xWm"}}
    [line] = redactor().redact([event(payload)], "default", LIMIT).lines
    env = json.loads(line)["payload"]["env"]
    assert PLACEHOLDER.fullmatch(env["DB_PASSWORD"])
    assert env["HOME"] == "h7#kQ92xWm"


@pytest.mark.parametrize(
    "text",
    [
        "write to anna.keller@firma-mail.de today",
        "call +49 170 5550 9876",
        "pay with 4539 1488 0343 6467",
        "to DE44 5001 0517 5407 3249 31",
        "ssh deploy at 10.3.44.17",
        "its card has 3c:22:fb:91:0a:7e",
    ],
)
def test_personal_data_is_masked_where_the_operator_says_so(text: str) -> None:
    assert "[PERSONAL:" in text_after(text, redactor())
    assert text_after(text, redactor(personal="off")) == text


@pytest.mark.parametrize("around", ["x = 1\n{}\nimport os", "key {}\nimport os", "+a\n+{}\n+b\n"])
@pytest.mark.parametrize("kind", ["aws_key", "model_key", "payment_key"])
def test_what_is_broken_over_lines_is_masked_between_other_lines(around: str, kind: str) -> None:
    secret: str = getattr(planted_secrets, kind)(random.Random(5))
    mark = "\n+" if around.startswith("+") else "\n"
    middle = 4 + len(secret) // 2
    after = text_after(around.format(secret[:middle] + mark + secret[middle:]), redactor())
    assert "[SECRET:" in after
    assert secret[:middle] not in after
    assert secret[middle:] not in after


@pytest.mark.parametrize(
    "around",
    ["{}\nimport os\n", "{}\n\nHello there", "a = {}\nb = 2", "- {}\n- other\n", "{}\nMAX_TOKENS=1",
     "+{}\n+import os\n", "{}\n3f9a1c0277d1e5b8 a commit", "{}\nb64decode(x)", "{}.\nThen go on",
     "{}\n2026-11-21T10:00:00Z", '"{}" "other"', '"{}"\n"other",', "{}\\nimport os"],
)  # fmt: skip
@pytest.mark.parametrize("made", SHAPED)
def test_the_line_behind_a_secret_stays_and_its_placeholder_is_the_same(
    made: Callable[[random.Random], str], around: str
) -> None:
    secret = made(random.Random(5))
    assert text_after(around.format(secret), redactor()) == around.format(
        text_after(secret, redactor())
    )


@pytest.mark.parametrize("between", ["\n", "\n+", "\\\n", '" +\n  "', '"\n  + "', '" + "'])
def test_a_secret_that_goes_on_for_lines_is_masked_to_its_end(between: str) -> None:
    secret = "sk" + "-proj-" + planted_secrets.letters(random.Random(4), 148)
    parts = [secret[at : at + 52] for at in range(0, len(secret), 52)]
    quote = '"' if '"' in between else ""
    text = f"x\nkey = {quote}{between.join(parts)}{quote}\nimport os"
    after = text_after(text, redactor())
    assert not any(part in after for part in parts)
    assert after.endswith("\nimport os")


def test_broken_lines_are_masked_too() -> None:
    secret = planted_secrets.payment_key(random.Random(5)).encode()
    sent = [b"no json " + secret, b'{"a":"' + secret, b'\xff{"a":"' + secret + b'"}', b"[" + secret]
    redacted = redactor().redact(sent, "default", LIMIT)
    assert redacted.matches[SourceRule("", "payment_key")] == len(sent)
    assert not any(secret in line for line in redacted.lines)


def test_the_end_of_a_line_that_was_cut_is_not_kept() -> None:
    secret = planted_secrets.aws_key(random.Random(5)).encode()
    cut = b'{"text":"' + b"a " * 20 + secret[:-4]
    [line] = redactor().redact([cut], "default", len(cut) - 1).lines
    assert len(line) == len(cut)
    assert secret[:8] not in line


@pytest.mark.parametrize("mode", ["drop", "quarantine"])
def test_a_mode_refuses_the_line_and_keeps_at_most_what_is_masked(mode: Mode) -> None:
    secret = planted_secrets.aws_key(random.Random(5))
    redacted = redactor(secrets=mode).redact([event({}), event({"t": secret})], "default", LIMIT)
    assert redacted.lines == [event({}), b""]
    [refused] = redacted.refused
    assert refused.line == 1
    assert "aws_key" in refused.reason
    assert bool(refused.raw) == (mode == "quarantine")
    assert secret.encode() not in refused.raw


def test_what_cannot_be_redacted_does_not_go_on() -> None:
    def no_key() -> bytes:
        raise OSError("no such file")

    mask = LineRedactor(rule_book("mask", "off"), no_key)
    line = event({"t": planted_secrets.aws_key(random.Random(5))})
    redacted = mask.redact([line, event({})], "default", LIMIT)
    assert redacted.lines == [b"", event({})]
    assert [(refused.line, refused.raw) for refused in redacted.refused] == [(0, b"")]
    assert redacted.refused[0].reason == "it could not be redacted: redaction itself failed"


TOKENS = {"prompt_ids": [1, 2], "completion_ids": [3], "logprobs": [-0.1], "tokenizer": "t"}


def test_token_ids_go_with_the_text_that_was_masked() -> None:
    mask = redactor()
    secret = planted_secrets.aws_key(random.Random(5))
    call = event({"text": f"use {secret}", "tokens": TOKENS}, "model_call")
    redacted = mask.redact([call], "default", LIMIT)
    after = json.loads(redacted.lines[0])["payload"]
    assert after["tokens"] == {"tokenizer": "t", REDACTED_KEY: True}
    assert redacted.matches[SourceRule("", "token_ids")] == 1


_DIGEST = "e04691eb5c3549de5f578a029d0841f99fb9b41a418645f013e7afc9b56632f2"


def test_counts_of_tests_do_not_look_like_passwords() -> None:
    """Most sessions have results of tests: stopping at each costs four times as much."""
    screened = screen_of(built_in_rules())
    assert not screened.marks(b'{"passed": 12, "passage": "x", "passes": 3}')
    assert screened.marks(b'"pass": "x", "my_password": "x"')


def test_a_call_with_the_digest_of_its_tokenizer_has_nothing_to_mask() -> None:
    screened = screen_of(built_in_rules())
    line = event({"text": "ok", "tokens": TOKENS | {"tokenizer": _DIGEST}}, "model_call", "s-quiet")
    assert screened.marks(line) == {TOKEN_IDS}
    assert redactor().redact([line], "default", LIMIT).lines == [line]


@pytest.mark.parametrize(
    "name",
    [
        *("token", "tokens", "token_i", "tokeni", "tokeniz", "tokenizing", "tokenization_key"),
        *("tokenizer_secret", "tokenizer-key", "tokenizer2", "tokenizexy", "Tokenizer_"),
    ],
)
def test_only_the_tokenizer_itself_is_left_out(name: str) -> None:
    masked = redactor().redact([event({name: _DIGEST, "other": 1})], "default", LIMIT).lines[0]
    assert PLACEHOLDER.search(masked.decode()), masked
    assert _DIGEST not in text_after(f'{name} = "{_DIGEST}"', redactor())


def test_token_ids_go_from_each_later_call_of_the_session() -> None:
    """A prompt's ids decode to all that was said before."""
    mask = redactor(key=b"of this test")
    secret = planted_secrets.aws_key(random.Random(5))
    call = event({"text": "done", "tokens": TOKENS}, "model_call")
    other = event({"text": "done", "tokens": TOKENS}, "model_call", session="other")
    assert mask.redact([call], "default", LIMIT).lines == [call]
    mask.redact([event({"text": secret}, "user_message")], "default", LIMIT)
    after, same, of_other_tenant = (
        mask.redact([line], tenant, LIMIT).lines[0]
        for line, tenant in [(call, "default"), (other, "default"), (call, "another")]
    )
    assert b"prompt_ids" not in after
    assert same == other
    assert of_other_tenant == call


# Rules


def test_an_operator_adds_changes_and_turns_off_rules(tmp_path: Path) -> None:
    own = tmp_path / "rules.toml"
    own.write_text(
        "version = 1\n"
        '[[rule]]\nid = "badge"\nkind = "personal"\npattern = "BADGE-[0-9]{6}"\nmode = "mask"\n'
        '[[rule]]\nid = "aws_key"\nmode = "off"\n'
    )
    mask = redactor(personal="off", own=own)
    secret = planted_secrets.aws_key(random.Random(5))
    after = text_after(f"BADGE-123456 {secret}", mask)
    assert after.startswith("[PERSONAL:badge:")
    assert after.endswith(secret)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "version"),
        ('version = 1\n[[rule]]\nid = "A"\n', "small letters"),
        ('version = 1\n[[rule]]\nid = "a"\nkind = "secret"\npattern = "("\n', "regular expression"),
        ('version = 1\n[[rule]]\nid = "a"\nkind = "secret"\npattern = "x*"\n', "empty text"),
        ('version = 1\n[[rule]]\nid = "a"\nkind = "secret"\npatern = "x"\n', "pattern"),
        ('version = 1\n[[rule]]\nid = "a"\nkind = "x"\npattern = "x"\n', "kind"),
        ('version = 1\n[[rule]]\nid = "a"\nkind = "secret"\npattern = "x"\nchecks = ["y"]\n', "y"),
        ('version = 1\n[[rule]]\nid = "a"\nkind = "secret"\npattern = "xy(?=z)"\n', "anchor"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(tmp_path: Path, content: str, why: str) -> None:
    own = tmp_path / "rules.toml"
    own.write_text(content)
    with pytest.raises(RedactionRulesInvalid, match=why):
        redactor(own=own)


def test_both_screens_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    built_in = built_in_rules()
    lines = [
        event({"text": ENCODINGS[encoding](made(random.Random(3)), random.Random(3))})
        for made in SHAPED
        for encoding in ENCODINGS
    ]
    with monkeypatch.context() as patch:
        patch.setitem(__import__("sys").modules, "hyperscan", None)
        rules._compiled_screen.cache_clear()
        slow = screen_of(built_in)
    rules._compiled_screen.cache_clear()
    quick = screen_of(built_in)
    assert isinstance(slow, rules._ScreenOneByOne)
    assert [quick.marks(line) for line in lines] == [slow.marks(line) for line in lines]


def test_a_screen_is_kept_for_the_next_process_and_a_damaged_one_is_made_anew(
    tmp_path: Path,
) -> None:
    for _process in range(3):
        rules._compiled_screen.cache_clear()
        assert screen_of(built_in_rules(), tmp_path).marks(b"postgres://u:secret@host")
        [kept] = tmp_path.glob("*.screen")
        kept.write_bytes(bytes(100))
