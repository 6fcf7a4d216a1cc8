"""A corpus for redaction: texts with a secret planted in them, and texts that only look so.

Each text of redaction_texts.toml is a pattern: `⟦A36⟧` stands for 36 random letters and digits
(`_ALPHABETS`), `⟦ghp⟧` for a token of a kind (`_KINDS`), `«…»` marks what has to be masked, and `¬`
keeps the beginnings of tokens apart there, where whoever looks for leaked ones would find them. A
wrapping encodes it all.

Rules are tuned on two thirds. Every third text is held out, and nobody tunes on it: what it shows
would then say nothing."""

import base64
import html
import json
import random
import re
import string
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

from tests.support.planted_secrets import letters, private_key

Half = Literal["tuned", "held out"]
_ALNUM = string.ascii_letters + string.digits
_ALPHABETS = {
    "A": _ALNUM,
    "a": string.ascii_lowercase,
    "U": string.ascii_uppercase,
    "h": string.hexdigits[:16],
    "d": string.digits,
    "u": string.ascii_uppercase + string.digits,
    "y": string.ascii_lowercase + string.digits,
    "b": _ALNUM + "+/",
    "v": _ALNUM + "-_",
}
_KINDS = {
    "ghp": "gh¬p_⟦A36⟧",
    "gho": "gh¬o_⟦A36⟧",
    "pat": "github¬_pat_⟦A22⟧_⟦A59⟧",
    "glpat": "gl¬pat-⟦v20⟧",
    "slack": "xo¬xb-⟦d12⟧-⟦d12⟧-⟦A24⟧",
    "stripe": "sk¬_live_⟦A24⟧",
    "hf": "hf¬_⟦A34⟧",
    "openai": "sk¬-proj-⟦v74⟧T3Bl¬bkFJ⟦v74⟧",
    "anthropic": "sk¬-ant-api03-⟦v93⟧AA",
    "google": "AI¬za⟦v35⟧",
    "gocspx": "GO¬CSPX-⟦v28⟧",
    "akia": "AK¬IA⟦u16⟧",
    "aws": "⟦b40⟧",
    "square": "EA¬AAE⟦v59⟧",
    "sq0": "sq0¬atp-⟦v22⟧",
    "sendgrid": "SG¬.⟦v22⟧.⟦v43⟧",
    "pypi": "py¬pi-AgEIcHlwaS5vcmc⟦v120⟧",
    "telegram": "⟦d10⟧:AA⟦v33⟧",
    "discord": "M⟦A23⟧.⟦v6⟧.⟦v38⟧",
    "npm": "np¬m_⟦A36⟧",
    "jwt": "eyJ¬hbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJ¬zdWIiOiI⟦A24⟧.⟦v43⟧",
    "pass": "⟦a4⟧⟦d2⟧!⟦A5⟧",
    "word": "⟦a5⟧-⟦a6⟧-⟦d3⟧",
}
_TEXTS: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("redaction_texts.toml").read_text("utf-8")
)
_Wrapping = Callable[[str], str]
#: What keeps each character's place, so that the marks stay where they are.
_IN_PLACE: dict[str, _Wrapping] = {
    "percent": lambda text: quote(text, safe="-._"),
    "json": lambda text: json.dumps(text)[1:-1],
    "json twice": lambda text: json.dumps(json.dumps(text)[1:-1])[1:-1],
    "unicode": lambda text: "".join(f"\\u{ord(char):04x}" for char in text),
    "html": html.escape,
    "html numbers": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "html hex": lambda text: "".join(f"&#x{ord(char):x};" for char in text),
    "each percent": lambda text: "".join(f"%{ord(char):02x}" for char in text),
    "percent twice": lambda text: quote(quote(text, safe=""), safe=""),
    "bytes": lambda text: "".join(f"\\x{ord(char):02x}" for char in text),
    "octal": lambda text: "".join(f"\\{ord(char):03o}" for char in text),
}
#: What encodes all the text.
_WHOLE: dict[str, _Wrapping] = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 url": lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    "base64 lines": lambda text: base64.encodebytes(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
}


class Sample(NamedTuple):
    text: str
    #: What has to be masked, as it stands in the text; empty where nothing may be.
    secret: str


def corpus(half: Half) -> Iterator[Sample]:
    for patterns in _TEXTS.values():
        for number, pattern in enumerate(patterns):
            if (number % 3 == 2) == (half == "held out"):
                yield _sample(pattern, random.Random(f"{half}:{number}"))


def _sample(pattern: str, dice: random.Random) -> Sample:
    """Make a text of a pattern: `wrapping|wrapping||text`, the innermost first."""
    wrappings, _, text = pattern.rpartition("||")
    filled = _filled(text, dice)
    before, _, rest = filled.partition("«")
    secret, _, behind = rest.partition("»")
    for name in filter(None, wrappings.split("|")):
        if name in _WHOLE:
            before, secret, behind = "", _WHOLE[name](before + secret + behind), ""
        else:
            before, secret, behind = map(_IN_PLACE[name], (before, secret, behind))
    return Sample(before + secret + behind, secret if "«" in filled else "")


def _filled(text: str, dice: random.Random) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        if name in _KINDS:
            return _filled(_KINDS[name], dice)
        if name == "pem":
            return private_key(dice)
        if name == "pem indented":
            return private_key(dice).replace("\n", "\n    ")
        if name.startswith("64:"):
            inner = _filled(name[3:].replace("(", "⟦").replace(")", "⟧"), dice)
            return base64.b64encode(inner.encode()).decode()
        if name.startswith("bytes"):
            return base64.b64encode(dice.randbytes(int(name[5:]))).decode()
        return letters(dice, int(name[1:]), _ALPHABETS[name[0]])

    return re.sub("⟦([^⟧]+)⟧", value, text).replace("¬", "")
