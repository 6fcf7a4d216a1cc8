"""Names, reasons and other texts that people give to the registry, checked before it keeps them."""

from penstock.errors import InvalidInput

NAME_CHARS_MAX = 128
TEXT_CHARS_MAX = 4_000
_DIGEST = "sha256:"
#: `--expect none`.
_RESERVED = ("none",)


def check_name(what: str, name: str) -> str:
    """Of a checkpoint or a channel, or of who did something. Raises InvalidInput."""
    if not 0 < len(name) <= NAME_CHARS_MAX or not name.isprintable() or name != name.strip():
        why = f"it is a printable text of at most {NAME_CHARS_MAX} characters, not {name[:200]!r}"
        raise InvalidInput(what=what, why=why)
    if name in _RESERVED:
        raise InvalidInput(what=f"{what} {name!r}", why="commands say so where there is none")
    if name.startswith(_DIGEST):
        raise InvalidInput(what=f"{what} {name!r}", why="only a digest begins so")
    return name


def check_channel_name(name: str) -> str:
    """It stands in addresses, as /v1/channels/NAME. Raises InvalidInput."""
    check_name("The name of a channel", name)
    if "/" in name or name in (".", ".."):
        why = "it stands in addresses, and there it would lead elsewhere"
        raise InvalidInput(what=f"The name of a channel {name!r}", why=why)
    return name


def check_text(what: str, text: str) -> str:
    """Lines of printable text. Raises InvalidInput."""
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidInput(what=what, why=f"it is longer than {TEXT_CHARS_MAX} characters")
    if not all(line.isprintable() for line in text.replace("\t", " ").split("\n")):
        raise InvalidInput(what=what, why="it holds characters that cannot be shown")
    return text.strip()


def check_reason(text: str) -> str:
    """Raises InvalidInput."""
    reason = check_text("The reason", text)
    if not reason:
        why = "it is empty, and is kept with the change: say why, with --reason"
        raise InvalidInput(what="The reason", why=why)
    return reason


def check_digest(digest: str) -> str:
    """`sha256:` and 64 hexadecimal digits; in lower case. Raises InvalidInput."""
    lower = digest.lower()
    digits = lower.removeprefix(_DIGEST)
    if not lower.startswith(_DIGEST) or len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        why = "a digest is `sha256:` and 64 hexadecimal digits"
        raise InvalidInput(what=f"The digest {digest[:200]!r}", why=why)
    return lower
