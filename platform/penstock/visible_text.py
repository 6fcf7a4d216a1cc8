r"""Text as a terminal may have it. What others wrote may hold characters that move the cursor, set
colours, reprogram keys or turn the order of what is read: each is shown as its number, such as
`\x1b`."""

import re

#: Control characters but the line break and the tab; what turns the direction of writing; line and
#: paragraph separators; halves of characters, which no encoding can write.
_CONTROLS = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_find_controls = re.compile(_CONTROLS)


def visible(text: str) -> str:
    """Text in which each control character is shown as its number. Lines and tabs stay."""
    return _find_controls.sub(_as_number, text)


def visible_line(text: str) -> str:
    """The same on one line, so that no text passes for a line that somebody else wrote."""
    return visible(" ".join(re.split(r"\r?\n|\t", text)))


def visible_json(text: str) -> str:
    """A JSON document with the same content. Outside its texts it holds no such character."""
    return _find_controls.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _as_number(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"
