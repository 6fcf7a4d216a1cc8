"""Made-up secrets and personal data, a new one for each seed: none stands in the repository, where
whoever looks for leaked ones would find it."""

import base64
import json
import random
import string
from collections.abc import Callable
from urllib.parse import quote

_ALNUM = string.ascii_letters + string.digits


def letters(dice: random.Random, count: int, of: str = _ALNUM) -> str:
    return "".join(dice.choices(of, k=count))


def aws_key(dice: random.Random) -> str:
    return "AK" + "IA" + letters(dice, 16, string.ascii_uppercase + "234567")


def github_token(dice: random.Random) -> str:
    return "gh" + "p_" + letters(dice, 36)


def gitlab_token(dice: random.Random) -> str:
    return "gl" + "pat-" + letters(dice, 20)


def slack_token(dice: random.Random) -> str:
    digits = string.digits
    return "xo" + f"xb-{letters(dice, 12, digits)}-{letters(dice, 12, digits)}-{letters(dice, 24)}"


def model_key(dice: random.Random) -> str:
    return "sk" + f"-proj-{letters(dice, 48)}"


def payment_key(dice: random.Random) -> str:
    return "sk" + f"_live_{letters(dice, 24)}"


def jwt(dice: random.Random) -> str:
    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    claims = {"sub": letters(dice, 8, string.digits), "iat": dice.randrange(10**9)}
    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{letters(dice, 43)}"


def private_key(dice: random.Random) -> str:
    content = base64.b64encode(dice.randbytes(400)).decode()
    lines = [content[at : at + 64] for at in range(0, len(content), 64)]
    return "\n".join(["-----BEGIN PRIVATE " + "KEY-----", *lines, "-----END PRIVATE " + "KEY-----"])


#: Recognised by their shape, wherever they stand.
SHAPED: tuple[Callable[[random.Random], str], ...] = (
    aws_key, github_token, gitlab_token, slack_token, model_key, payment_key, jwt,
)  # fmt: skip


def broken(secret: str, dice: random.Random, by: str) -> str:
    """Over two lines, some way behind its beginning."""
    at = dice.randrange(min(14, len(secret) // 2), len(secret) - 2)
    return secret[:at] + by + secret[at:]


#: How a secret may stand in a text.
ENCODINGS: dict[str, Callable[[str, random.Random], str]] = {
    "plain": lambda secret, dice: f"the key is {secret}, keep it",
    "base64": lambda secret, dice: base64.b64encode(f"the key is {secret}".encode()).decode(),
    "base64 alone": lambda secret, dice: base64.b64encode(secret.encode()).decode(),
    "base64 lines": lambda secret, dice: base64.encodebytes(f"so: {secret} ok".encode()).decode(),
    "url": lambda secret, dice: f"/x?q={quote('key=' + secret, safe='')}",
    "each percent": lambda secret, dice: "".join(f"%{ord(char):02X}" for char in secret),
    "escapes": lambda secret, dice: "".join(f"\\u{ord(char):04x}" for char in secret),
    "hexadecimal escapes": lambda secret, dice: "".join(f"\\x{ord(char):02x}" for char in secret),
    "two lines": lambda secret, dice: broken(secret, dice, "\n"),
    "diff": lambda secret, dice: "@@ -1 +1,2 @@\n+" + broken(secret, dice, "\n+"),
    "two lines between others": lambda secret, dice: (
        "x = 1\n" + broken(secret, dice, "\n") + "\nimport os\n"
    ),
    "diff between other lines": lambda secret, dice: (
        "@@ -1 +1,4 @@\n+x = 1\n+" + broken(secret, dice, "\n+") + "\n+import os\n"
    ),
    "put together": lambda secret, dice: 'key = "' + broken(secret, dice, '" +\n  "') + '"',
    "JSON": lambda secret, dice: json.dumps({"key": [secret]}),
    "JSON in JSON": lambda secret, dice: json.dumps({"a": json.dumps({"b": f"x {secret}"})}),
    "base64 in JSON": lambda secret, dice: json.dumps(
        {"data": base64.b64encode(f"key: {secret}".encode()).decode()}
    ),
}
