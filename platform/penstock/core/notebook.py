"""Tables that a notebook shows: bounded, and inert whatever others wrote."""

import dataclasses
from collections.abc import Iterable, Sequence
from html import escape

from penstock.core.visible_text import visible_line

ROWS_MAX = 50
_CELL_CHARS_MAX = 200


def table_html(columns: Sequence[str], rows: Iterable[Sequence[object]], note: str = "") -> str:
    head = "".join(f"<th>{_cell(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_cell(v)}</td>' for v in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return table + (f"<p>{escape(note)}</p>" if note else "")


class NotebookRecord:
    """A data class that a notebook shows as a table of its fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        named = [(field.name, getattr(self, field.name)) for field in dataclasses.fields(self)]  # type: ignore[arg-type]
        return table_html(["field", "value"], [pair for pair in named if pair[1] is not None])


def _cell(value: object) -> str:
    text = "" if value is None else visible_line(str(value)[: _CELL_CHARS_MAX + 1])
    return escape(text if len(text) <= _CELL_CHARS_MAX else text[: _CELL_CHARS_MAX - 1] + "…")
