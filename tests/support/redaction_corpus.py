"""A corpus for redaction: texts with a secret or with somebody's data, and texts that only look so.

Rules are tuned on one half. The held-out half has other kinds of secrets, contexts and traps, and
nobody tunes on it: what it shows would then say nothing."""

import base64
import random
import string
import uuid
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tests.support.planted_secrets import SHAPED, letters, private_key

Half = Literal["tuned", "held out"]
_HEX = string.hexdigits[:16]
_ROUNDS = 64


class Sample(NamedTuple):
    text: str
    #: What has to be masked; empty where nothing may be.
    secret: str


def corpus(half: Half) -> Iterator[Sample]:
    make = _tuned if half == "tuned" else _held_out
    for seed in range(_ROUNDS):
        yield from make(random.Random(f"{half}:{seed}"))


def _tuned(dice: random.Random) -> Iterator[Sample]:
    contexts = ("use {} now", 'key: "{}"', "export X={}\n", "- {}\n", '{{"value": "{}"}}')
    for made in SHAPED:
        secret = made(dice)
        yield Sample(dice.choice(contexts).format(secret), secret)
    password = letters(dice, 6) + dice.choice("!#$%") + letters(dice, 4, string.digits)
    yield Sample(f'password = "{password}"', password)
    token = letters(dice, 32)
    yield Sample(f"API_TOKEN={token}\n", token)
    personal, words = letters(dice, 40), _words(dice)
    yield Sample(f"GITHUB_PAT={personal}\n", personal)
    yield Sample(f"DB_PASSWORD={words}\n", words)
    yield Sample(f"db:\n  user: app\n  password: {words}\n", words)
    _, _, tail = private_key(dice).partition("\n")
    yield Sample(f"the rest:\n{tail}\n", tail)
    digest = letters(dice, 64, _HEX)
    image = base64.b64encode(dice.randbytes(300)).decode()
    name = dice.choice(("total", "session", "order", "invoice"))
    traps = (
        f"commit {digest[:40]}", f"sha256:{digest}", f'"integrity": "sha512-{image[:86]}=="',
        f"data:image/png;base64,{image}", f"id = {uuid.UUID(bytes=dice.randbytes(16))}",
        f"token = {name}_tokens[0]", 'password = "changeme"', f"max_tokens: {dice.randrange(9999)}",
        "password: string", "password = password", "password: required",
        "def f(password: str) -> None:", "PATH=/usr/local/bin:/usr/bin",
        "pat = re.compile(pattern)", '"password": "Enter your password"',
        "GITHUB_PAT=${{ secrets.GITHUB_PAT }}", f"password: {name}passwordfield",
        "API_KEY=${API_KEY}", f"password = os.environ['{name.upper()}']",
    )  # fmt: skip
    yield from (Sample(text, "") for text in traps)


def _words(dice: random.Random) -> str:
    return "".join(letters(dice, 1, "bdfklmnrst") + letters(dice, 1, "aeiou") for _ in range(8))


def _held_out(dice: random.Random) -> Iterator[Sample]:
    npm, google, sendgrid = (
        "np" + f"m_{letters(dice, 36)}",
        "AI" + f"za{letters(dice, 35)}",
        f"SG.{letters(dice, 22)}.{letters(dice, 43)}",
    )
    ocean, face = (
        f"dop_v1_{letters(dice, 64, _HEX)}",
        "hf" + "_" + letters(dice, 34, string.ascii_letters),
    )
    word, secret, phrase = (
        letters(dice, 14) + "9x",
        letters(dice, 48, _HEX),
        letters(dice, 5) + "-" + letters(dice, 7) + "7",
    )
    octets = [dice.randrange(11, 250) for _ in range(4)]
    address = ".".join(map(str, octets))
    mail = (
        f"{letters(dice, 6, string.ascii_lowercase)}@{letters(dice, 8, string.ascii_lowercase)}.eu"
    )
    block = private_key(dice)
    _, _, below = block.partition("\n")
    above, _, _ = block.rpartition("\n")
    azure = letters(dice, 52, string.ascii_lowercase + "234567")
    words = _words(dice)
    yield from (
        Sample(f"//registry/:_authToken={npm}", npm),
        Sample(f"fetch('https://maps/api?key={google}&v=3')", google),
        Sample(f"-e 'SENDGRID={sendgrid}'", sendgrid),
        Sample(f"doctl auth init -t {ocean}", ocean),
        Sample(f"login(token='{face}')", face),
        Sample(f"amqps://svc:{word}@mq.intern:5671/%2F", word),
        Sample(f"curl -H 'Authorization: Bearer {secret}' https://x", secret),
        Sample(f"  client_secret: {secret}\n  scope: all", secret),
        Sample(f"Server=db;User Id=sa;Password={phrase};Encrypt=true", phrase),
        Sample(f"key.pem:\n{block}\n", block),
        Sample(f"AZURE_DEVOPS_EXT_PAT='{azure}'", azure),
        Sample(f'{{"user": "a", "password": "{words}"}}', words),
        Sample(f"spring.datasource.password={words}\nspring.x=1", words),
        Sample(f"PGPASSWORD={words} psql -h db", words),
        Sample("+" + below.replace("\n", "\n+"), below.splitlines()[1]),
        Sample(f"cut here:\n{above}", above),
        Sample(f"Reported by {mail}, thanks", mail),
        Sample(f"inet {address} netmask", address),
        Sample(f"+    pwd='{phrase}',", phrase),
    )
    image = base64.b64encode(dice.randbytes(48)).decode()
    camel = "".join(letters(dice, 6, string.ascii_lowercase).title() for _ in range(5))
    yield from (
        Sample(text, "")
        for text in (
            f"resolved \"https://r/x/-/x-{dice.randrange(9)}.1.2.tgz#{letters(dice, 40, _HEX)}\"",
            f"W/\"{letters(dice, 32, _HEX)}\"", f"function {camel}(e,t){{return e[t].{camel}}}",
            f"traceparent: 00-{letters(dice, 32, _HEX)}-{letters(dice, 16, _HEX)}-01",
            f"src/{camel}/{camel}/{camel}.ts",
            f"secretName: {camel.lower()[:8]}-tls-cert", "password: <your password>",
            f"csrf_token_header = 'X-{camel}'",
            f"h1:{base64.b64encode(dice.randbytes(32)).decode()}",
            f"git@github.com:{camel}/repo.git",
            f"version 4.{dice.randrange(99)}.0.{dice.randrange(9)}",
            f"id: {'9' + letters(dice, 18, string.digits)}",
            "let password: String;", "password: z.string().min(8)", "password=newPassword,",
            "<label for='password'>Password: choose one</label>", f"password: {camel[:12]}",
            "$PASSWORD = input", "compat=enabled-everywhere-always", f"pattern: {camel.lower()}",
            "return connect(user=name, password=temporaryphrase)", "password: authentication",
            f"-----END CERTIFICATE-----\n{image}\n-----END PUBLIC KEY-----",
            f"tokenizer: '{camel}-7b-v0.{dice.randrange(9)}'",
        )
    )  # fmt: skip
