"""The answer of a recipe's query: which sessions it names, each once, and what it says of them."""

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidInput
from penstock.toml_document import refuse_unknown
from penstock_jobs.shards.recipe import Kind

ASKED_ROWS = pa.schema(
    [
        pa.field("session_id", pa.string(), nullable=False),
        pa.field("weight", pa.float64(), nullable=False),
        pa.field("group_id", pa.string()),
        pa.field("stratum", pa.string()),
    ]
)


def read_answer(answer: pa.Table, kind: Kind) -> pa.Table:
    """The query's answer as ASKED_ROWS. Raises InvalidInput, which names the column or the row."""
    names = answer.column_names
    if "session_id" not in names:
        why = f"it selects no session_id; its columns are {', '.join(names)}"
        raise InvalidInput(what="The recipe's query", why=why)
    refuse_unknown(names, ASKED_ROWS.names, "the columns of the recipe's query")
    if len(set(names)) < len(names):
        raise InvalidInput(what="The recipe's query", why="it selects a column twice")
    for wanted, column in (("group", "group_id"), ("stratum", "stratum")):
        if kind == wanted and column not in names:
            why = f"the advantage is by {wanted}, and it selects no {column}"
            raise InvalidInput(what="The recipe's query", why=why)
    sessions = _texts(answer, "session_id")
    _refuse_bad_ids(sessions)
    return pa.table(
        [sessions, _weights(answer), _texts(answer, "group_id"), _texts(answer, "stratum")],
        schema=ASKED_ROWS,
    )


def _texts(answer: pa.Table, name: str) -> pa.ChunkedArray:
    if name not in answer.column_names:
        return pa.chunked_array([pa.nulls(answer.num_rows, pa.string())])
    column = answer[name]
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    text = any(is_text(kind) for is_text in _TEXT_TYPES)
    if not text and (name == "session_id" or not _names_something(kind)):
        why = f"{name} has to be a text, and is {kind}"
        raise InvalidInput(what="The recipe's query", why=why)
    return column.cast(pa.string())


_TEXT_TYPES = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def _names_something(kind: pa.DataType) -> bool:
    """Other types whose values name a group well. Fractions do not: 0.1 has many spellings."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_boolean(kind) or types.is_null(kind))


def _weights(answer: pa.Table) -> pa.ChunkedArray:
    if "weight" not in answer.column_names:
        return pa.chunked_array([pa.repeat(1.0, answer.num_rows)])
    kind, types = answer["weight"].type, pa.types
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)):
        why = f"weight has to be a number, and is {kind}"
        raise InvalidInput(what="The recipe's query", why=why)
    weights = answer["weight"].cast(pa.float64())
    good = pc.fill_null(pc.and_(pc.is_finite(weights), pc.greater_equal(weights, 0.0)), False)
    if (bad := pc.index(good, False).as_py()) >= 0:
        session = answer["session_id"][bad].as_py()
        why = f"the weight of {session} is {weights[bad].as_py()}, and has to be 0 or more"
        raise InvalidInput(what="The recipe's query", why=why)
    return weights


def _refuse_bad_ids(sessions: pa.ChunkedArray) -> None:
    if sessions.null_count:
        row = pc.index(sessions.is_null(), True).as_py() + 1
        raise InvalidInput(what="The recipe's query", why=f"row {row} has no session_id")
    counts = pc.value_counts(sessions)
    twice = pc.greater(counts.field("counts"), 1)
    if pc.any(twice).as_py():
        [first, *_] = counts.filter(twice).to_pylist()
        why = f"it names the session {first['values']} {first['counts']} times; once is enough"
        raise InvalidInput(what="The recipe's query", why=why)
