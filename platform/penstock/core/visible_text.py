r"""Text made safe for a terminal: characters that move the cursor, set colours, reprogram keys or
reverse the reading order are shown as numbers, such as `\x1b`."""

import re

#: Controls but line breaks and tabs, directions, separators, and halves that cannot be encoded.
_CONTROLS = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_find_controls = re.compile(_CONTROLS)


def visible(text: str) -> str:
    """Show control characters as numbers. Line breaks and tabs stay."""
    return _find_controls.sub(_as_number, text)


def visible_line(text: str) -> str:
    """Show text on one line, so that it cannot imitate another line."""
    return text if text.isprintable() else visible(" ".join(re.split(r"\r?\n|\t", text)))


def visible_json(text: str) -> str:
    """Escape control characters in the texts of a JSON document."""
    return _find_controls.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _as_number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"
