"""Secrets as tools print them: coloured, in addresses, in HTML, in JSON of JSON, in any order."""

import base64
import json
import random
from collections.abc import Callable
from urllib.parse import quote

import pytest

from penstock.events.redaction.line_redaction import LineRedactor
from penstock.events.redaction.rules import rule_book
from tests.support.planted_secrets import SHAPED, letters

WRAPPED: dict[str, Callable[[str], str]] = {
    "colour": lambda s: f"\x1b[32m{s}\x1b[0m",
    "colour in it": lambda s: f"token\x1b[1;31m{s[:4]}\x1b[m\x1b[K{s[4:]} ok",
    "colour as text": lambda s: f"\\x1b[32m{s}\\x1b[0m and \\033[1m{s}\\033[0m",
    "a space": lambda s: f"?a=b%20{s}%20c",
    "quotes": lambda s: f"%22{s}%22",
    "an ampersand": lambda s: f"a%26{s}%26",
    "a line break": lambda s: f"x%0A{s}%0Ay",
    "twice": lambda s: f"a%2520{s}",
    "entities": lambda s: f"<a href=&quot;{s}&quot;>",
    "numbered entities": lambda s: f"a&#32;{s}&#10;b&#x3D;{s}",
    "JSON of JSON": lambda s: json.dumps(json.dumps({"output": f"\x1b[32m{s}"})),
    "base64 of a colour": lambda s: base64.b64encode(f"out: \x1b[32m{s}\x1b[0m".encode()).decode(),
    "an address of JSON": lambda s: quote(json.dumps({"key": s})),
    "an address of entities": lambda s: quote(f"&quot;{s}&quot;"),
    "base64 of an address": lambda s: base64.b64encode(quote(f"token {s}").encode()).decode(),
}
REDACTOR = LineRedactor(rule_book("mask", "mask"), lambda: b"k")


def redacted(output: str) -> str:
    line = json.dumps({"session_id": "s", "type": "tool_result", "payload": {"output": output}})
    [masked] = REDACTOR.redact([line.encode()], "tenant", 1_000_000).lines
    text: str = json.loads(masked)["payload"]["output"]
    return text


@pytest.mark.parametrize("how", WRAPPED)
@pytest.mark.parametrize("made", SHAPED)
def test_what_stands_around_a_secret_does_not_hide_it(
    made: Callable[[random.Random], str], how: str
) -> None:
    secret = made(random.Random(how))
    text = WRAPPED[how](secret)
    assert redacted(text) != text
    assert secret not in redacted(text)


@pytest.mark.parametrize(
    "text",
    [
        "SECRET_KEY = 'django-insecure-8({}z@l^v7&m3pd$rt5_yb'",
        "machine api.host.dev\n  login deploy\n  password {}",
        "Set-Cookie: sessionid={}; Path=/; HttpOnly",
        "Cookie: theme=dark; connect.sid=s%3A{}.cD5eF7; lang=de",
        "DB_PASS={}", "export PGPASS={}", "SMTP_PASS: '{}'", "user=app pass={} host=db",
        "mysql -u root -p{} shop < dump.sql",
        "app:{}@tcp(10.0.0.5:3306)/shop", "thin:scott/{}@ora01:1521:ORCL", "NEXTAUTH_SECRET={}",
        'token = Some(Secret::new("{}"))', "api_secret: &s {}", "s3Secret = 'q7Rv2' +\n  '{}'",
        "$ vault read token\n{}\n", "use {} as the password", "AUTH PLAIN {}",
        "callback?client_id%3Dabc%26client_secret%3D{}",
    ],
)  # fmt: skip
def test_a_secret_is_known_by_what_stands_before_it(text: str) -> None:
    secret = "q7Rv2Lx9" + letters(random.Random(text), 14)
    assert secret not in redacted(text.format(secret))


@pytest.mark.parametrize(
    "text",
    [
        "PASS: test_login_works", "pass: 12, fail: 3", "tests pass=14 fail=0", "one_pass=True",
        "bypass=enabled", "--- PASS: TestX (0.00s)", "session=load_session(user); sid=read_sid()",
        "the login page password field", "account settings password change", "mysql -p shop",
        "width: 100%; auth=required", "printf('%02d %20s', a, b)", "a &amp; b &lt; c",
        "tar -pxzf a.tgz",
        "test_auth.py::test_token[expired-401] PASSED", ".password { color: #ff00aa33; }",
        "key: parseUtf8Token", "repo/image@sha256:98341", "this.render/_x42@app.js:123:45",
        "Cookie: theme=dark; lang=en", "\x1b[32m12 passed\x1b[0m",
    ],
)  # fmt: skip
def test_honest_texts_stay(text: str) -> None:
    assert redacted(text) == text
