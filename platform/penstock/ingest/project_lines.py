"""Lines of a key that is for one project: each event names that project, or none and is stamped."""

import msgspec

from penstock.redaction.line_redaction import RedactedLines, RefusedLine

_NAME_CHARS_MAX = 100


class _Named(msgspec.Struct):
    project: str | msgspec.UnsetType | None = msgspec.UNSET


_named_decoder = msgspec.json.Decoder(_Named)
_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])


def keep_project(lines: RedactedLines, project: str) -> None:
    """Refuses lines that name another project. Nothing of them is kept: who replays rejected lines
    would let them in. What is no event is left to those who say why."""
    stamp = b'{"project":' + msgspec.json.encode(project) + b","
    for place, line in enumerate(lines.lines):
        try:
            named = _named_decoder.decode(line).project if line else project
        except (ValueError, RecursionError):
            continue
        if named is msgspec.UNSET:
            lines.lines[place] = stamp + line[line.index(b"{") + 1 :]
        elif named is None:
            fields = _fields_decoder.decode(line)
            fields["project"] = msgspec.Raw(msgspec.json.encode(project))
            lines.lines[place] = msgspec.json.encode(fields)
        elif named != project:
            name = named[:_NAME_CHARS_MAX]
            why = f"it names the project {name!r}, and the key is for {project!r} alone"
            lines.refused.append(RefusedLine(place, why, b""))
            lines.lines[place] = b""
